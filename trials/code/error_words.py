"""What the user's code raised, in words that begin with the user's file and line."""

import re
import traceback

from lmsweep.trials.code.finding import Finding, Question
from lmsweep.trials.code.importing import code_in_use
from lmsweep.trials.code.source import line_of
from lmsweep.trials.code.traceback_text import user_line
from lmsweep.trials.spec.config import RequestError, UnsupportedError
from lmsweep.trials.spec.reference import HUGGING_FACE, Code


def cannot(what: str, error: Exception, question: Question) -> Finding:
    """Return the finding that lmsweep cannot do this with the code, for what it raised."""
    return Finding(what=what, found=error_words(error, question, code_in_use()), kind="cannot")


def error_words(error: BaseException, question: Question, code: Code) -> str:
    """Return the error with the user's file and line first: where it was raised, else what the reference names."""
    said = str(error).strip() or "no message"
    if re.match(r"[^\s:]+\.py:\d+: ", said):
        return said
    cause: BaseException | None = error
    while cause is not None:
        if line := user_line(cause, code):
            return line
        cause = cause.__cause__
    kind = "" if isinstance(error, RequestError | UnsupportedError) else f"{type(error).__name__}: "
    if question.reference.startswith(HUGGING_FACE):
        return f"{kind}{said}"
    if kind and not isinstance(error, ValueError | TypeError):
        traceback.print_exception(error)
    place = line_of(question.reference, code)
    return f"{place}: {kind}{said}" if place else f"{kind}{said}"
