"""Describes an error in the user's code: the user's file and line first, then the traceback."""

import traceback
from pathlib import Path

from lmsweep.trials.code.source import is_users_file
from lmsweep.trials.spec.reference import Code


def user_line(error: BaseException, code: Code) -> str | None:
    """Return `mine/model.py:12: ValueError: what it says` for the deepest line of the user's; None if there is none."""
    folder = Path(code.folder).resolve()
    if isinstance(error, SyntaxError) and error.filename and is_users_file(error.filename, code):
        place = (Path(error.filename), error.lineno or 1)
    else:
        frames = traceback.extract_tb(error.__traceback__)
        own = [(Path(frame.filename), frame.lineno or 1) for frame in frames if is_users_file(frame.filename, code)]
        if not own:
            return None
        place = own[-1]
    said = str(error).strip().splitlines()
    words = f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
    return f"{place[0].resolve().relative_to(folder)}:{place[1]}: {words}"
