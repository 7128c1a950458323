"""What a workload yields: measurements, detail rows and files."""

import re
from dataclasses import dataclass

from lmsweep.trials.results.outcome import Flag

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names of files and folders that are valid on every file system."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The samples of one metric of one phase, in SI units and never averaged."""

    phase: str
    """forward, backward, optimizer, step, trial, ..."""
    metric: str
    """time, enqueue_time, peak_allocated, ..."""
    unit: str
    """s, B, B/s, FLOP/s, J, W, Hz, degC (degrees Celsius), tokens/s, share, or 1 for a count or ratio."""
    samples: tuple[float, ...] | None
    """One value per measured iteration; None if unknown, for the reason in `reason`."""
    warmup_samples: tuple[float, ...] = ()
    """One value per warm-up iteration."""
    flags: tuple[Flag, ...] = ()
    """Reasons to question these samples."""
    reason: str | None = None
    """Why `samples` is None."""


def one_number(phase: str, metric: str, unit: str, value: float | None, reason: str | None = None) -> Measurement:
    """Return the measurement of one number. If the number is unknown (None), `reason` says why."""
    if value is None:
        return Measurement(phase=phase, metric=metric, unit=unit, samples=None, reason=reason)
    return Measurement(phase=phase, metric=metric, unit=unit, samples=(value,))


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Detail row: one of the largest groups of equal memory allocations of a trial."""

    rank: int
    """1 for the largest."""
    bytes: int
    """Size of one."""
    count: int
    at_peak: int
    """How many of them were held at peak memory."""
    category: str
    """weights, gradients, optimizer_state, activations, inputs, workspace (held by libraries) or other."""
    phase: str
    line: str | None
    """Of the allocating code; in backward, of the forward operation that it differentiates."""
    function: str | None
    operator: str | None
    """PyTorch's operator that allocated."""
    reason: str | None = None
    """Why `line` is None."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Detail row: the memory of one category through one phase of an iteration."""

    phase: str
    """forward, backward, optimizer, or end, which frees what the iteration held to its end."""
    category: str
    """As in `Allocation`. The categories add up to all memory that is held."""
    positions: tuple[int, ...]
    """Event numbers, counting allocations and frees since the iteration began; peaks are always there."""
    bytes: tuple[int, ...]
    """Bytes held after each of these events."""


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Detail row: equal tensors that one transformer block saves for backward."""

    rank: int
    """1 for those that need the most bytes together."""
    block: int
    bytes: int
    """Size of the storage of each."""
    count: int
    """Number of such tensors. A storage that is saved several times counts once."""
    shape: str
    """4x2048x2560"""
    dtype: str
    operator: str | None
    """PyTorch's operator that computed it; None inside a compiled graph."""
    line: str | None
    """Where it is saved first."""
    function: str | None


@dataclass(frozen=True, kw_only=True)
class TensorDtype:
    """Detail row: the dtype of a tensor of a training step."""

    subject: str
    """The model: transformer, lmsweep's; own, the user's; or toy, two linear layers and a LayerNorm."""
    kind: str
    """weight, output (of a layer), logits, loss or gradient (of a weight)."""
    name: str
    """Name of the weight or layer, with * for the block number; logits or loss."""
    dtype: str
    count: int
    """Number of tensors of this kind, name and dtype: one per block if the name has a *."""
    rules: str
    """Kind of device whose autocast rules apply; they are emulated if it is not the trial's."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """Detail row: all calls of a kernel (on a CPU, an operator) with one launch shape, in one range."""

    range: str | None
    """A range of a step, such as softmax; a module of the user's model, `graph 0/0`, `backward of ...`, accumulate_grad
    or collectives."""
    kernel: str
    operator: str | None
    """PyTorch's operator that launched it."""
    share: float
    """Of the time of all kernels, from 0 to 1."""
    total: float
    """Seconds of all calls; mean, median, min, max and stdev are of one call."""
    instances: int
    """Calls in all profiled steps."""
    steps: int
    mean: float
    median: float
    min: float
    max: float
    stdev: float | None
    grid: str | None
    """Blocks along x, y and z: `10 32 2`; None for a copy, a fill or an operator."""
    block: str | None
    """Threads, as `grid`."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """Detail row: all calls of one of PyTorch's operators, or of the driver's API, in the profiled steps."""

    name: str
    calls: int
    """In all profiled steps. An operator that calls one of its own name counts once."""
    steps: int
    self_cpu: float
    """Seconds of the host without the operators that it calls."""
    total_cpu: float
    """Seconds of the host with them."""
    self_device: float | None
    """Seconds of the device for what it launched itself; None if the device is the host."""
    total_device: float | None
    """The same with the operators that it calls."""


@dataclass(frozen=True, kw_only=True)
class OperatorTime:
    """Detail row: the time of an operator of one size, by its kernels' own durations."""

    kind: str
    """product, attention, bytes or optimizer."""
    name: str
    """PyTorch's name, without namespace."""
    form: str
    """What the shapes do not say: of a product its layout, or the recipe of float8."""
    shapes: str
    """Of the inputs, separated by commas: 4096x1024,1024x4096."""
    dtype: str
    """tf32 for float32 that is multiplied in tensor cores."""
    bytes: int
    """Read and written, each tensor once."""
    flops: int
    is_causal: bool
    is_cold: bool
    """Whether each call had operands that the L2 cache did not hold."""
    seconds: tuple[float, ...]
    """Of one call; a sample is the mean of calls in a row."""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file that is kept with the results."""

    name: str
    """Without a folder."""
    content: bytes
    phase: str
    metric: str
    """Metric of the row that names the file; its sample is the file's size in bytes."""

    def __post_init__(self) -> None:
        assert FILE_NAME.fullmatch(self.name), f"{self.name!r} is not a plain file name"


Detail = Allocation | Timeline | Residual | TensorDtype | Kernel | Operator | OperatorTime
DETAIL_TABLES: dict[str, type] = {
    "allocations": Allocation,
    "timelines": Timeline,
    "residuals": Residual,
    "dtypes": TensorDtype,
    "kernels": Kernel,
    "operators": Operator,
    "operator_times": OperatorTime,
}
"""The detail tables of a store, and what a row of each holds in addition to its trial."""

Yielded = Measurement | Detail | Artifact
