"""The field `software`, and the Python with it. A feature reads the field's values and makes its environments."""

from collections.abc import Callable, Iterable
from pkgutil import resolve_name
from typing import Any

from lmsweep.orchestrator.feature import registered
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError, Trial

INSTALLED = "installed"
"""The word for what is installed where lmsweep runs: the field's value None."""


class SoftwareError(Exception):
    """The environment cannot be made. The message is the reason."""

    def __init__(self, message: str, status: Status) -> None:
        """status: unsupported, or error if another attempt may succeed."""
        super().__init__(message)
        self.status = status


def read_software(value: object) -> str | None:
    """Return what a sweep file says of the field: as `requirements_of`, or None for `installed`. Raises ValueError."""
    return None if value == INSTALLED else requirements_of(value)


def requirements_of(value: object) -> str:
    """Return requirements in the one way to write them, or the name of a file with them. Raises ValueError."""
    return str(_of_feature("requirements_of")(value))


def with_files_read(trials: tuple[Trial, ...], folder: str | None, trusted: Iterable[str]) -> tuple[Trial, ...]:
    """Return the trials with the requirements of files, in the code folder, in place of their names. Raises
    RequestError if a file cannot be read, and for a package that is neither installed nor trusted."""
    has_software = any(trial.config.software for trial in trials)
    return _of_feature("with_files_read")(trials, folder, trusted) if has_software else trials


def is_made(software: str) -> bool:
    """Return whether its environment is ready."""
    return bool(_of_feature("is_made")(software))


def interpreter_with(software: str, say: Callable[[str], None] = lambda words: None) -> str:
    """Return the Python of its environment, which is made if needed. say: reports what takes time. Raises
    SoftwareError."""
    return str(_of_feature("interpreter_with")(software, say))


def _of_feature(name: str) -> Callable[..., Any]:
    registered_here = registered("environments")
    if name not in registered_here:
        raise RequestError(f"no feature that is here makes environments of other software than {INSTALLED}")
    found: Callable[..., Any] = resolve_name(registered_here[name])
    return found
