"""The line of code that allocates a piece of memory, found from the call stack: lmsweep's, or the user's."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from lmsweep.trials.memory.allocation_log import END
from lmsweep.trials.spec.reference import Code

ROOT = Path(__file__).parents[2]
PROJECT = f"{ROOT}/trials/"

# Files of the measurement itself, which appear on every stack and allocate nothing of their own.
_INSTRUMENTS = {"storage_tracker.py", "allocation_history.py", "source_lines.py", "labels.py", "cuda_autocast.py"}

_PHASES = {"__init__": "init", "forward": "forward", "backward": "backward", "optimize": "optimizer", "drop": END}
"""Method of TrainingStep -> phase."""


class Frame(NamedTuple):
    file: str
    """Path of the source file."""
    line: int
    function: str
    """Qualified name."""

    @property
    def is_step(self) -> bool:
        """Whether it is code of the training step, the origin of every allocation of an iteration."""
        return self.file.startswith(PROJECT) and self.file.endswith("/training_step.py")


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The code whose lines are named: this project's and, if the trial has any, the user's."""

    code: Code | None = None
    packages: tuple[str, ...] = ()
    """Folders of installed packages that define the model."""

    @classmethod
    def of(cls, code: Code | None, *, is_hugging_face: bool = False) -> "Sources":
        """The sources of a trial. The layers of a Hugging Face model are in the package transformers."""
        names = [*(code.trusted if code else ()), *(["transformers"] if is_hugging_face else [])]
        found = [find_spec(name) for name in names]
        folders = [folder for one in found if one for folder in one.submodule_search_locations or ()]
        return cls(code=code, packages=tuple(f"{folder}/" for folder in folders))

    def nearest(self, frames: Iterable[Frame]) -> Frame | None:
        """The innermost frame whose line is named; frames come innermost first."""
        return next((frame for frame in frames if self._is_named(frame.file)), None)

    def location(self, frame: Frame | None) -> dict[str, Any]:
        """The fields `line` and `function` of a row. A line is trials/loss.py:4, relative to the project, the code
        folder or the installed packages."""
        if frame is None:
            return {"line": None, "function": None}
        path = Path(frame.file)
        roots = [*([Path(self.code.folder)] if self.code else []), ROOT, *(Path(one).parent for one in self.packages)]
        shown = next((path.relative_to(root) for root in roots if path.is_relative_to(root)), path)
        return {"line": f"{shown.as_posix()}:{frame.line}", "function": frame.function}

    def _is_named(self, file: str) -> bool:
        if file.startswith(PROJECT):
            return file.rpartition("/")[2] not in _INSTRUMENTS
        if self.packages and file.startswith(self.packages):
            return True
        is_installed = "-packages/" in file  # site-packages or dist-packages, which may be in the user's folder
        return self.code is not None and not is_installed and file.startswith(f"{self.code.folder}/")


def python_stack() -> Iterator[Frame]:
    """The stack of the caller, innermost first."""
    frame = sys._getframe(1)
    while frame:
        yield Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
        frame = frame.f_back  # type: ignore[assignment]


def phase_of(frames: Iterable[Frame]) -> str | None:
    """The phase of the training step that the stack is in; None outside of it, such as in autograd's thread."""
    methods = (frame.function.rpartition(".")[2] for frame in frames if frame.is_step)
    return next((_PHASES[method] for method in methods if method in _PHASES), None)
