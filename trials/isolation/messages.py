"""The messages between client, trial server and child: what is asked for, and how it ended."""

from dataclasses import dataclass

from lmsweep.trials.distributed.ranks.ranks import Part
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.record import Attempt
from lmsweep.trials.spec.config import TrialConfig


@dataclass(frozen=True, kw_only=True)
class Request:
    attempt: Attempt
    fallback: Fingerprint
    """The expected environment, for the rows of a child that dies before it has determined it."""
    requested_at: float
    """time.monotonic()."""
    keep: bool = False
    """Whether to prepare the child for another trial afterwards."""
    part: Part | None = None
    """The ranks on this machine; None if all ranks are."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The child's last message about a request."""

    reusable: bool


@dataclass(frozen=True, kw_only=True)
class PrecompileRequest:
    """Graphs to compile before the trials that need them."""

    configs: tuple[TrialConfig, ...]
    """Of these trials, the next one first."""
    environment_id: str
    """The environment they will run in. Graphs that were compiled for it before are skipped."""
    sharers: int
    """Number of servers, including this one, that share the cache and the work."""
    most: int
    """Most graphs that all of them compile now: those of the first trials whose graph is missing."""

    @property
    def longest(self) -> float:
        return max(config.timeout_seconds for config in self.configs)


@dataclass(frozen=True, kw_only=True)
class Precompiled:
    graphs: int
    """Graphs that this server began to compile. The others were in the cache, or another server compiles them."""
    seconds: float
