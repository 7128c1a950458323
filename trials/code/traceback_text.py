"""Describes an error in the user's code: the user's file and line first, then the traceback."""

import inspect
import re
import traceback
from pathlib import Path

from lmsweep.trials.code.missing_packages import install_words, missing_packages, not_built
from lmsweep.trials.code.ownership import is_users_file
from lmsweep.trials.code.project import other_python
from lmsweep.trials.code.source import is_users_module
from lmsweep.trials.results.outcome import short_line
from lmsweep.trials.spec.reference import Code

_DUMPED = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)

_IN_SOURCE = re.compile(r"at \d+:\d+:")
"""Begins a message of Triton's compiler; an excerpt of the source, a line with `^` and, perhaps, the cause follow."""

_WITHOUT_GPU = ("0 active drivers ([])", "cannot be accessed from Triton (cpu tensor?)")
"""Triton's messages where there is no GPU, and where a tensor is not on it."""


class CodeError(Exception):
    """The user's code returned what it must not. The message begins with the file and line of what was called."""


def user_line(error: BaseException, code: Code) -> str | None:
    """Return `mine/model.py:12: ValueError: what it says` for the deepest line of the user's, if any."""
    if isinstance(error, SyntaxError) and error.filename and is_users_file(error.filename, code):
        users = [(error.filename, error.lineno or 1, "")]  # which the traceback does not have: it never ran
    else:
        frames = traceback.extract_tb(error.__traceback__)
        users = [(one.filename, one.lineno or 1, one.name) for one in frames if is_users_file(one.filename, code)]
    if not users:
        return None
    file, line, function = users[-1]
    said = said_by(error)
    words = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if isinstance(error, SyntaxError):
        words += other_python(code)  # that its project asks for another version of Python
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)  # as Python exits
        where = "while it was imported" if function == "<module>" else f"in {function}"
        words = f"exited with code {status} {where}" + (f": {said}" if isinstance(error.code, str) and said else "")
    top = (getattr(error, "name", None) or "").partition(".")[0]
    if type(error) is ImportError:
        words += not_built(said, Path(file), code)  # that the missing part is compiled by installing the project
    if type(error) is ModuleNotFoundError and top and not is_users_module(top, code):
        files = [Path(file) for file, *_ in users]
        words += f"; {install_words({top: _importer(error, code)} | missing_packages(files, code), code)}"
    return f"{_place(file, line, code)}: {words}"


def _importer(error: BaseException, code: Code) -> str:
    """Return who imports what is missing: a line of the user's, or the installed package whose file does it."""
    last = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith("<")][-1]
    if is_users_file(last.filename, code):
        return _place(last.filename, last.lineno or 1, code)
    parts = Path(last.filename).parts
    after = [index + 1 for index, part in enumerate(parts[:-1]) if part.endswith("-packages")]
    return f"the installed package {Path(parts[after[-1]]).stem}" if after else Path(last.filename).name


def what_it_says(error: BaseException) -> str:
    """Return the message of an error. A class of the user's may fail to make it."""
    try:
        return str(error).strip()
    except Exception as failure:  # noqa: BLE001 - it is the user's code that runs here
        return f"it fails to make its message: {type(failure).__name__}"


def said_by(error: BaseException) -> str:
    """Return the message of an error in one line; for a compiler's error, the cause and its line."""
    lines = what_it_says(error).splitlines() or [""]
    if isinstance(error, AssertionError) and not lines[0]:  # without a message, the asserting line says it
        return next((one.line or "" for one in traceback.extract_tb(error.__traceback__)[-1:]), "")
    if not _IN_SOURCE.match(lines[0]):  # no compiler's: the first line, with the next if it ends in a colon
        return short_line(" ".join(line.strip() for line in lines[: 2 if lines[0].endswith(":") else 1]))
    cause = error.__cause__
    # The kernel's error is caused by one in a function that it calls: that one has the line.
    if cause and cause is not error and _IN_SOURCE.match(what_it_says(cause)):
        return said_by(cause)
    # Its line, the line of a caret below that, and the error; or nothing after the caret, and the cause has the error.
    caret = max((index for index, line in enumerate(lines) if line.strip() == "^"), default=len(lines) - 1)
    words = " ".join(line.strip() for line in lines[caret + 1 :])
    words = words or (f"{type(cause).__name__}: {said_by(cause)}" if cause else lines[0])
    return f"{words}, in `{lines[caret - 1].strip()}`"


def needs_gpu(error: BaseException) -> bool:
    """Return whether an error, or one that led to it, is of Triton or torch.cuda without a GPU, or asserts one."""
    if isinstance(error, ModuleNotFoundError):
        return (error.name or "").partition(".")[0] == "triton"
    frames = traceback.extract_tb(error.__traceback__)
    if frames and "torch/cuda/" in Path(frames[-1].filename).as_posix():
        return True
    if isinstance(error, AssertionError) and "cuda" in said_by(error).lower():
        return True
    if any(words in what_it_says(error) for words in _WITHOUT_GPU):
        return True
    earlier = error.__cause__ or error.__context__
    return earlier is not None and earlier is not error and needs_gpu(earlier)


def hung_line(stacks: str, code: Code) -> str | None:
    """Return `mine/model.py:12` for the innermost line of the user's in a printed stack, its innermost call first."""
    for found in _DUMPED.finditer(stacks):
        if is_users_file(found["file"], code):
            return _place(found["file"], int(found["line"]), code)
    return None


def defined_at(found: object, code: Code) -> str:
    """Return `mine/model.py:12`, where a function or class of the user's is defined, else the folder."""
    try:
        wrapped = inspect.unwrap(found)  # type: ignore[arg-type]
        file, (_, line) = inspect.getsourcefile(wrapped), inspect.getsourcelines(wrapped)
    except (TypeError, OSError):
        return code.folder
    return _place(file, line, code) if file and is_users_file(file, code) else code.folder


def _place(file: str, line: int, code: Code) -> str:
    return f"{Path(file).resolve().relative_to(Path(code.folder).resolve())}:{line}"
