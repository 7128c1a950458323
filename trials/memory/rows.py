"""What the workload `memory` has found, as the rows that are stored; what it could not find, with the reason."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lmsweep.trials.memory.cuda_history import TracedHistory
from lmsweep.trials.memory.dispatch_history import TrackedHistory
from lmsweep.trials.memory.ledger import CATEGORIES, Course, Label
from lmsweep.trials.results.measurement import Artifact, Measurement, Yielded
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig

Readings = dict[tuple[str, str], int]
"""Phase and metric -> bytes."""

POINTS = ("baseline", "init", "before_backward", "step_end")
"""When bytes in use are read: before the model is built, after it, between forward and backward, and when the iteration
has let go of its graph and gradients.
"""

_GRAPHS = "CUDA graphs keep memory of their own, of which no tensor tells"
_COMPILED = "compiled code allocates by itself, unseen by the storage tracker; step.peak_resident is an upper bound"


def value_rows(series: Sequence[Readings]) -> Iterator[Measurement]:
    """One sample of each repetition; `unsteady` where they differ.

    Which of its free blocks CUDA's allocator hands out, and so how large a block is, varies with its cache, while the
    program does the same: whether repetitions agree is judged by what was requested.
    """
    for phase, metric in series[0]:
        asked = (phase, re.sub("allocated|reserved", "requested", metric))
        judged = asked if asked in series[0] else (phase, metric)
        flags = (Flag.UNSTEADY,) if len({readings[judged] for readings in series}) > 1 else ()
        samples = tuple(readings[phase, metric] for readings in series)
        yield Measurement(phase=phase, metric=metric, unit="B", samples=samples, flags=flags)


def unknown_rows(config: TrialConfig, phases: Sequence[str]) -> Iterator[Measurement]:
    """What this device cannot tell of these phases, and why."""
    device = config.device_type
    if device == "cuda":
        return
    peaks = [*phases, "step"]
    for metric in ("allocated", "reserved"):
        why = f"PyTorch does not count what it allocates on device {device}"
        if device == "mps":
            why = "device mps keeps no peak; the readings of it at the boundaries are lower bounds"
        else:
            yield from _unknown(POINTS, metric, why)
        yield from _unknown(peaks, f"peak_{metric}", why)
    if config.compiles:
        yield from _unknown(POINTS, "tensors", _COMPILED)
        yield from _unknown(peaks, "peak_tensors", _COMPILED)


def resident_rows(before: tuple[int, int] | None, after: tuple[int, int] | None) -> Iterator[Measurement]:
    """The host's memory that this process has when it begins, and the most it has had: all of it, with libraries."""
    why = "only Linux tells how much memory a process has and has had (VmRSS and VmHWM in /proc/self/status)"
    yield _row("baseline", "resident", before and before[0], why)
    yield _row("step", "peak_resident", after and after[1], why)


def breakdown_rows(
    config: TrialConfig,
    readings: Readings,
    labels: Mapping[int, Label],
    kept: Mapping[int, Label],
    course: Course | None,
) -> Iterator[Measurement]:
    """What is there between forward and backward and at the peak, by category: they add up to all of it. And what
    autograd keeps, in all and by block.

    labels: of all that has a name between forward and backward, which is what is known without a course; kept: of what
    autograd keeps, of which the batch is in labels as inputs.
    """
    why = _GRAPHS if config.device_type == "cuda" else _COMPILED
    if course:
        yield from _parts("before_backward", "", readings, course.before_backward())
        yield from _parts("step", "peak_", readings, course.at_peak())
    else:
        named = {name: sum(label.bytes for label in labels.values() if label.category == name) for name in CATEGORIES}
        for category in CATEGORIES:
            known = labels and category not in ("workspace", "other")
            yield _row("before_backward", category, named[category] if known else None, why)
        for category in CATEGORIES:
            yield _row("peak", category, None, why)
    saved = sum(label.bytes for label in kept.values())
    yield _row("before_backward", "saved", saved if labels else None, why)
    if config.mode != "forward":
        yield from _block_rows(config, kept, None if labels else why)


def _parts(read_at: str, prefix: str, readings: Readings, held: Mapping[str, int]) -> Iterator[Measurement]:
    """The parts of what was read, which is prefix + metric of the phase `read_at`."""
    phase = "peak" if prefix else read_at
    on_cuda = (read_at, f"{prefix}requested") in readings
    whole = readings[read_at, prefix + ("requested" if on_cuda else "tensors")]
    total = sum(held.values())
    why = None if total == whole else f"the history of the iteration comes to {total} bytes, {whole} were read"
    for category in CATEGORIES:
        yield _row(phase, category, None if why else held[category], why)
    if on_cuda:
        yield _row(phase, "rounding", None if why else readings[read_at, f"{prefix}allocated"] - whole, why)


def _block_rows(config: TrialConfig, kept: Mapping[int, Label], why: str | None) -> Iterator[Measurement]:
    if config.checkpointing != "none":
        why = why or "checkpointing keeps the inputs of groups of blocks, outside of them, and nothing else of them"
    elif config.compile == "model":
        why = why or "compile: model makes one graph of all blocks"
    blocks: list[int | None] = [*range(config.num_layers or 0), None]
    for block in blocks:
        held = sum(label.bytes for label in kept.values() if label.block == block)
        name = "outside_blocks" if block is None else f"block{block}"
        yield _row(name, "saved", None if why else held, why)


def history_rows(
    config: TrialConfig, history: TrackedHistory | TracedHistory | None, course: Course | None
) -> Iterator[Yielded]:
    """The largest allocations, the timeline, and CUDA's recording."""
    if course:
        yield from course.largest()
        yield from course.timeline()
    if isinstance(history, TracedHistory):
        yield Artifact(
            name="memory_snapshot.pickle", content=history.pickled(), phase="trial", metric="memory_snapshot"
        )
    else:
        no = f"PyTorch records no memory history on device {config.device_type}; see the table timelines"
        yield _row("trial", "memory_snapshot", None, _GRAPHS if config.device_type == "cuda" else no)


def _unknown(phases: Iterable[str], metric: str, reason: str) -> Iterator[Measurement]:
    for phase in phases:
        yield _row(phase, metric, None, reason)


def _row(phase: str, metric: str, value: int | None, reason: str | None = None) -> Measurement:
    """One number of bytes, or the reason why there is none."""
    samples = None if value is None else (value,)
    return Measurement(
        phase=phase, metric=metric, unit="B", samples=samples, reason=reason if samples is None else None
    )
