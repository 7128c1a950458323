"""What trials take beside and over their modelled iterations, where a store has nothing similar.

Fitted to the measured reference sets by `python -m benchmarks.trial_durations`, which also says how far sweeps are off
with durations that were fitted without them.
"""

from collections.abc import Mapping
from typing import NamedTuple

from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS


class Duration(NamedTuple):
    """The seconds of a workload, as a function of the modelled time of its iterations."""

    setup: float
    """Set-up and compilation, with the graph in the compiler's cache."""
    base: float
    """Seconds of the iterations, however short they are."""
    slope: float
    """Seconds per modelled second of iterations: profiling again, and a host slower than the model's."""


Durations = Mapping[tuple[str, bool], Duration]
"""Workload and whether the trial compiles -> its duration; the workload "" stands for all others."""

ON_GPU: Durations = {
    ("", False): Duration(setup=1.43, base=0.09, slope=1.26),
    ("", True): Duration(setup=3.45, base=0.34, slope=1.0),
    ("attention", False): Duration(setup=0.49, base=0.21, slope=1.01),
    ("attention", True): Duration(setup=0.73, base=0.16, slope=0.32),
    ("ceiling", False): Duration(setup=2.16, base=0.12, slope=0.0),
    ("collectives", False): Duration(setup=2.56, base=0.13, slope=1.0),
    ("ddp", False): Duration(setup=2.99, base=17.74, slope=1.0),
    ("ddp", True): Duration(setup=29.9, base=0.07, slope=1.87),
    ("energy", True): Duration(setup=0.12, base=0.43, slope=0.86),
    ("loss", False): Duration(setup=3.16, base=0.0, slope=1.42),
    ("loss", True): Duration(setup=3.24, base=0.04, slope=1.7),
    ("memory", False): Duration(setup=0.69, base=0.0, slope=0.71),
    ("memory", True): Duration(setup=0.86, base=0.07, slope=0.11),
    # `profile` by hand, after one H200's trials: the sets are of older code (docs/lab/2026-11-26-durations.md).
    ("profile", False): Duration(setup=0.01, base=0.0, slope=0.9),
    ("profile", True): Duration(setup=0.01, base=0.1, slope=0.1),
    ("timing", False): Duration(setup=0.58, base=1.26, slope=1.05),
    ("timing", True): Duration(setup=1.99, base=0.28, slope=1.19),
}

# Of machines with 2 and 16 cores, docs/lab/2026-11-26-durations.md.
ON_CPU: Durations = {
    ("", False): Duration(setup=0.3, base=0.15, slope=1.2),
    ("", True): Duration(setup=3.0, base=0.15, slope=1.2),
    ("precision", False): Duration(setup=0.8, base=0.2, slope=3.3),
}

FLOAT8_SECONDS = 5.0
"""Longer compilation of a step in float8, which torchao rewrites."""


def duration_of(config: TrialConfig, workload: str, on_gpu: Durations = ON_GPU) -> Duration:
    durations = on_gpu if config.takes_gpus else ON_CPU
    names = ((name, compiles) for name in (workload, "") for compiles in (config.compiles, False))
    found = next(durations[name] for name in names if name in durations)
    if config.compiles and config.precision in FLOAT8_PRECISIONS:
        return found._replace(setup=found.setup + FLOAT8_SECONDS)
    return found
