"""The Python with a trial's `software`. A feature makes its environment."""

from collections.abc import Callable
from pkgutil import resolve_name

from lmsweep.orchestrator.feature import registered
from lmsweep.trials.results.outcome import Status


class SoftwareError(Exception):
    """The environment cannot be made. The message is the reason."""

    def __init__(self, message: str, status: Status) -> None:
        """status: unsupported, or error if another attempt may succeed."""
        super().__init__(message)
        self.status = status


def is_made(software: str) -> bool:
    """Return whether its environment is ready."""
    of_feature = registered("environments").get("is_made")
    return of_feature is not None and bool(resolve_name(of_feature)(software))


def interpreter_with(software: str, say: Callable[[str], None] = lambda words: None) -> str:
    """Return its environment's Python, made if need be. say: reports what takes time. Raises SoftwareError."""
    of_feature = registered("environments").get("interpreter_with")
    if of_feature is None:
        raise SoftwareError(f"no feature that is here makes the environment {software}", Status.UNSUPPORTED)
    return str(resolve_name(of_feature)(software, say))
