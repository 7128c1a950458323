"""Which modules the user's code imports that are not installed, who imports them, and the command that installs them.

The name of a module is not the name of a package: who installs `causal_conv1d_cuda` gets nothing, or what a stranger
has put there. So a command names only what the project's own metadata names, and what KNOWN lists.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from packaging.utils import canonicalize_name

from lmsweep.trials.code.ownership import hidden_folder, is_users_file
from lmsweep.trials.code.project import declared_requirement
from lmsweep.trials.code.source import is_users_module, parse, roots
from lmsweep.trials.spec.installing import install_command
from lmsweep.trials.spec.reference import Code

# Packages that have a module of the same name.
_SAME = """
    accelerate bitsandbytes datasets deepspeed einops fire huggingface_hub jaxtyping jsonargparse lightning loguru
    matplotlib numba numpy omegaconf opt_einsum packaging pandas peft psutil pyarrow pydantic pytest pytorch_lightning
    ray regex requests rich safetensors scipy seaborn sentencepiece tensorboard tiktoken timm tokenizers torch torchao
    torchaudio torchdata torchmetrics torchvision tqdm transformers triton trl typer tyro wandb xformers
"""
KNOWN = {name: (canonicalize_name(name),) for name in _SAME.split()} | {
    "PIL": ("pillow",),
    "causal_conv1d": ("causal-conv1d",),
    "cv2": ("opencv-python", "opencv-python-headless"),
    "dateutil": ("python-dateutil",),
    "dotenv": ("python-dotenv",),
    "fla": ("flash-linear-attention",),
    "flash_attn": ("flash-attn",),
    "hydra": ("hydra-core",),
    "mamba_ssm": ("mamba-ssm",),
    "skimage": ("scikit-image",),
    "sklearn": ("scikit-learn",),
    "yaml": ("pyyaml",),
}
"""Module -> the packages that have it; the first unless the project's metadata names another."""

_FORGIVEN = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def missing_packages(files: Iterable[Path], code: Code) -> dict[str, str]:
    """Return the top-level modules that are not installed but that these files of the user import, also by way of other
    files. Each has the first line that imports it, as `mine/model.py:3`.

    Imports in functions, under `if`, and in a `try` that continues without them do not count. Runs none of the code.
    """
    waiting = [found for file in files for found in (file, *_packages_of(file))]
    seen, names = set[Path](), dict[str, str]()
    while waiting:
        file = waiting.pop(0)
        if file in seen:
            continue
        seen.add(file)
        for line, level, name in _imported(file):
            places = [file.parents[level - 1]] if level else roots(code)
            waiting += [found for place in places for found in _files_of(place, name.split("."))]
            top = name.partition(".")[0]
            if (
                not level
                and not (file.parent / f"{top}.py").exists()  # as a script imports its neighbour
                and not is_users_module(top, code)
                and not _is_installed(top)
            ):
                shown = file.relative_to(code.folder) if file.is_relative_to(code.folder) else file
                names.setdefault(top, f"{shown}:{line}")
    return dict(sorted(names.items()))


def install_words(missing: Mapping[str, str], code: Code) -> str:
    """Return what to do about each module: the command that installs its package; if that is unknown, where the folder
    has the module; else who imports it. `missing`: module -> who imports it."""
    wanted = {name: requirement for name in sorted(missing) if (requirement := _requirement(name, code))}
    unknown = [name for name in sorted(missing) if name not in wanted]
    in_folder = {name: place for name in unknown if (place := _elsewhere(name, missing[name], code))}
    words = [
        f"{name} is {place.relative_to(code.folder)}: give the folder that your code imports from by "
        f"--code {place.parent.relative_to(code.folder)}"
        for name, place in in_folder.items()
    ]
    words += [
        f"not installed here: {name}, which {missing[name]} imports; your project's metadata does not say which "
        "package has it"
        for name in unknown
        if name not in in_folder
    ]
    if wanted:
        command = install_command(*chain.from_iterable(wanted.values()))
        them = "it" if len(wanted) == 1 else "them"
        words.append(f"not installed here: {', '.join(wanted)}; install {them}: {command}")
    return "; ".join(words)


def _requirement(module: str, code: Code) -> list[str]:
    """Return an installer's arguments for the package that has a module; none if neither KNOWN nor metadata has it."""
    packages = KNOWN.get(module, (module,))
    declared = (declared_requirement(package, code) for package in packages)
    return next(filter(None, declared), [packages[0]] if module in KNOWN else [])


def not_built(message: str, file: Path, code: Code) -> str:
    """Return what to run if the user's package imports a part that is compiled when it is installed, else ''."""
    found = re.match(r"cannot import name '(\w+)' from partially initialized module '([\w.]+)'", message)
    if not found or (file.parent / f"{found[1]}.py").exists() or (file.parent / found[1]).is_dir():
        return ""
    inside = [folder for folder in file.parents if folder.is_relative_to(code.folder)]
    project = next((one for one in inside if (one / "pyproject.toml").is_file()), None)
    command = f": {install_command('-e', str(project))}" if project else ""
    return f"; {found[2]} has no {found[1]}.py, so it is probably compiled when the project is installed{command}"


def _imported(file: Path) -> Iterator[tuple[int, int, str]]:
    """Yield the modules that importing a file needs, after the line and the number of dots before their names."""
    waiting = [*tree.body] if (tree := parse(file)) else []
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Import):
            yield from ((node.lineno, 0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = (".".join(filter(None, (node.module, alias.name))) for alias in node.names)
            yield from ((node.lineno, node.level, name) for name in names)
        elif isinstance(node, ast.With | ast.ClassDef):
            waiting[:0] = node.body
        elif isinstance(node, ast.Try) and not any(_forgives(handler) for handler in node.handlers):
            waiting[:0] = [*node.body, *node.orelse, *node.finalbody]


def _forgives(handler: ast.ExceptHandler) -> bool:
    named = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else _FORGIVEN
    return bool(named & _FORGIVEN)


def _files_of(place: Path, parts: list[str]) -> Iterator[Path]:
    """Yield the files that importing `a.b` from a folder runs, those of its packages included."""
    for end in range(1, len(parts) + 1):
        path = place.joinpath(*parts[:end])
        yield from (file for file in (path / "__init__.py", path.with_name(f"{path.name}.py")) if file.is_file())


def _packages_of(file: Path) -> Iterator[Path]:
    """Yield the files of the packages that a file is in, which Python runs before it."""
    for folder in file.parents:
        if not (folder / "__init__.py").is_file():
            return
        yield folder / "__init__.py"


def _is_installed(name: str) -> bool:
    try:
        return name in sys.modules or find_spec(name) is not None
    except ValueError:  # a module without a specification, which is there
        return True


def _elsewhere(name: str, importer: str, code: Code) -> Path | None:
    """Return where the folder has the module: a file up to two folders deep, or a package one folder deep. A module
    inside a package does not count (it is imported by the package's name), nor does the file that imports it."""
    folder = Path(code.folder)
    patterns = (f"*/{name}.py", f"*/*/{name}.py", f"*/{name}/__init__.py")
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        module = path if path.stem == name else path.parent
        if (
            is_users_file(path, code)
            and not hidden_folder(path, code)
            and not (module.parent / "__init__.py").exists()
            and not importer.startswith(f"{path.relative_to(folder)}:")
        ):
            return module
    return None
