"""The state of the user's code: a digest over its source files, its git revision, and the folder as an archive."""

import hashlib
import importlib.metadata
import io
import tempfile
import zipfile
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from lmsweep.trials.code.git import ask_git, has_changes
from lmsweep.trials.code.ownership import is_users_file
from lmsweep.trials.code.source import find_source, imported_names, is_reserved, parse, roots, trusted_packages
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.reference import HUGGING_FACE, Code, is_reference, parse_reference

SUFFIXES = frozenset((".py", ".pyx", ".cu", ".cuh", ".cpp", ".cc", ".c", ".h", ".hpp", ".metal"))
"""Suffixes of source files."""


def code_digest(references: tuple[str, ...], code: Code | None) -> str | None:
    """Return 16 hexadecimal digits that change with the code that a trial uses; None if it uses none of the user's.

    They cover every source file of the top-level packages that the references name, and of those in the code folder
    that these import. Of an installed package they cover the version. Raises RequestError if a reference leads nowhere.
    """
    if not references or code is None:
        return None
    digest = hashlib.sha256()
    for line in sorted({line for text in references for line in _state_of(text, code)}):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()[:16]


def source_files(text: str, code: Code) -> list[Path]:
    """Return the user's files that a reference's digest covers. Raises RequestError if it leads nowhere."""
    if text.startswith(HUGGING_FACE):
        path = Path(code.folder, text.removeprefix(HUGGING_FACE))
        return [file for file in (path, path / "config.json") if file.is_file()]
    path_of_source = find_source(parse_reference(text), code) if is_reference(text) else None
    return sorted(_files(path_of_source, code)) if path_of_source else []


def code_folder(folder: str | Path, trusted: Iterable[str] = ()) -> Code:
    """Return the folder as code, with its git revision. Raises RequestError if there is no such folder."""
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        raise RequestError(f"--code {folder}: there is no such folder")
    revision = ask_git(path, "rev-parse", "HEAD")
    return Code(
        folder=str(path),
        trusted=tuple(sorted(trusted)),
        revision=revision.strip() if revision else None,
        dirty=has_changes(path) if revision else None,
    )


def _state_of(text: str, code: Code) -> list[str]:
    content = [_line(file, code) for file in source_files(text, code)]
    if text.startswith(HUGGING_FACE):
        return [f"transformers {_version('transformers')}", *content]
    if is_reference(text) and not content:  # it leads to an installed package
        top = parse_reference(text).where.partition(".")[0]
        return [f"{top} {_version(top)}"]
    return content


def _files(path: Path, code: Code) -> set[Path]:
    """The source files of the top-level package of a file, of the user's packages that these import, and so on."""
    top = path  # the folder of the top-level package, if it belongs to one
    while (top.parent / "__init__.py").exists() and top.parent not in roots(code):
        top = top.parent
    files: set[Path] = set()
    seen = {top}  # packages and modules
    waiting = [top]
    while waiting:
        place = waiting.pop()
        in_place = _source_files_in(place) if place.is_dir() else {place}
        for file in in_place - files:
            imported = {at for name in _imported_names(file, code) for at in _places(name, file, code)} - seen
            seen |= imported
            waiting += imported
        files |= in_place
    return files


def _source_files_in(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if file.suffix in SUFFIXES and file.is_file()}


def _imported_names(file: Path, code: Code) -> set[str]:
    """The top-level names that a file imports, without those of Python, lmsweep and trusted packages."""
    tree = parse(file) if file.suffix == ".py" else None
    names = {*imported_names(tree)} if tree else set()
    return {name for name in names if not is_reserved(name) and name not in trusted_packages(code)}


def _places(name: str, importer: Path, code: Code) -> list[Path]:
    """The user's packages and modules that this name may mean. A script imports its neighbours."""
    places = [root / each for root in (*roots(code), importer.parent) for each in (name, f"{name}.py")]
    return [place for place in places if place.exists()]


def _line(file: Path, code: Code) -> str:
    shown = file.relative_to(code.folder) if file.is_relative_to(code.folder) else file
    return f"{shown} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def _version(package: str) -> str:
    try:
        names = importlib.metadata.packages_distributions().get(package, [package])
        return " ".join(importlib.metadata.version(name) for name in names)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


# The code folder on its way to the other machines of a cluster: packed by the driver, unpacked beside each worker.
# Ray's runtime environment would put the folder on the search path of Ray's workers, where a file such as `utils.py`
# or `trials/` hides what Ray and lmsweep import. Here only the process of a trial sees it.

MAX_BYTES = 100_000_000
"""Maximum bytes of all files in total: code is small, so a larger folder holds data or results."""
FILES_NAMED = 3
"""Number of the largest files that the message about too large a folder names."""


def pack(code: Code, references: Iterable[str]) -> bytes:
    """Return a zip archive of what git would keep of the code folder, and of the source files of these references.

    Raises RequestError if the files are too large, or if git is missing and there is a .gitignore.
    """
    folder = Path(code.folder)
    named = chain.from_iterable(source_files(text, code) for text in references)
    files = {
        path
        for path in (*_kept_by_git(folder), *named)
        if path.is_file() and is_users_file(path, code) and not _is_made(path.relative_to(folder), folder)
    }
    sizes = {path: path.stat().st_size for path in files}
    if sum(sizes.values()) > MAX_BYTES:
        largest = sorted(sizes, key=lambda path: -sizes[path])[:FILES_NAMED]
        words = ", ".join(f"{path.relative_to(folder)} ({sizes[path] / 1e6:.0f} MB)" for path in largest)
        raise RequestError(
            f"--code {folder}: {sum(sizes.values()) / 1e6:.0f} MB would travel to each node, and at most "
            f"{MAX_BYTES / 1e6:.0f} MB may; the largest files are {words}. Name what is not code in .gitignore, or "
            "choose a smaller folder"
        )
    content = io.BytesIO()
    # strict_timestamps=False: also files dated before 1980, where zip's dates begin.
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for path in sorted(files):
            archive.write(path, path.relative_to(folder))
    return content.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    """Write the files of an archive into an empty folder."""
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        packed.extractall(folder)


def _kept_by_git(folder: Path) -> list[Path]:
    """Return the files that git tracks or would add, also where the folder is not under git."""
    found = ask_git(folder, "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", ".")
    if found is None:
        with tempfile.TemporaryDirectory() as empty:
            if ask_git(Path(empty), "init", "--quiet", "--bare") is not None:
                options = (f"--git-dir={empty}", f"--work-tree={folder}")
                found = ask_git(folder, *options, "ls-files", "--others", "--exclude-standard", "-z")
    if found is not None:
        return [folder / name for name in found.split("\0") if name]
    if any(folder.rglob(".gitignore")):
        raise RequestError(f"--code {folder}: there is a .gitignore, and git, which can read it, is not installed here")
    return [path for path in folder.rglob("*") if ".git" not in path.relative_to(folder).parts]


def _is_made(path: Path, folder: Path) -> bool:
    """Whether a tool made the file: Python its bytecode, venv an environment."""
    return "__pycache__" in path.parts or any((folder / parent / "pyvenv.cfg").exists() for parent in path.parents)
