"""The configuration of a trial: what is measured and how.

Two kinds of field make up a configuration. The *combination* says what is built and where it runs (model, context
length, precision, device, ...); the *protocol* says how it is measured (mode, warm-up, steps, ...). `trial_id`
hashes the combination; `measurement_id` hashes the combination, the workload and the protocol fields which that
workload reads (`lmsweep.trials.spec.identity`).
"""

from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

from lmsweep.trials.spec.model_sizes import ModelSize

Mode = Literal["forward", "train_forward", "forward_backward", "train_step"]
Precision = Literal["fp32", "tf32", "bf16", "fp16", "bf16_pure"]
Compile = Literal["none", "block", "model"]
Attention = Literal["naive", "naive_softmax", "sdpa", "sdpa_math", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "flex"]
Optimizer = Literal["adamw_fused", "adamw_foreach", "adamw_loop"]
ZeroGrad = Literal["after_step", "before_backward"]
CompileMode = Literal["default", "reduce-overhead", "max-autotune"]
Capture = Literal["none", "step"]
Checkpointing = Literal["none", "block", "sqrt"]
Ddp = Literal["none", "naive", "flat", "overlap", "bucketed", "torch", "zero1"]
Profiler = Literal["torch", "nsys"]
Auto = Literal["auto"]
"""As many as the measurement itself shows to be enough: see `lmsweep.trials.timing.stopping`."""


class RequestError(ValueError):
    """The request is wrong. The message says what is wrong, where, and what to do; nothing has run."""


class UnsupportedError(Exception):
    """This machine cannot do this combination. The message is the reason; the status of the trial is `unsupported`."""


def _combination(default: Any) -> Any:
    return field(default=default, metadata={"part": "combination"})


def _protocol(default: Any) -> Any:
    return field(default=default, metadata={"part": "protocol"})


@dataclass(frozen=True, kw_only=True)
class TrialConfig:
    """One combination and the protocol it is measured by. Every field may be an axis of a sweep."""

    model: str | None = field(default=None, metadata={"part": "label"})
    """What the model's dimensions are called; no part of any identifier, the dimensions are."""
    d_model: int = _combination(0)
    """Width of the residual stream."""
    d_ff: int | None = _combination(None)
    """Width of the feed-forward layer; None where no whole model is built."""
    num_layers: int | None = _combination(None)
    """Transformer blocks; None where no whole model is built."""
    num_heads: int | None = _combination(None)
    """Attention heads per block; divides d_model."""
    vocab_size: int = _combination(10_000)
    """Rows of the token embedding and of the output head."""
    context_length: int = _combination(256)
    """Tokens per sequence."""
    batch_size: int = _combination(4)
    """Sequences per step."""
    precision: Precision = _combination("fp32")
    """fp32 (TF32 off), tf32, bf16 (autocast), fp16 (autocast and a gradient scaler), bf16_pure (weights too)."""
    compile: Compile = _combination("none")
    """What torch.compile is given: nothing, one transformer block reused for all layers, or the whole model."""
    compile_mode: CompileMode = _combination("default")
    """The mode of torch.compile: default, reduce-overhead (CUDA graphs) or max-autotune (kernels chosen by timing)."""
    capture: Capture = _combination("none")
    """Whether the step is captured as CUDA graphs and replayed, so that no kernel waits for the host to launch it:
    what the device could do. The batch is then the same in each iteration."""
    checkpointing: Checkpointing = _combination("none")
    """What is computed again in backward instead of kept: nothing, each block, or each group of about sqrt(L) of the L
    blocks."""
    attention: Attention = _combination("naive")
    """How attention is computed: naive (written out), naive_softmax (with PyTorch's softmax), sdpa (PyTorch's
    scaled_dot_product_attention, the kernel as PyTorch chooses, or by name), flex (FlexAttention, always compiled)."""
    causal: bool = _combination(True)
    """Whether a position attends only to itself and those before it, or to all."""
    optimizer: Optimizer = _combination("adamw_fused")
    """AdamW as one fused kernel, as lists of tensors (foreach), or as a loop over parameters."""
    zero_grad: ZeroGrad = _combination("after_step")
    """When a step's gradients are freed: as soon as the optimizer has used them, or, as in the published reports, only
    when the next backward begins, so that forward runs beside them."""
    world_size: int = _combination(1)
    """Processes (ranks) that work on one batch together, each on a GPU or a share of the cores of its own; batch_size
    is that of each."""
    nodes: int = _combination(1)
    """Machines that the ranks are spread over, as many on each."""
    ddp: Ddp = _combination("none")
    """How the ranks make one gradient of theirs, by all-reduces: naive (one per parameter after backward), flat (one of
    all after backward), overlap (one per parameter during backward), bucketed (one per bucket of parameters during
    backward), torch (DistributedDataParallel), zero1 (bucketed, and the optimizer's state is divided among ranks)."""
    bucket_bytes: int | None = _combination(None)
    """Bytes of gradients that bucketed, torch and zero1 send together; None is 25 MiB, as in
    DistributedDataParallel."""
    device: str = _combination("cpu")
    """cpu, mps, cuda, cuda:<accelerator type>; identifiers hold the part before the colon."""
    mode: Mode = _protocol("train_step")
    """How much of a training step one iteration does."""
    warmup_steps: int | Auto = _protocol(5)
    """Iterations before the measured ones, of exactly the measured path, stored apart; auto: until they are steady."""
    measure_steps: int | Auto = _protocol(10)
    """Measured iterations; auto: until the interval of their median is narrow."""
    max_seconds: float | None = _protocol(None)
    """No iteration of the warm-up begins after this many seconds of it, and no measured one after as many of theirs:
    there may be fewer than were asked for, one at least; None: only `auto` has a limit of its own."""
    cold_l2: bool = _protocol(False)
    """Whether the GPU's L2 cache is overwritten before each measured interval; attention alone only."""
    profiler: Profiler = _protocol("torch")
    """Who looks on while steps are profiled: PyTorch's own profiler, or NVIDIA's nsys, which has to be installed."""
    timeout_seconds: float = field(default=900.0, metadata={"part": "limit"})
    """How long the trial may take in all before its process is killed; no part of any identifier."""

    def __post_init__(self) -> None:
        sizes = ("d_model", "d_ff", "num_layers", "num_heads", "vocab_size", "context_length", "batch_size")
        for name in (*sizes, "world_size", "nodes", "bucket_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"{name} is {value}; it must be at least 1")
        if self.world_size % self.nodes:
            raise RequestError(f"nodes {self.nodes} does not divide world_size {self.world_size}")
        if self.measure_steps != "auto" and self.measure_steps < 1:
            raise RequestError(f"measure_steps is {self.measure_steps}; it must be at least 1")
        if self.warmup_steps != "auto" and self.warmup_steps < 0:
            raise RequestError(f"warmup_steps is {self.warmup_steps}; it must be 0 or more")
        if self.max_seconds is not None and self.max_seconds <= 0:
            raise RequestError(f"max_seconds is {self.max_seconds}; it must be more than 0")
        if self.timeout_seconds <= 0:
            raise RequestError(f"timeout_seconds is {self.timeout_seconds}; it must be more than 0")
        if self.num_heads is not None:
            if self.d_model % self.num_heads:
                raise RequestError(f"num_heads {self.num_heads} does not divide d_model {self.d_model}")
            if (self.d_model // self.num_heads) % 2:
                raise RequestError(
                    f"d_model {self.d_model} / num_heads {self.num_heads} is odd; "
                    "rotary embeddings need an even head dimension"
                )

    @property
    def device_type(self) -> str:
        """cpu, mps or cuda: the device without its placement."""
        return self.device.partition(":")[0]

    @property
    def accelerator_type(self) -> str | None:
        """The accelerator type asked for (H200 of cuda:H200), if any."""
        return self.device.partition(":")[2] or None

    @property
    def ranks_per_node(self) -> int:
        return self.world_size // self.nodes

    @property
    def compiles(self) -> bool:
        """Whether torch.compile has work to do: FlexAttention is compiled whatever surrounds it."""
        return self.compile != "none" or self.attention == "flex"

    @property
    def size(self) -> ModelSize:
        assert self.d_ff and self.num_layers and self.num_heads, "a whole model has all four dimensions"
        return ModelSize(d_model=self.d_model, d_ff=self.d_ff, num_layers=self.num_layers, num_heads=self.num_heads)


CONFIG_FIELDS: dict[str, Field[Any]] = {f.name: f for f in fields(TrialConfig)}
COMBINATION_FIELDS: tuple[str, ...] = tuple(
    name for name, f in CONFIG_FIELDS.items() if f.metadata["part"] == "combination"
)

AUTO_FIELDS: tuple[str, ...] = tuple(
    name for name, hint in get_type_hints(TrialConfig).items() if Auto in get_args(hint)
)
"""Whole numbers that may be `auto` instead."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A configuration and the workloads that are run on it, one after the other, in one process."""

    config: TrialConfig
    workloads: tuple[str, ...]
    """Names from `lmsweep.trials.spec.workloads`, in the order that is there."""
    sweep: str
    """Name of the sweep that asked for it."""
