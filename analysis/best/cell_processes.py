"""What the processes of a cell measured, and how far that is from the true value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lmsweep.trials.statistics.variation import PRIORS, Kind, Variation, centre, error_of_centre, moderated


class Error(NamedTuple):
    """How far the logarithm of a measured value is from the true one."""

    deviation: float
    """Its standard error."""
    freedom: float
    """Degrees of freedom of the standard error; 0: it is known."""


@dataclass(frozen=True, kw_only=True)
class Processes:
    logs: tuple[float, ...]
    """The logarithm of the median of each process."""
    within: float
    """Standard error of such a logarithm by the samples of one process."""
    kind: Kind

    @property
    def centre(self) -> float:
        return float(centre(np.array(self.logs)))

    def error(self, variation: Variation) -> Error:
        """Return the error of `centre`."""
        count = len(self.logs)
        own = float(np.var(self.logs, ddof=1)) if count > 1 else 0.0
        numbers = (np.array(float(one)) for one in (own, count - 1, variation.scale, variation.freedom))
        deviation, freedom = moderated(*numbers)
        error = np.hypot(deviation, self.within) * error_of_centre(np.array(float(count)))
        return Error(float(error), float(freedom))


def variations_of(cells: Sequence[Processes], priors: Mapping[Kind, Variation] = PRIORS) -> dict[Kind, Variation]:
    """Return the variation between processes of each kind, after the repetitions of these cells."""
    squares = dict.fromkeys(priors, 0.0)
    freedom = dict.fromkeys(priors, 0.0)
    for one in cells:
        if len(one.logs) > 1:
            squares[one.kind] += float(np.var(one.logs) * len(one.logs))
            freedom[one.kind] += len(one.logs) - 1
    return {kind: prior.updated(squares[kind], freedom[kind]) for kind, prior in priors.items()}
