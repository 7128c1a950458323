"""What the workload `memory` has found, as the rows that are stored; what it could not find, with the reason."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trials.memory_ledger import CATEGORIES, Label
from trials.record import Artifact, Measurement, Yielded
from trials.spec import Flag, TrialConfig
from trials.traced_memory import TracedHistory
from trials.tracked_memory import TrackedHistory

Readings = dict[tuple[str, str], int]
"""Phase and metric -> bytes."""

POINTS = ("baseline", "init", "before_backward", "step_end")
"""When bytes in use are read: before the model is built, after it, between forward and backward, and when the iteration
has let go of its graph and gradients.
"""

_GRAPHS = "CUDA graphs keep memory of their own, of which no tensor tells"
_COMPILED = "compiled code allocates by itself, unseen by the storage tracker; step.peak_resident is an upper bound"


def value_rows(series: Sequence[Readings]) -> Iterator[Measurement]:
    """One sample of each repetition; `unsteady` where they differ."""
    for phase, metric in series[0]:
        samples = tuple(readings[phase, metric] for readings in series)
        flags = (Flag.UNSTEADY,) if len(set(samples)) > 1 else ()
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
    config: TrialConfig, readings: Readings, labels: Mapping[int, Label], kept: Mapping[int, Label]
) -> Iterator[Measurement]:
    """What is there between forward and backward: by category, which add up to all of it; what autograd keeps, in all
    and by block.

    labels: of all that has a name; kept: of what autograd keeps, of which the batch is in labels as inputs.
    """
    phase = "before_backward"
    graphs = config.compile_mode != "default" and config.device_type == "cuda"
    named = {name: sum(label.bytes for label in labels.values() if label.category == name) for name in CATEGORIES}
    whole = readings.get((phase, "requested"), readings.get((phase, "tensors")))
    other = None if whole is None else whole - sum(named.values())
    for category in CATEGORIES[:-1]:
        yield _row(phase, category, None if graphs else named[category], _GRAPHS)
    yield _row(phase, "other", None if graphs else other, _GRAPHS if graphs else _COMPILED)
    if (phase, "allocated") in readings and whole is not None and not graphs:
        yield _row(phase, "rounding", readings[phase, "allocated"] - whole)
    saved = sum(label.bytes for label in kept.values())
    yield _row(phase, "saved", None if graphs else saved, _GRAPHS)
    if config.mode != "forward":
        yield from _block_rows(config, kept, _GRAPHS if graphs else None)


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
    config: TrialConfig, readings: Readings, history: TrackedHistory | TracedHistory | None
) -> Iterator[Yielded]:
    """What is there at the peak, by category; the largest allocations, the timeline, and CUDA's recording."""
    why = None
    if history is None:
        why = _GRAPHS if config.device_type == "cuda" else _COMPILED
    else:
        course = history.finished().course()
        metric = "peak_requested" if isinstance(history, TracedHistory) else "peak_tensors"
        if course.peak != (peak := readings["step", metric]):
            why = f"the history of the iteration comes to {course.peak} bytes, the peak was {peak}"
        yield from course.largest()
        yield from course.timeline()
    held = course.at_peak() if history and why is None else {}
    for category in CATEGORIES:
        yield _row("peak", category, held.get(category), why)
    if isinstance(history, TracedHistory):
        rounding = readings["step", "peak_allocated"] - readings["step", "peak_requested"]
        yield _row("peak", "rounding", None if why else rounding, why)
        yield Artifact(
            name="memory_snapshot.pickle", content=history.pickled(), phase="trial", metric="memory_snapshot"
        )
    elif config.device_type == "cuda":
        yield _row("trial", "memory_snapshot", None, _GRAPHS)
    else:
        no = f"PyTorch records no memory history on device {config.device_type}; see the table timelines"
        yield _row("trial", "memory_snapshot", None, no)


def _unknown(phases: Iterable[str], metric: str, reason: str) -> Iterator[Measurement]:
    for phase in phases:
        yield _row(phase, metric, None, reason)


def _row(phase: str, metric: str, value: int | None, reason: str | None = None) -> Measurement:
    """One number of bytes, or the reason why there is none."""
    samples = None if value is None else (value,)
    return Measurement(
        phase=phase, metric=metric, unit="B", samples=samples, reason=reason if samples is None else None
    )
