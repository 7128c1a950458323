"""A part of a sweep, so that the jobs of an array share its work."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lmsweep.trials.spec.config import RequestError, Trial


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Every `count`-th trial of a sweep. The shards of a sweep are disjoint, and together they are the sweep."""

    number: int
    """From 1 to `count`."""
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Return the shard that `3/16` names. Raises RequestError for other text."""
        found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        shard = cls(number=int(found[1]), count=int(found[2])) if found else None
        if shard is None or not 1 <= shard.number <= shard.count:
            raise RequestError(
                f"--shard {text}: write NUMBER/COUNT, as in 3/16; NUMBER goes from 1 to COUNT "
                "(in Slurm: --array=1-16 and --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT)"
            )
        return shard

    def of(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        """Return the trials of this shard. Neighbours go to different shards: they take about the same time."""
        return tuple(trials[self.number - 1 :: self.count])

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"
