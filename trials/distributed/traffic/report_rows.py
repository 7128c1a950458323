"""The rows of what a step communicates and of what each rank holds in memory."""

from collections.abc import Iterator, Sequence
from itertools import product

from lmsweep.trials.distributed.parallel.memory_stages import PARTS, STAGES
from lmsweep.trials.distributed.traffic.step_report import StepReport
from lmsweep.trials.results.measurement import Measurement

HIDDEN = "the tensors of compiled code cannot be seen"


def report_rows(reports: Sequence[StepReport]) -> Iterator[Measurement]:
    """Rows of the collectives of rank 0, by kind and together, and of the memory of each rank; calls and bytes."""
    traffic = reports[0].traffic
    for kind, found in traffic.items():
        yield Measurement(phase=kind, metric="calls", unit="1", samples=(found.calls,))
        yield Measurement(phase=kind, metric="size", unit="B", samples=(found.size,))
        yield Measurement(phase=kind, metric="sent", unit="B", samples=(found.sent,))
    size, sent = (sum(getattr(found, name) for found in traffic.values()) for name in ("size", "sent"))
    yield Measurement(phase="communication", metric="size", unit="B", samples=(size,))
    yield Measurement(phase="communication", metric="sent", unit="B", samples=(sent,))
    for (rank, report), stage in product(enumerate(reports), STAGES):
        phase = f"rank{rank}"
        held = report.memory.get(stage)
        if held is None:
            yield Measurement(phase=phase, metric=f"{stage}_memory", unit="B", samples=None, reason=HIDDEN)
            continue
        yield Measurement(phase=phase, metric=f"{stage}_memory", unit="B", samples=(held.total,))
        for part in PARTS:
            yield Measurement(phase=phase, metric=f"{stage}_{part}", unit="B", samples=(held.parts[part],))
