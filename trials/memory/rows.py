"""The rows of the workload `memory`: bytes or, where they are unknown, the reason."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from lmsweep.trials.machine.gpu.accelerator import counts_memory, device_module
from lmsweep.trials.memory.allocation_history import TracedHistory, TrackedHistory
from lmsweep.trials.memory.allocation_log import CATEGORIES, Label
from lmsweep.trials.memory.meter import ResidentBytes
from lmsweep.trials.memory.usage import Usage
from lmsweep.trials.results.measurement import Artifact, Measurement, Residual, Yielded, one_number
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.offloads import OFFLOADS

Readings = dict[tuple[str, str], int]
"""(phase, metric) -> bytes."""

POINTS = ("baseline", "init", "before_backward", "step_end")
"""When bytes in use are read: before and after the step is built, after forward, and after an iteration."""

_GRAPHS = "CUDA graphs use a private memory pool, which no tensor represents"
_NO_HISTORY = "PyTorch's allocator on device {} is read without a history of allocations"
_COMPILED = "the storage tracker does not see allocations of compiled code; step.peak_resident is an upper bound"


def value_rows(series: Sequence[Readings], *, alike: bool = True) -> Iterator[Measurement]:
    """One sample for each repetition; `unsteady` if they should be `alike` and differ. Allocated and reserved bytes
    depend on the cache of CUDA's allocator, so the requested bytes are compared for them, where they are known."""
    for phase, metric in series[0]:
        requested = (phase, re.sub("allocated|reserved", "requested", metric))
        compared = requested if requested in series[0] else (phase, metric)
        flags = (Flag.UNSTEADY,) if alike and len({readings[compared] for readings in series}) > 1 else ()
        samples = tuple(readings[phase, metric] for readings in series)
        yield Measurement(phase=phase, metric=metric, unit="B", samples=samples, flags=flags)


def run_rows(config: TrialConfig, series: Sequence[Readings]) -> Iterator[Measurement]:
    """The peaks of all steps, and how often the allocator gave its cache back and tried again."""
    for phase, metric in series[0]:
        if phase == "step":
            yield one_number("run", metric, "B", max(readings[phase, metric] for readings in series))
    device = config.device_type
    if not counts_memory(device):
        why = f"PyTorch does not count what it allocates on device {device}"
        yield from _unknown(["run"], "peak_allocated", why)
        yield from _unknown(["run"], "peak_reserved", why)
    retries = device_module(device).memory_stats().get("num_alloc_retries") if counts_memory(device) else None
    yield one_number("run", "alloc_retries", "1", retries, f"device {device} has no allocator with a cache")


def unknown_rows(config: TrialConfig, phases: Sequence[str]) -> Iterator[Measurement]:
    device = config.device_type
    if counts_memory(device):
        return
    peaks = [*phases, "step"]
    for metric in ("allocated", "reserved"):
        if device == "mps":
            why = "device mps does not count a peak; its readings between phases are lower bounds"
        else:
            why = f"PyTorch does not count what it allocates on device {device}"
            yield from _unknown(POINTS, metric, why)
        yield from _unknown(peaks, f"peak_{metric}", why)
    if config.compiles:
        yield from _unknown(POINTS, "tensors", _COMPILED)
        yield from _unknown(peaks, "peak_tensors", _COMPILED)


def resident_rows(before: ResidentBytes | None, after: ResidentBytes | None) -> Iterator[Measurement]:
    """Resident memory of this process on the host, including libraries: before the trial, and its peak."""
    why = "resident memory is read from {} in Linux's /proc/self/status, which is not there"
    yield _row("baseline", "resident", before and before.now, why.format("VmRSS"))
    yield _row("step", "peak_resident", after and after.peak, why.format("VmHWM"))


def breakdown_rows(
    config: TrialConfig,
    blocks: int,
    readings: Readings,
    labels: Mapping[int, Label],
    kept: Mapping[int, Label],
    usage: Usage | None,
) -> Iterator[Measurement]:
    """Bytes before backward and at the peak, by category; and the bytes that autograd saves, in all and by block.
    blocks: number of the model's repeated layers. labels: of all storages in use before backward; kept: of those that
    autograd saves. usage: of the recorded allocations; None where none were recorded (CUDA graphs, other devices), and
    bytes before backward come from `labels`."""
    why = _why_unlabelled(config)
    if usage:
        read = {metric: size for (phase, metric), size in readings.items() if phase == "before_backward"}
        yield from _parts("before_backward", read, usage.before_backward())
        at_peak = {metric.removeprefix("peak_"): size for (phase, metric), size in readings.items() if phase == "step"}
        yield from _parts("peak", at_peak, usage.at_peak())
    else:
        named = {name: sum(label.bytes for label in labels.values() if label.category == name) for name in CATEGORIES}
        for category in CATEGORIES:
            known = bool(labels) and category not in ("workspace", "other")  # memory that no tensor of the step has
            yield _row("before_backward", category, named[category] if known else None, why)
        for category in CATEGORIES:
            yield _row("peak", category, None, why)
    saved = sum(label.bytes for label in kept.values())
    yield _row("before_backward", "saved", saved if labels else None, why)
    if config.mode != "forward":
        yield from _block_rows(blocks, kept, _why_no_blocks(config) if labels else why)


def _why_unlabelled(config: TrialConfig) -> str:
    if config.device_type == "cuda":
        return _GRAPHS
    return _NO_HISTORY.format(config.device_type) if counts_memory(config.device_type) else _COMPILED


def _parts(phase: str, read: Mapping[str, int], held: Mapping[str, int]) -> Iterator[Measurement]:
    """Divide what was read, by metric, into what each category held."""
    on_cuda = "requested" in read
    whole = read["requested" if on_cuda else "tensors"]
    total = sum(held.values())
    is_whole = total == whole
    why = f"the recorded allocations add up to {total} bytes, not the {whole} that were read"
    for category in CATEGORIES:
        yield _row(phase, category, held[category] if is_whole else None, why)
    if on_cuda:
        yield _row(phase, "rounding", read["allocated"] - whole if is_whole else None, why)


def _why_no_blocks(config: TrialConfig) -> str | None:
    if config.checkpointing != "none":
        return "checkpointing saves only the inputs of groups of blocks, outside of the blocks"
    if OFFLOADS[config.offload].saved:
        return "what blocks save is in the host's memory"
    return f"compile: {config.compile} compiles all blocks into one graph" if config.compilation.whole else None


def _block_rows(count: int, kept: Mapping[int, Label], why: str | None) -> Iterator[Measurement]:
    blocks: list[int | None] = [*range(count), None]
    for block in blocks:
        held = sum(label.bytes for label in kept.values() if label.block == block)
        name = "outside_blocks" if block is None else f"block{block}"
        yield _row(name, "saved", None if why else held, why)


def residual_rows(kept: Mapping[int, Label]) -> list[Residual]:
    """Return the tensors that the first block saves for backward, equal ones counted together, the largest sum first.
    kept: the labels of what autograd saves. A storage that is saved several times is one residual, so the rows add up
    to the block's `saved`. Weights are left out; their casts are not."""
    first = min((label.block for label in kept.values() if label.block is not None), default=None)
    if first is None:
        return []
    count = Counter((label.tensor, label.bytes) for label in kept.values() if label.block == first and label.tensor)
    order = sorted(count, key=lambda kind: -kind[1] * count[kind])
    return [
        Residual(rank=rank, block=first, bytes=size, count=count[tensor, size], **asdict(tensor))
        for rank, (tensor, size) in enumerate(order, start=1)
    ]


def history_rows(
    config: TrialConfig, history: TrackedHistory | TracedHistory | None, usage: Usage | None
) -> Iterator[Yielded]:
    """The largest allocations, the timeline, and PyTorch's memory snapshot on CUDA."""
    if usage:
        yield from usage.largest()
        yield from usage.timeline()
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
    return one_number(phase, metric, "B", value, reason)
