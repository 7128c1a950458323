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
    """The measured part of the iteration or of the trial: forward, backward, optimizer, step, trial, ..."""
    metric: str
    """The measured quantity: time, enqueue_time, peak_allocated, ..."""
    unit: str
    """s, B, B/s, FLOP/s, J, W, Hz, degC (degrees Celsius), or 1 for a count or a ratio."""
    samples: tuple[float, ...] | None
    """One value per measured iteration, in order; None if unknown, for the reason in `reason`."""
    warmup_samples: tuple[float, ...] = ()
    """One value per warm-up iteration, in order."""
    flags: tuple[Flag, ...] = ()
    """Doubts about these samples, raised by the measurement itself."""
    reason: str | None = None
    """Why `samples` is None."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Detail row: one of the largest groups of equal memory allocations of a trial."""

    rank: int
    """1 for the largest."""
    bytes: int
    """Size of one allocation, in bytes."""
    count: int
    """Number of allocations of this size from this line in this phase."""
    at_peak: int
    """How many of them were held at peak memory."""
    category: str
    """weights, gradients, optimizer_state, activations (saved by autograd for backward), inputs (the batch and the
    rotary tables), workspace (held by libraries) or other (logits, temporary tensors of operations)."""
    phase: str
    """init, forward, backward or optimizer."""
    line: str | None
    """File and line of the allocating code; in backward, of the forward operation that it differentiates. None if no
    Python frame was running, as `reason` then says."""
    function: str | None
    """The function that contains the line."""
    operator: str | None
    """PyTorch's operator that allocated; None if the allocator does not record it."""
    reason: str | None = None
    """Why `line` is None."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Detail row: the memory of one category through one phase of an iteration."""

    phase: str
    """forward, backward, optimizer, or end, which frees what the iteration held to its end."""
    category: str
    """A category of `Allocation`. The categories add up to all memory that is held."""
    positions: tuple[int, ...]
    """Event numbers, counting allocations and frees since the iteration began. Some events are left out, but no
    peak."""
    bytes: tuple[int, ...]
    """Bytes held after each of these events."""


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Detail row: equal tensors that one transformer block saves for backward."""

    rank: int
    """1 for those that need the most bytes together."""
    block: int
    """Number of the block, from 0."""
    bytes: int
    """Size of the storage of each, in bytes."""
    count: int
    """Number of such tensors. A storage that is saved several times counts once."""
    shape: str
    """Shape of each as it was saved first: 4x2048x2560."""
    dtype: str
    """float32, bfloat16, ..."""
    operator: str | None
    """PyTorch's operator that computed it; None if autograd does not tell, as of tensors inside a compiled graph."""
    line: str | None
    """File and line of the code that saves it first."""
    function: str | None
    """The function that contains the line."""


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
    """float32, bfloat16, ..."""
    count: int
    """Number of tensors of this kind, name and dtype: one per block if the name has a *."""
    rules: str
    """Kind of device whose autocast rules apply. If it is not the trial's own device, the rules were emulated."""


RANGES = (
    *("forward", "loss", "backward", "optimizer"),
    *("attention", "scores", "softmax", "value_matmul", "fused_attention", "feed_forward", "norm"),
)
"""The named ranges of a step. Those of the second line are nested in forward; the embedding, the output head and the
residual stream belong to forward itself."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """Detail row: all calls of one kernel, with one launch shape, in one range of the profiled steps.

    On a CPU an operator takes the place of a kernel, and its time is its self time.
    """

    range: str | None
    """One of RANGES, a module of the user's own model by its path (`layers.3.attn`), `graph 0/0` (a compiled graph, by
    dynamo's number), `backward of` or `recomputed` before one of these, accumulate_grad or collectives; None if the
    kernel belongs to none of them."""
    kernel: str
    """Full name of the kernel, copy or fill."""
    operator: str | None
    """PyTorch's operator that launched it; None if the profiler does not report it."""
    share: float
    """Share of the time of all kernels, from 0 to 1."""
    total: float
    """Time of all calls, in seconds."""
    instances: int
    """Number of calls in all profiled steps."""
    steps: int
    """Number of profiled steps."""
    mean: float
    """Mean time of a call, in seconds."""
    median: float
    """Median time of a call, in seconds."""
    min: float
    """Shortest time of a call, in seconds."""
    max: float
    """Longest time of a call, in seconds."""
    stdev: float | None
    """Sample standard deviation of the time of a call, in seconds; None for a single call."""
    grid: str | None
    """Blocks along x, y and z: `10 32 2`; None for a copy, a fill or an operator."""
    block: str | None
    """Threads per block along x, y and z."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """Detail row: all calls of one of PyTorch's operators, or of the driver's API, in the profiled steps."""

    name: str
    """Name of the operator or of the API call."""
    calls: int
    """Number of calls in all profiled steps. An operator that calls one of its own name counts once."""
    steps: int
    """Number of profiled steps."""
    self_cpu: float
    """Host time without the operators that it calls, in seconds."""
    total_cpu: float
    """Host time from the beginning to the end of the calls, in seconds."""
    self_device: float | None
    """Device time of what it launched itself, in seconds; None if the device is the host."""
    total_device: float | None
    """Device time of what it and the operators that it calls launched, in seconds; None if the device is the host."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Detail row: a collective of a traced step, and how long the computation of a rank waited for it."""

    rank: int
    """The rank that waits."""
    position: int
    """1 for the first that the rank's computation needed."""
    kind: str
    """all_gather, reduce_scatter or all_reduce."""
    block: str
    """The module whose weights or gradients it moves: `blocks.3`; root for what is outside of the blocks."""
    phase: str
    """forward or backward: when it is needed."""
    needed_by: str
    """The module that needs it, or optimizer."""
    time: float
    """From its begin on this rank to its end, in seconds."""
    late: float
    """How long the computation waited for its end, in seconds; 0 if it ended in time. The sum of the four below."""
    late_host: float
    """The part that the host could have saved by launching it earlier, as soon as the device was ready for it."""
    late_queue: float
    """The part from its launch until it began: behind other collectives, or copies of what it sends."""
    late_rank: float | None
    """The part from then until it began on the last rank. None if not all ranks take part or their clocks differ; this
    time is then in `late_link`."""
    late_link: float
    """The rest, in which all ranks were communicating."""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file that is kept with the results."""

    name: str
    """Name of the file, without a folder."""
    content: bytes
    """Content of the file."""
    phase: str
    """Phase of the row that names the file."""
    metric: str
    """What the file holds: the metric of the row that names it. The row's only sample is the file's size in bytes."""

    def __post_init__(self) -> None:
        assert FILE_NAME.fullmatch(self.name), f"{self.name!r} is not a plain file name"


Detail = Allocation | Timeline | Residual | TensorDtype | Kernel | Operator | Wait
DETAIL_TABLES: dict[str, type] = {
    "allocations": Allocation,
    "timelines": Timeline,
    "residuals": Residual,
    "dtypes": TensorDtype,
    "kernels": Kernel,
    "operators": Operator,
    "waits": Wait,
}
"""The detail tables of a store, and what a row of each holds in addition to its trial."""

Yielded = Measurement | Detail | Artifact
"""What a workload yields."""
