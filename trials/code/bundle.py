"""The code folder on its way to the other machines of a cluster: packed by the driver, unpacked beside each worker.

Ray's runtime environment would put the folder on the search path of Ray's workers, where a file such as `utils.py` or
`trials/` hides what Ray and lmsweep import. Here only the process of a trial sees it.
"""

import io
import tempfile
import zipfile
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from lmsweep.trials.code.digest import source_files
from lmsweep.trials.code.git import ask_git
from lmsweep.trials.code.source import is_users_file
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.reference import Code

MAX_BYTES = 100_000_000
"""Most bytes of all files together: code is small, so a larger folder holds data or results."""
LARGEST = 3
"""Number of files that the message about too large a folder names."""


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
        largest = sorted(sizes, key=lambda path: -sizes[path])[:LARGEST]
        words = ", ".join(f"{path.relative_to(folder)} ({sizes[path] / 1e6:.0f} MB)" for path in largest)
        raise RequestError(
            f"--code {folder}: {sum(sizes.values()) / 1e6:.0f} MB would travel to each node, and at most "
            f"{MAX_BYTES / 1e6:.0f} MB may; the largest files are {words}. Name what is not code in .gitignore, or "
            "choose a smaller folder"
        )
    content = io.BytesIO()
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
    return "__pycache__" in path.parts or any((folder / parent / "pyvenv.cfg").exists() for parent in path.parents)
