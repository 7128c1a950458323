"""What `lmsweep check` asks about the user's code, and what it finds."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Literal

from lmsweep.trials.code.importing import code_in_use
from lmsweep.trials.code.project import syntax_of
from lmsweep.trials.code.source import DEFINITION, find_source, statements
from lmsweep.trials.code.traceback_text import user_line
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import HUGGING_FACE, Code, parse_reference

Kind = Literal["fine", "cannot", "wrong"]
"""fine; cannot: something that lmsweep cannot do with this code, and why; wrong: no trial with it can succeed."""

OURS = [Path(__file__).resolve().parents[3] / package for package in ("orchestrator", "trials")]
"""The folders of the modules that call the user's code. The folder above them may be a checkout with code of users."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Does the code that one field of a configuration refers to work?"""

    field: str
    """model_code, attention, optimizer, loss, ddp or step; or workload, then the only one of `workloads`."""
    config: TrialConfig
    workloads: tuple[str, ...]

    @property
    def reference(self) -> str:
        return self.workloads[0] if self.field == "workload" else str(getattr(self.config, self.field))


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    what: str
    found: str
    kind: Kind = "fine"


def cannot(what: str, error: BaseException) -> Finding:
    """Return the finding that lmsweep cannot do this with the code, with the error of the code or of lmsweep."""
    if is_lmsweeps(error):
        words = f"lmsweep itself failed, not your code ({type(error).__name__}: {error}); please report it"
    else:
        words = _in_code(error, code_in_use()) or f"{type(error).__name__}: {error}"
    return Finding(what=what, found=words, kind="cannot")


def is_lmsweeps(error: BaseException) -> bool:
    """Return whether an assertion or a look-up in lmsweep failed, which no code of the user's may cause."""
    frames = extract_tb(error.__traceback__)
    raised_in = Path(frames[-1].filename).resolve() if frames else Path()
    in_ours = any(map(raised_in.is_relative_to, OURS))
    return in_ours and isinstance(error, AssertionError | LookupError | AttributeError | NameError)


def error_words(error: BaseException, question: Question, code: Code) -> str:
    """Return the error with the user's file and line first: where it was raised, else what the reference names."""
    if line := _in_code(error, code):
        return line
    kind = "" if isinstance(error, RequestError | UnsupportedError) else f"{type(error).__name__}: "
    words = f"{kind}{str(error).strip() or 'no message'}"
    place = None if question.reference.startswith(HUGGING_FACE) else line_of(question.reference, code)
    return f"{place}: {words}" if place else words


def _in_code(error: BaseException, code: Code) -> str | None:
    """Return the error with the user's line that raised it, or a cause of it, first; None if no line of theirs did."""
    if re.match(r"[^\s:]+\.py:\d+: ", str(error).strip()):  # a message that begins with its line already
        return str(error).strip()
    cause: BaseException | None = error
    while cause is not None:
        if line := user_line(cause, code):
            return line
        cause = cause.__cause__
    return None


def line_of(text: str, code: Code) -> str | None:
    """Return `mine/model.py:12`, the line that defines what a reference names, if the files say."""
    reference = parse_reference(text)
    path = find_source(reference, code)
    if path is None:
        return None
    body: list[ast.stmt] = syntax_of(path).body
    for name in reference.attribute.split("."):
        definitions = [node for node in statements(body) if isinstance(node, DEFINITION) and node.name == name]
        if not definitions:
            return None
        body = definitions[-1].body
    return f"{path.resolve().relative_to(Path(code.folder).resolve())}:{definitions[-1].lineno}"
