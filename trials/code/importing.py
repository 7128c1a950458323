"""Imports what references lead to, in the process of a trial.

The code folder comes before installed packages, as with `python script.py`. But lmsweep and torch import some modules
late, so a file of the folder with the name of one of those, or of a module of Python, is never imported.
"""

import functools
import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain
from types import ModuleType

from lmsweep.trials.code.ownership import is_users_file
from lmsweep.trials.code.project import ProjectFinder
from lmsweep.trials.code.source import check_reference, find_source, is_registered, is_reserved, is_users_module, roots
from lmsweep.trials.code.traceback_text import CodeError, user_line
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.reference import Code, Reference, parse_reference

_IN_CHECKOUT = ("trials", "orchestrator", "analysis")
"""Folders beside `lmsweep` in a checkout of it, which Python finds too, and which lmsweep never imports."""


class CodeFinder(MetaPathFinder):
    """Finds the top-level modules of one code folder."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.folders = [str(root) for root in roots(code)]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if "." in fullname or is_reserved(fullname):
            return None
        found = PathFinder.find_spec(fullname, self.folders)
        if found is None or _has_init(found) or fullname in _IN_CHECKOUT:
            return found
        installed = PathFinder.find_spec(fullname)  # a bare folder gives way to an installed package, as in Python
        return None if installed and _has_init(installed) else found


def _has_init(found: ModuleSpec) -> bool:
    """Return whether it is a file or a package, not a folder without __init__.py."""
    return found.origin is not None


def use_code(code: Code) -> None:
    """Make the folder's modules importable in this process. A process has one code folder."""
    present = [finder for finder in sys.meta_path if isinstance(finder, CodeFinder)]
    if present:
        assert present[0].code.folder == code.folder, "a process that has imported code is not used for another's"
        return
    sys.meta_path.insert(0, CodeFinder(code))
    sys.meta_path.append(ProjectFinder(code))


def load(text: str) -> object:
    """Import and return what a reference names. Raises RequestError if it is not the user's, and import errors."""
    code = code_in_use()
    check_reference(text, code)
    reference = parse_reference(text)
    try:
        module = _import(reference, code)
    except SystemExit as error:
        raise CodeError(user_line(error, code)) from error
    except ImportError as error:
        top = (error.name or "").partition(".")[0]
        if is_reserved(top) and is_users_module(top, code):
            raise CodeError(
                f"{user_line(error, code)}: {top} is also the name of a module that lmsweep or PyTorch imports, so the "
                f"one in {code.folder} is never imported; rename it"
            ) from error
        raise
    found: object = module
    for name in reference.attribute.split("."):
        if not hasattr(found, name):
            raise RequestError(f"{text}: {reference.where} has no {reference.attribute}")
        found = getattr(found, name)
    if not (is_registered(text) or is_defined_by_user(found, code)):
        defined = getattr(found, "__module__", None) or type(found).__name__
        raise RequestError(
            f"{text}: it is defined in {defined}, not in the code folder {code.folder} (write a function around it, or "
            f"add --trust {str(defined).partition('.')[0]})"
        )
    return found


@contextmanager
def nothing_cached() -> Iterator[None]:
    """A context that begins and ends with empty caches in the user's modules: cached tensors must not outlive a run."""
    _empty_caches()
    try:
        yield
    finally:
        _empty_caches()


_is_users = functools.cache(is_users_file)


def _empty_caches() -> None:
    for code in [finder.code for finder in sys.meta_path if isinstance(finder, CodeFinder)]:
        for name, module in list(sys.modules.items()):
            file = str(vars(module).get("__file__"))
            if _is_ours(name):  # keeps its caches, even if the code folder is lmsweep's own checkout
                continue
            if file.startswith(code.folder) and _is_users(file, code):
                classes = [one for one in vars(module).values() if inspect.isclass(one)]
                for found in chain(*(list(vars(owner).values()) for owner in (module, *classes))):
                    function = found.__func__ if isinstance(found, staticmethod) else found
                    if isinstance(function, functools._lru_cache_wrapper) and not _is_ours(function.__module__):
                        function.cache_clear()


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "lmsweep"


def code_in_use() -> Code:
    """Return the code folder of this process. Raises RequestError if there is none."""
    for finder in sys.meta_path:
        if isinstance(finder, CodeFinder):
            return finder.code
    raise RequestError("a reference to your own code needs the folder that it is in; give it by --code")


def is_defined_by_user(found: object, code: Code) -> bool:
    """Return whether a function or class is defined in the code folder or in a trusted package."""
    if not callable(found):
        return False
    is_object = not inspect.isfunction(found) and not inspect.isclass(found)
    if is_object and not _is_in_users_file(type(found), code):
        # Of another's class, such as a compiled function, one of Triton, or a partial: the function inside is judged.
        inside = [getattr(found, name) for name in ("__wrapped__", "fn", "func") if hasattr(found, name)]
        found = inside[0] if inside else found
    module = getattr(found, "__module__", None) or ""
    return module.partition(".")[0] in code.trusted or _is_in_users_file(found, code)


def _is_in_users_file(found: object, code: Code) -> bool:
    module = sys.modules.get(getattr(found, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    return bool(file) and is_users_file(str(file), code)


def _import(reference: Reference, code: Code) -> ModuleType:
    if reference.module is not None:
        return import_module(reference.module)
    path = find_source(reference, code)
    assert path is not None, "a file is in the code folder"
    parts = path.relative_to(code.folder).with_suffix("").parts
    if not (path.parent / "__init__.py").exists():
        # A script imports its neighbours by their bare names.
        finder = next(finder for finder in sys.meta_path if isinstance(finder, CodeFinder))
        finder.folders += [str(path.parent)] if str(path.parent) not in finder.folders else []
    if all(part.isidentifier() for part in parts) and not is_reserved(parts[0]):
        return import_module(".".join(parts))
    name = "lmsweep_code_" + "_".join("".join(c if c.isalnum() else "_" for c in part) for part in parts)
    if name not in sys.modules:
        spec = spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None, "a Python file has a loader"
        sys.modules[name] = module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:  # whatever ended it, Ctrl-C too: no half of a module may stay
            del sys.modules[name]
            raise
    return sys.modules[name]
