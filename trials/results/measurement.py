"""What a workload yields: measurements, and what goes with them."""

import re
from dataclasses import dataclass

from lmsweep.trials.results.outcome import Flag

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names of files and folders that mean the same everywhere."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a workload yields: the samples of one metric of one phase, in SI units, never averaged."""

    phase: str
    """Part of the iteration, or of the trial, that was measured: forward, backward, optimizer, step, trial, ..."""
    metric: str
    """Which property of it: time, enqueue_time, peak_allocated, ..."""
    unit: str
    """Seconds (s), bytes (B), bytes or FLOPs per second (B/s, FLOP/s), joules (J), watts (W), hertz (Hz), degrees
    Celsius (degC), or 1 for a count or a ratio."""
    samples: tuple[float, ...] | None
    """One value per measured iteration, in order; None where it cannot be known, and `reason` says why."""
    warmup_samples: tuple[float, ...] = ()
    """One value per warm-up iteration, in order."""
    flags: tuple[Flag, ...] = ()
    """Doubts about these samples, found in their own evidence."""
    reason: str | None = None
    """Why `samples` is None."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What a workload yields beside measurements: one of the largest pieces of memory that a trial asked for."""

    rank: int
    """1 for the largest."""
    bytes: int
    """Size of one piece."""
    count: int
    """Equal pieces: of this size, from this line, in this phase."""
    at_peak: int
    """How many of them were held when most was."""
    category: str
    """weights, gradients, optimizer_state, activations (what autograd keeps for backward), inputs (the batch and the
    rotary tables), workspace (what libraries keep for themselves) or other (logits, what operations need for a
    while)."""
    phase: str
    """init, forward, backward or optimizer."""
    line: str | None
    """File and line of code that asked for it, in backward that of the forward operation it belongs to; None where no
    Python ran: `reason` says so."""
    function: str | None
    """The function that holds the line."""
    operator: str | None
    """PyTorch's operator that allocated; None where the allocator does not know it."""
    reason: str | None = None
    """Why the line is None."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What a workload yields beside measurements: what one iteration holds for one purpose, through one phase."""

    phase: str
    """forward, backward, optimizer, or end: what is let go of after the last of them."""
    category: str
    """As of an Allocation; all together are all that is held."""
    positions: tuple[int, ...]
    """Allocations and frees since the iteration began, in order; some are left out, never a peak."""
    bytes: tuple[int, ...]
    """Held after each of them."""


@dataclass(frozen=True, kw_only=True)
class TensorDtype:
    """What a workload yields beside measurements: the type that a tensor of a training step has."""

    subject: str
    """The model: transformer, the trial's own, or toy, two linear layers and a LayerNorm."""
    kind: str
    """weight, output (of a layer), logits, loss or gradient (of a weight)."""
    name: str
    """Of the weight or the layer, with * for the number of a block; logits or loss."""
    dtype: str
    """float32, bfloat16, ..."""
    count: int
    """Tensors of this kind, name and type: one of each block, where the name has a *."""
    rules: str
    """Kind of device whose autocast decided; where it is not the trial's own, that was emulated."""


RANGES = (
    *("forward", "loss", "backward", "optimizer"),
    *("attention", "scores", "softmax", "value_matmul", "fused_attention", "feed_forward", "norm"),
)
"""The stretches of a step that have a name; those of the second line are inside forward. What is in none of them
belongs to forward itself: embedding, head and residual stream."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """What a workload yields beside measurements: one kernel with one shape of launch in one range of the profiled
    steps, all calls together. On a CPU an operator stands for a kernel, and its time is what it spent in no other.
    """

    range: str | None
    """One of RANGES, `graph 0/0` for a compiled graph (by the number that dynamo gives it), `backward of` or
    `recomputed` either, accumulate_grad, collectives; None for what belongs to none."""
    kernel: str
    """Full name of the kernel, the copy or the fill."""
    operator: str | None
    """PyTorch's operator that launched it; None where the profiler does not tell."""
    share: float
    """Of the time of all kernels, from 0 to 1."""
    total: float
    """Seconds, like those below."""
    instances: int
    """Calls in all profiled steps."""
    steps: int
    """Profiled steps."""
    mean: float
    median: float
    min: float
    max: float
    stdev: float | None
    """Of the sample; None for a single call."""
    grid: str | None
    """Blocks along x, y and z: `10 32 2`; None for a copy, a fill and an operator."""
    block: str | None
    """Threads of a block along x, y and z."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """What a workload yields beside measurements: one of PyTorch's operators, or a call to the driver, in the profiled
    steps, all calls together.
    """

    name: str
    calls: int
    """In all profiled steps; one where an operator calls one of its own name."""
    steps: int
    """Profiled steps."""
    self_cpu: float
    """Seconds of the host in none of the operators inside."""
    total_cpu: float
    """Seconds of the host from beginning to end of these calls."""
    self_device: float | None
    """Seconds of what it launched itself on the device; None where host and device are one."""
    total_device: float | None
    """Seconds of what it and the operators inside launched; None where host and device are one."""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """What a workload yields beside measurements: a file to be kept with its results."""

    name: str
    """Name of the file, without a folder."""
    content: bytes
    phase: str
    """Phase of the row that names the file."""
    metric: str
    """What the file holds; metric of the row that names it. The row's only sample is the size of the file."""

    def __post_init__(self) -> None:
        assert FILE_NAME.fullmatch(self.name), f"{self.name!r} is no plain file name"


Detail = Allocation | Timeline | TensorDtype | Kernel | Operator
DETAIL_TABLES: dict[str, type] = {
    "allocations": Allocation,
    "timelines": Timeline,
    "dtypes": TensorDtype,
    "kernels": Kernel,
    "operators": Operator,
}
"""The tables of a store beside `measurements`, and what a row of each holds besides its trial."""

Yielded = Measurement | Detail | Artifact
"""What a workload yields."""
