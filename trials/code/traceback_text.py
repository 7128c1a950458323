"""Describes an error in the user's code: the user's file and line first, then the traceback."""

import inspect
import re
import sys
import traceback
from pathlib import Path

from lmsweep.trials.code.missing_packages import install_words, missing_packages
from lmsweep.trials.code.project import other_python
from lmsweep.trials.code.source import is_own, is_users_file
from lmsweep.trials.spec.reference import Code

_DUMPED = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)


class CodeError(Exception):
    """The user's code returned what it must not. The message begins with the file and line of what was called."""


def user_line(error: BaseException, code: Code) -> str | None:
    """Return `mine/model.py:12: ValueError: what it says` for the deepest line of the user's; None if there is none."""
    if isinstance(error, SyntaxError) and error.filename and is_users_file(error.filename, code):
        own = [(error.filename, error.lineno or 1)]
    else:
        own = [
            (frame.filename, frame.lineno or 1)
            for frame in traceback.extract_tb(error.__traceback__)
            if is_users_file(frame.filename, code)
        ]
    if not own:
        return None
    said = str(error).strip().splitlines()
    words = f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
    if isinstance(error, SyntaxError):
        words += other_python(code)
    top = (getattr(error, "name", None) or "").partition(".")[0]
    if type(error) is ModuleNotFoundError and top and not is_own(top, code):
        files = [Path(file) for file, _ in own]
        words += f"; {install_words({top, *missing_packages(files, code)}, code)}"
    return f"{_place(*own[-1], code)}: {words}"


def hung_line(stacks: str, code: Code) -> str | None:
    """Return `mine/model.py:12` for the innermost line of the user's in what faulthandler printed; None if none is."""
    for found in _DUMPED.finditer(stacks):
        if is_users_file(found["file"], code):
            return _place(found["file"], int(found["line"]), code)
    return None


def running_line(thread: int, code: Code) -> str | None:
    """Return `mine/model.py:12` for the innermost line of the user's that a thread of this process is at."""
    for frame in reversed(traceback.extract_stack(sys._current_frames().get(thread))):
        if is_users_file(frame.filename, code):
            return _place(frame.filename, frame.lineno or 1, code)
    return None


def defined_at(found: object, code: Code) -> str:
    """Return `mine/model.py:12`, where a function or class of the user's is defined; the folder if that is unknown."""
    try:
        wrapped = inspect.unwrap(found)  # type: ignore[arg-type]
        file, (_, line) = inspect.getsourcefile(wrapped), inspect.getsourcelines(wrapped)
    except (TypeError, OSError):
        return code.folder
    return _place(file, line, code) if file and is_users_file(file, code) else code.folder


def _place(file: str, line: int, code: Code) -> str:
    return f"{Path(file).resolve().relative_to(Path(code.folder).resolve())}:{line}"
