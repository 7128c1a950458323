"""The workload `noop`: measures nothing, which leaves the overhead of a trial."""

from collections.abc import Iterator

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.results.measurement import Measurement


def measure(bench: Workbench) -> Iterator[Measurement]:
    with bench.account("measured"):
        pass
    yield Measurement(phase="step", metric="time", unit="s", samples=(bench.seconds["measured"],))
