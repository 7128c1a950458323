"""What is stored: one Record per trial, workload, phase and metric, what goes with it, and the Arrow schemas of all."""

import hashlib
import json
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from trials.spec import AUTO_FIELDS, Auto, Flag, TrialConfig

SCHEMA_VERSION = 1
"""Raised when a column changes its meaning; a new column does not need it (older rows read as null)."""

MEASURING_VERSION = 1
"""Raised when a change to the measuring code makes earlier results incomparable; part of every environment."""

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


def _environment(default: Any = None) -> Any:
    return field(default=default, metadata={"part": "environment"})


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """The hardware and software a trial met. Results whose environment fields differ are not comparable."""

    device_name: str = _environment()
    """Full name of the device; for a CPU with its number of cores."""
    device_memory: int | None = _environment()
    """Memory of the device in bytes; None for a CPU and for MPS, whose memory is the host's."""
    driver_version: str | None = _environment()
    """NVIDIA driver."""
    cuda_version: str | None = _environment()
    """CUDA that torch was built with; None where the trial does not run on CUDA."""
    torch_version: str = _environment()
    """torch.__version__, build suffix included."""
    triton_version: str | None = _environment()
    """Triton, if it is installed."""
    python_version: str = _environment()
    """Major and minor version."""
    measuring_version: int = _environment(MEASURING_VERSION)
    """MEASURING_VERSION of the code that measured."""
    accelerator_type: str | None = None
    """The accelerator's type as Ray calls it: H200, A100, ..."""
    host_name: str | None = None
    """Network name of the machine."""
    host_cpu: str | None = None
    """Name of the host's processor."""
    host_cores: int | None = None
    """Logical cores of the host."""
    host_memory: int | None = None
    """Memory of the host in bytes, as reported at the time."""
    cores_used: int | None = None
    """Logical cores the trial's process was allowed to run on."""
    host_load: float | None = None
    """Load average of the last minute when the trial began."""
    float32_matmul: str | None = None
    """How float32 matrix products were really computed: ieee, tf32 or bf16; None where no product ran."""
    autocast_dtype: str | None = None
    """Type autocast was casting to; None where autocast was off."""
    parameter_dtype: str | None = None
    """Type of the model's weights; of queries, keys and values for the workload `attention`."""
    collective_library: str | None = None
    """What joined the ranks of a trial that has several processes: gloo, or nccl with its version."""
    lmsweep_version: str | None = None
    """Version of this project."""
    lmsweep_commit: str | None = None
    """Commit of this project, where it runs from a checkout or LMSWEEP_COMMIT says it."""


ENVIRONMENT_FIELDS: tuple[str, ...] = tuple(
    f.name for f in fields(Fingerprint) if f.metadata.get("part") == "environment"
)


def environment_id(fingerprint: Fingerprint) -> str:
    """16 hexadecimal digits that name the hardware and software of a result."""
    content = [getattr(fingerprint, name) for name in ENVIRONMENT_FIELDS]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row of the table `measurements`."""

    trial_id: str
    measurement_id: str
    environment_id: str
    attempt_id: str
    """Drawn anew for every execution of a trial, so that two results of one measurement can be told apart."""
    sweep: str
    """Name of the sweep that asked for it."""
    workload: str
    status: str
    """One word of `Status`; the same for every row of one workload of one attempt."""
    flags: tuple[str, ...] = ()
    """Words of `Flag`."""
    error: str | None = None
    """What went wrong, where status is not ok."""
    started_at: datetime
    """When the trial's process began, UTC."""
    config: TrialConfig
    """Flattened into one column per field; `device` without its placement; of AUTO_FIELDS, null is `auto`."""
    fingerprint: Fingerprint
    """Flattened into one column per field."""
    phase: str | None = None
    metric: str | None = None
    """None where the workload failed."""
    unit: str | None = None
    samples: tuple[float, ...] | None = None
    warmup_samples: tuple[float, ...] | None = None
    reason: str | None = None
    """Why `samples` is null although the status is ok."""
    artifact: str | None = None
    """Path of a file that belongs to this row, relative to the store."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which measurement and which attempt at it a row belongs to, in the tables beside `measurements`."""

    trial_id: str
    measurement_id: str
    environment_id: str
    attempt_id: str
    sweep: str
    workload: str
    started_at: datetime
    config: TrialConfig
    fingerprint: Fingerprint


@dataclass(frozen=True, kw_only=True)
class AllocationRow:
    """One row of the table `allocations`."""

    trial: Identity
    allocation: Allocation


@dataclass(frozen=True, kw_only=True)
class TimelineRow:
    """One row of the table `timelines`."""

    trial: Identity
    timeline: Timeline


@dataclass(frozen=True, kw_only=True)
class DtypeRow:
    """One row of the table `dtypes`."""

    trial: Identity
    tensor: TensorDtype


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """One row of the table `kernels`."""

    trial: Identity
    kernel: Kernel


@dataclass(frozen=True, kw_only=True)
class OperatorRow:
    """One row of the table `operators`."""

    trial: Identity
    operator: Operator


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """An artifact on its way to the store."""

    path: str
    """Relative to the store; the row that it belongs to names it."""
    content: bytes


Row = Record | AllocationRow | TimelineRow | DtypeRow | KernelRow | OperatorRow | StoredFile
"""What an attempt leaves, for each workload its records last: with them its result is complete."""


def records_of(rows: Sequence[Row]) -> list["Record"]:
    """The records among what an attempt leaves."""
    return [row for row in rows if isinstance(row, Record)]


Yielded = Measurement | Allocation | Timeline | TensorDtype | Kernel | Operator | Artifact
"""What a workload yields."""

DETAIL_ROWS: dict[type, Callable[[Identity, Any], Row]] = {
    Allocation: lambda trial, allocation: AllocationRow(trial=trial, allocation=allocation),
    Timeline: lambda trial, timeline: TimelineRow(trial=trial, timeline=timeline),
    TensorDtype: lambda trial, tensor: DtypeRow(trial=trial, tensor=tensor),
    Kernel: lambda trial, kernel: KernelRow(trial=trial, kernel=kernel),
    Operator: lambda trial, operator: OperatorRow(trial=trial, operator=operator),
}
"""What workloads yield beside measurements and artifacts -> the row that it becomes."""


@cache
def schema_of(row_type: type) -> pa.Schema:
    """The Arrow schema of a row dataclass; nested dataclasses are flattened, in order."""
    columns = [pa.field(path.rpartition(".")[2], _arrow_type(hint)) for path, hint in _flat_hints(row_type)]
    return pa.schema(columns, metadata={"lmsweep_schema_version": str(SCHEMA_VERSION)})


def rows_to_table(rows: list[Any], row_type: type) -> pa.Table:
    """An Arrow table of rows of one dataclass."""
    schema = schema_of(row_type)
    values = attrgetter(*(path for path, _ in _flat_hints(row_type)))
    columns = dict(zip(schema.names, zip(*map(values, rows), strict=True), strict=True))
    for name in AUTO_FIELDS:
        # A column of words for the sake of one word would make text of every number, in older stores too.
        columns[name] = tuple(None if value == "auto" else value for value in columns[name])
    return pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


@cache
def _flat_hints(row_type: type) -> tuple[tuple[str, Any], ...]:
    """The dotted path of every field that holds no dataclass, and its type."""
    flat: list[tuple[str, Any]] = []
    for name, hint in get_type_hints(row_type).items():
        if is_dataclass(hint):
            flat += [(f"{name}.{path}", inner) for path, inner in _flat_hints(hint)]  # type: ignore[arg-type]
        else:
            flat.append((name, hint))
    return tuple(flat)


def _arrow_type(hint: Any) -> pa.DataType:
    if get_origin(hint) in (Union, types.UnionType):
        alternatives = [_arrow_type(arm) for arm in get_args(hint) if arm not in (type(None), Auto)]
        assert len(set(alternatives)) == 1, f"a column has one type, not {hint}"
        return alternatives[0]
    if get_origin(hint) is Literal:
        return pa.string()
    if get_origin(hint) is tuple:
        return pa.list_(_arrow_type(get_args(hint)[0]))
    scalars = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    if hint is datetime:
        return pa.timestamp("us", tz="UTC")
    return scalars[hint]
