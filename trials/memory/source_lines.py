"""The line of this project's code that allocates a piece of memory, found from the call stack."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from lmsweep.trials.memory.ledger import END

ROOT = Path(__file__).parents[2]
PROJECT = str(ROOT / "trials")
"""Only code in this folder is attributed."""

# Files of the measurement itself, which appear on every stack and allocate nothing of their own.
_INSTRUMENTS = {"storage_tracker.py", "dispatch_history.py", "source_lines.py", "emulated_autocast.py"}

_PHASES = {"__init__": "init", "forward": "forward", "backward": "backward", "optimize": "optimizer", "drop": END}
"""Method of TrainingStep -> phase."""


class Frame(NamedTuple):
    """One level of a stack."""

    file: str
    """Path of the source file."""
    line: int
    """Line number, from 1."""
    function: str
    """Qualified name."""

    @property
    def is_ours(self) -> bool:
        """Whether it is code of this project, other than the measurement."""
        return self.file.startswith(PROJECT) and self.file.rpartition("/")[2] not in _INSTRUMENTS

    @property
    def is_step(self) -> bool:
        """Whether it is code of the training step, the origin of every allocation of an iteration."""
        return self.file.startswith(PROJECT) and self.file.endswith("/training_step.py")

    @property
    def place(self) -> str:
        """File, relative to the project, and line, such as trials/model/transformer.py:44."""
        return f"{Path(self.file).relative_to(ROOT).as_posix()}:{self.line}"


def nearest(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame of this project's code; frames come innermost first."""
    return next((frame for frame in frames if frame.is_ours), None)


def phase_of(frames: Iterable[Frame]) -> str | None:
    """The phase of the training step that the stack is in; None outside of it, such as in autograd's thread."""
    methods = (frame.function.rpartition(".")[2] for frame in frames if frame.is_step)
    return next((_PHASES[method] for method in methods if method in _PHASES), None)
