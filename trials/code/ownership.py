"""Distinguishes the user's own files from those that Python, an installer or another tool has put beside them.

A file that names code may come from a stranger. So what it can reach is what a person wrote: not the standard library,
whose `subprocess.py` runs any command, not installed packages, and not what a link leads to elsewhere.
"""

import sys
from functools import cache
from pathlib import Path

from lmsweep.trials.spec.reference import Code

_OF_INSTALLERS = frozenset(("site-packages", "dist-packages", "__pypackages__", "node_modules"))
"""Names of folders of installed packages."""
_LIBRARY = ("os.py", "site.py", "encodings/__init__.py")
"""Files by which a standard library is recognised, of whichever Python."""
_PREFIXES = frozenset(
    Path(one).resolve() for one in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
)
_OF_PREFIXES = ("pyvenv.cfg", "conda-meta", "lib*/python*/os.py", "Lib/os.py")
"""Files by which a virtual environment or an installation of Python is recognised."""


def is_users_file(path: Path | str, code: Code) -> bool:
    """Return whether a file is the user's: in the code folder, links followed, and no part of a Python there."""
    if str(path).startswith("<"):  # <frozen importlib._bootstrap>, <string>
        return False
    resolved, folder = Path(path).resolve(), Path(code.folder).resolve()
    if not resolved.is_relative_to(folder):
        return False
    return not any(_why_of_python(one) or _why_packages(one) for one in _between(resolved.parent, folder))


def hidden_folder(path: Path, code: Code) -> str | None:
    """Return the name of the hidden folder of the code folder that a path is in, None if it is in none."""
    inside = path.resolve().relative_to(Path(code.folder).resolve())
    return next((part for part in inside.parts[:-1] if part.startswith(".")), None)


def why_no_code_folder(folder: Path) -> str | None:
    """Return why references must not lead into a folder, whoever names it, else None."""
    resolved = folder.resolve()
    reasons = (_why_library(one) for one in (resolved, *resolved.parents))
    return _why_prefix(resolved) or next(filter(None, reasons), None)


def folder_within(folder: Path, written: str) -> Path:
    """Return the folder that a file in `folder` names, if it is the user's. Raises ValueError if it leads elsewhere."""
    path = folder / written
    resolved, own = path.resolve(), folder.resolve()
    if not resolved.is_relative_to(own):
        raise ValueError(f"{path} leads out of the folder of this file; other folders are named by --code")
    if not resolved.is_dir():
        raise ValueError(f"there is no folder {path}")
    for one in (resolved, *_between(resolved, own)):  # `resolved` may be `own`, which is not between
        if why := _why_of_python(one) or _why_packages(one):
            raise ValueError(f"{one} {why}; name the folder of your own code")
    return resolved


def _between(inner: Path, outer: Path) -> list[Path]:
    """Return the folders from `inner` up to one below `outer`."""
    return [one for one in (inner, *inner.parents) if one != outer and one.is_relative_to(outer)]


def _why_of_python(folder: Path) -> str | None:
    return _why_library(folder) or _why_prefix(folder)


@cache
def _why_packages(folder: Path) -> str | None:
    """An installer can install into any folder (`pip --target`)."""
    return "holds installed packages" if next(folder.glob("*.dist-info/RECORD"), None) else None


@cache
def _why_library(folder: Path) -> str | None:
    if folder.name in _OF_INSTALLERS:
        return "holds installed packages"
    return "is part of Python" if all((folder / file).is_file() for file in _LIBRARY) else None


@cache
def _why_prefix(folder: Path) -> str | None:
    is_one = folder in _PREFIXES or any(next(folder.glob(pattern), None) for pattern in _OF_PREFIXES)
    return "is an installation of Python" if is_one else None
