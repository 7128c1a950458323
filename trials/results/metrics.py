"""The registry of metrics: unit, the workloads that store each, how others are derived, and how units are printed.

A value is `phase.metric`, such as `step.time`. Workloads of the user's may store further metrics.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

ITERATED = ("timing", "attention", "loss", "ddp", "collectives", "ceiling", "energy", "memory", "profile", "busy")
"""Workloads that repeat iterations."""
MEMORY_PARTS = ("weights", "gradients", "optimizer_state", "activations", "inputs", "workspace", "other")
RANK_PARTS = ("weights", "gradients", "optimizer_state", "activations", "inputs", "communication", "other")
Stage = Literal["init", "before_step", "after_step", "peak"]
STAGES: tuple[Stage, ...] = get_args(Stage)
"""Moments at which a rank's memory is counted."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    unit: str
    """Stored unit; SI, except degC. `share` is a fraction of 1."""
    workloads: tuple[str, ...] = ()
    """Those that store it; none if it is derived."""
    derived_from: str | None = None
    """The stored metric that it is computed from when results are loaded."""
    is_rate: bool = False
    """Whether it is work / time, so that the low end of the time is the high end of the rate."""
    counts_flops: bool = False
    """Whether it depends on the convention by which FLOPs are counted."""
    is_difference: bool = False
    """Whether it is a difference, which may be below 0."""


def _stored(unit: str, names: Iterable[str], *workloads: str) -> dict[str, Metric]:
    return dict.fromkeys(names, Metric(unit=unit, workloads=workloads))


METRICS: Mapping[str, Metric] = {
    **_stored("s", ["time_std"], "timing", "attention"),  # of published numbers
    **_stored("s", ["time"], "timing", "attention", "loss", "ddp", "collectives", "ceiling", "noop"),
    **_stored("s", ["device_time", "enqueue_time"], "timing", "attention", "ddp"),
    **_stored("s", ["mean_time", "p99_time", "token_time", "recompile_time"], "timing", "ddp"),
    **_stored("1", ["real_tokens", "padded_tokens"], "timing", "ddp"),
    **_stored("share", ["padding"], "timing", "ddp"),
    **_stored("tokens/s", ["real_tokens_per_second", "padded_tokens_per_second"], "timing", "ddp"),
    **_stored("1", ["alloc_retries"], "memory"),
    "device_gap": Metric(unit="s", workloads=("timing",), is_difference=True),
    **_stored("s", ["latency"], "attention"),
    **_stored("s", ["compile_time", "setup_time", "checked_time", "warmup_time"], *ITERATED, "precision", "noop"),
    **_stored("s", ["measured_time", "profiled_time", "precompile_time"], *ITERATED, "precision", "noop"),
    **_stored("s", ["busy_time"], "busy", "ddp", "timing"),
    **dict.fromkeys(["exposed_time", "overlap_time"], Metric(unit="s", workloads=("ddp",), is_difference=True)),
    **_stored("s", ["local_step_time", "skew"], "ddp"),
    **_stored("s", ["kernel_time"], "profile"),
    **_stored("share", ["kernel_share"], "profile"),
    **_stored("FLOP", ["flops"], "timing"),
    **_stored("1", ["graphs", "graph_breaks", "recompiles", "cache_hits", "cache_misses"], "timing"),
    **_stored("1", ["saved_share"], *ITERATED),
    **_stored("1", ["event_reasons"], "timing"),
    **_stored("Hz", ["sm_clock", "memory_clock"], "timing"),
    **_stored("W", ["power"], "timing"),
    **_stored("degC", ["temperature"], "timing"),
    **_stored("J", ["energy"], "energy"),
    **_stored("FLOP/s", ["flops_rate"], "ceiling"),
    **_stored("B/s", ["bandwidth"], "ceiling"),
    **_stored("B/s", ["algorithm_bandwidth", "bus_bandwidth"], "collectives", "ddp"),
    **_stored("B", ["size"], "collectives", "ddp"),
    **_stored("B", ["sent"], "ddp"),
    **_stored("1", ["calls", "collectives"], "ddp"),
    **_stored("1", ["output", "gradient"], "timing", "attention"),
    **_stored("1", ["relative_error"], "precision", "ddp"),
    **_stored("1", ["underflow"], "precision"),
    **_stored("B", ["trace"], "profile", "ddp"),
    **_stored("B", ["memory_snapshot", "saved", "rounding"], "memory"),
    **_stored("B", ["allocated", "peak_allocated"], "memory", "attention", "loss", "ddp"),
    **_stored("B", ["requested", "reserved", "tensors", "resident"], "memory", "loss"),
    **_stored("B", ["peak_requested", "peak_reserved", "peak_tensors", "peak_resident"], "memory", "loss"),
    **_stored("B", [f"{at}_{part}" for at in STAGES
                    for part in ("memory", *RANK_PARTS)], "ddp"),
    **_stored("B", MEMORY_PARTS, "memory", "ddp"),
    "tokens_per_second": Metric(unit="tokens/s", derived_from="time", is_rate=True),
    "tflops": Metric(unit="TFLOP/s", derived_from="time", is_rate=True, counts_flops=True),
    "mfu": Metric(unit="share", derived_from="time", is_rate=True, counts_flops=True),
    "hfu": Metric(unit="share", derived_from="time", is_rate=True, counts_flops=True),
    "energy_per_token": Metric(unit="J", derived_from="energy"),
}  # fmt: skip

DERIVED: Mapping[str, str] = {name: one.derived_from for name, one in METRICS.items() if one.derived_from}
"""Derived metric -> the stored one."""
RATES: tuple[str, ...] = tuple(name for name, one in METRICS.items() if one.is_rate)

FLOP_RATES: tuple[str, ...] = tuple(name for name, one in METRICS.items() if one.counts_flops)

WALL_TIME, DEVICE_TIME = "step.time", "step.device_time"
"""The time of a step, and the time of it in which the device was busy."""

TOKEN_TIME, PADDING = "step.token_time", "step.padding"
"""Of steps whose batches differ: the time of a token that is no padding, and the share of padding."""

PEAKS = ("step.peak_allocated", "step.peak_tensors", "step.peak_resident")
"""The peak memory of a step: by the allocator, of tensors, or of the process; the first that is known counts."""


class Unit(NamedTuple):
    """A unit that numbers are printed in."""

    name: str
    size: float
    """One of it, in the stored unit."""


PRINTED_UNITS: Mapping[str, tuple[Unit, ...]] = {
    "s": (Unit("us", 1e-6), Unit("ms", 1e-3), Unit("s", 1.0)),
    "B": (Unit("B", 1), Unit("KiB", 2**10), Unit("MiB", 2**20), Unit("GiB", 2**30)),
    "J": (Unit("mJ", 1e-3), Unit("J", 1.0), Unit("kJ", 1e3)),
    "B/s": (Unit("B/s", 1.0), Unit("kB/s", 1e3), Unit("MB/s", 1e6), Unit("GB/s", 1e9), Unit("TB/s", 1e12)),
    "Hz": (Unit("Hz", 1.0), Unit("kHz", 1e3), Unit("MHz", 1e6), Unit("GHz", 1e9)),
    "FLOP/s": (Unit("GFLOP/s", 1e9), Unit("TFLOP/s", 1e12)),
    "share": (Unit("%", 0.01),),
}
"""Stored unit -> the units it is printed in, smallest first."""


def printed_units(unit: str) -> tuple[Unit, ...]:
    """Return the units that a stored unit is printed in, smallest first: itself if there are no others."""
    return PRINTED_UNITS.get(unit) or (Unit(unit, 1.0),)


def metric_of(value: str) -> str:
    """Return the metric of a value: `time` of `step.time`. A phase may be a module of the user: `h.0.attn`."""
    return value.rpartition(".")[2]


def device_time_of(value: str) -> str:
    """Return the device time of the same phase: `step.device_time` of `step.time`."""
    return f"{value.rpartition('.')[0]}.{metric_of(DEVICE_TIME)}"


def is_device_time(value: str) -> bool:
    """Return whether the value is a time in which the device was busy."""
    return metric_of(value) == metric_of(DEVICE_TIME)


def counts_flops(value: str) -> bool:
    return metric_of(value) in FLOP_RATES
