"""The configuration of a trial: the combination, which `trial_id` hashes, and the protocol that measures it."""

import re
from dataclasses import Field, dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from lmsweep.trials.spec.errors import RequestError as RequestError
from lmsweep.trials.spec.errors import UnsupportedError as UnsupportedError
from lmsweep.trials.spec.model_sizes import DIMENSIONS, FeedForward, ModelSize
from lmsweep.trials.spec.reference import HUGGING_FACE, Code, is_reference
from lmsweep.trials.spec.ways.adapters import AdapterArguments, adapter_arguments
from lmsweep.trials.spec.ways.attentions import ATTENTIONS
from lmsweep.trials.spec.ways.checkpointings import CHECKPOINTINGS, Checkpointing, checkpointing_of
from lmsweep.trials.spec.ways.compilations import COMPILATIONS, Compilation
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from lmsweep.trials.spec.ways.losses import COMPILED_LOSSES, LOSSES
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from lmsweep.trials.spec.words import (
    CUDA_GRAPH_MODES,
    GPU_DEVICES,
    AdapterWord,
    Allocator,
    Auto,
    Batching,
    Capture,
    Collective,
    Compile,
    CompileMode,
    Gather,
    Mode,
    Offload,
    Precision,
    Profiler,
    ZeroGrad,
)

DIVIDES = {"nodes": "world_size", "tp": "world_size", "accumulate": "batch_size"}
"""Field -> the field that it divides."""


def _combination(default: Any) -> Any:
    return field(default=default, metadata={"part": "combination"})


def _protocol(default: Any) -> Any:
    return field(default=default, metadata={"part": "protocol"})


@dataclass(frozen=True, kw_only=True)
class TrialConfig:
    """One combination and its protocol. Every field may be an axis of a sweep."""

    model: str | None = field(default=None, metadata={"part": "label"})
    """Name of the model size. Identifiers hash the dimensions, not the name."""
    model_code: str | None = _combination(None)
    """Reference to the user's model, or hf: and a Hugging Face configuration; None: lmsweep's own transformer."""
    model_args: str | None = _combination(None)
    """JSON mapping: arguments of the user's model, or changes to the Hugging Face configuration."""
    blocks: str | None = _combination(None)
    """Path of the user's model's repeated layers, such as `model.layers`; None: the outermost list of equal ones."""
    step: str | None = _combination(None)
    """Reference to a function that returns the user's own training step; None for lmsweep's."""
    step_args: str | None = _combination(None)
    """JSON mapping."""
    d_model: int = _combination(0)
    """Width of the residual stream; 0 if only the user's own model knows it, or there is no model."""
    d_ff: int | None = _combination(None)
    """Width of the feed-forward layer; None if no whole model is built."""
    num_layers: int | None = _combination(None)
    """Number of transformer blocks; None if no whole model is built."""
    num_heads: int | None = _combination(None)
    """Attention heads per block. Divides d_model."""
    num_kv_heads: int | None = _combination(None)
    """Heads of keys and values, shared by groups of query heads. Divides num_heads; None: num_heads."""
    d_head: int | None = _combination(None)
    """Width of a head; None: d_model / num_heads."""
    qk_norm: bool = _combination(False)
    """Whether queries and keys are normalised per head."""
    feed_forward: FeedForward = _combination("swiglu")
    """Kind of feed-forward layer: swiglu (three matrices) or gelu (two)."""
    num_experts: int | None = _combination(None)
    """Experts per block, each a feed-forward layer; None: no mixture of experts."""
    active_experts: int | None = _combination(None)
    """Experts that process a token, on average; None: one."""
    tied_head: bool = _combination(False)
    """Whether the output head shares the embedding's weights."""
    vocab_size: int = _combination(10_000)
    """Rows of the token embedding and of the output head; 0 if only a Hugging Face configuration knows it."""
    context_length: int = _combination(256)
    """Tokens per sequence."""
    batch_size: int = _combination(4)
    """Sequences per step; with several ranks, per rank."""
    precision: Precision = _combination("fp32")
    """TF32 is off in fp32; bf16, fp16 and fp8_* autocast; *_pure have such weights too."""
    compile: Compile = _combination("none")
    """What torch.compile compiles: nothing, one transformer block reused for all layers, or the whole model."""
    compile_mode: CompileMode = _combination("default")
    """The mode of torch.compile; reduce-overhead and max-autotune record CUDA graphs."""
    dynamic_shapes: bool = _combination(False)
    """Whether torch.compile makes one graph for all batch sizes and context lengths, rather than one for each."""
    capture: Capture = _combination("none")
    """Whether CUDA graphs of the step are replayed, on one batch, so that no kernel waits for the host."""
    checkpointing: str = _combination("none")
    """Blocks whose activations are recomputed: a number for groups of that many, or a word (docs/performance.md)."""
    offload: Offload = _combination("none")
    """What waits in the host's memory: what forward saves, the inputs of blocks alone, or the optimizer's state."""
    memory_budget: int | None = _combination(None)
    """Bytes that a step may hold at its peak; the compiler recomputes the rest. None: no limit."""
    attention: str = _combination("naive")
    """Implementation: naive (written out), one of PyTorch's, or a reference to the user's function."""
    attention_args: str | None = _combination(None)
    """JSON mapping."""
    causal: bool = _combination(True)
    """Whether each position attends only to itself and earlier positions, or to all."""
    window: int | None = _combination(None)
    """Positions that each position attends to, itself and those before it; None: all. Needs `causal`."""
    lengths: str | None = _combination(None)
    """Tokens of the documents: a file, a distribution, or the mean of packed ones; None: context_length each."""
    batching: Batching = _combination("padded")
    """How documents become batches (`lmsweep.trials.lengths.batches`)."""
    batch_tokens: int | None = _combination(None)
    """Tokens of a batch with its padding, where `batching` is token_budget."""
    seed: int = _combination(1)
    """Which documents are drawn, in which order."""
    allocator: Allocator = _combination("default")
    """How CUDA's allocator cuts memory into blocks."""
    optimizer: str = _combination("adamw_fused")
    """A word (docs/fields.md) or a reference to the user's class; muon leaves other weights than matrices to AdamW."""
    optimizer_args: str | None = _combination(None)
    """JSON mapping."""
    loss: str = _combination("eager")
    """A word or a reference to a function of logits and targets, or of hidden states, head and targets."""
    adapter: AdapterWord = _combination("none")
    """What is trained in place of the model's own weights (docs/performance.md); none: these."""
    adapter_args: str | None = _combination(None)
    """JSON mapping: rank, alpha, targets, dropout."""
    zero_grad: ZeroGrad = _combination("after_step")
    """When gradients are freed; before_backward holds them through the next forward, as in published reports."""
    world_size: int = _combination(1)
    """Number of data-parallel processes (ranks). Each has a GPU, or a share of the cores, of its own."""
    nodes: int = _combination(1)
    """Number of machines, each with the same number of ranks."""
    ddp: str = _combination("none")
    """How ranks average gradients and shard weights (docs/ddp.md), or a reference to the user's wrapper."""
    ddp_args: str | None = _combination(None)
    """JSON mapping."""
    bucket_bytes: int | None = _combination(None)
    """Bytes of gradients per bucket for bucketed, torch and zero1; None is 25 MiB, as in DistributedDataParallel."""
    reshard: str = _combination("true")
    """Whether fsdp frees a block's weights after its forward, or the number of ranks that keep them sharded."""
    shards: int | None = _combination(None)
    """Of hsdp, the number of neighbouring ranks over which weights are sharded; None: those of a node."""
    gather: Gather = _combination("fp32")
    """Type in which fsdp gathers weights; the optimizer's weights and the sums of gradients are in float32."""
    accumulate: int = _combination(1)
    """Micro-batches of a step; ranks communicate after the last. Divides batch_size."""
    tp: int = _combination(1)
    """Number of ranks that share each layer (tensor parallelism). Divides world_size; the others are data-parallel."""
    collective: Collective = _combination("all_reduce")
    """Of the workload `collectives`, the operation that is timed."""
    message_bytes: int = _combination(2**20)
    """Of the workload `collectives`, the bytes of its message, as nccl-tests counts them."""
    software: str | None = _combination(None)
    """Releases that differ from the installed ones, as `torch==2.12.0 triton==3.7.1`."""
    device: str = _combination("cpu")
    """cpu, mps, cuda, xpu or cuda:<accelerator type>. Identifiers hash the part before the colon."""
    mode: Mode = _protocol("train_step")
    """Which part of a training step one iteration runs."""
    warmup_steps: int | Auto = _protocol(5)
    """Warm-up iterations. They run the measured code and are stored separately. auto: until they are steady."""
    measure_steps: int | Auto = _protocol(10)
    """Measured iterations. auto: until the confidence interval of their median is narrow."""
    max_seconds: float | None = _protocol(None)
    """Limit for the warm-up, and again for the measured iterations; at least one of each runs."""
    batches: int = _protocol(100)
    """Different batches that are measured where `lengths` make them differ, in place of `measure_steps`."""
    cold_l2: bool = _protocol(False)
    """Whether the GPU's L2 cache is flushed before each measured interval. Workload `attention` only."""
    profiler: Profiler = _protocol("torch")
    """Which profiler records the profiled steps: PyTorch's, or NVIDIA's nsys, which must be installed."""
    timeout_seconds: float = field(default=900.0, metadata={"part": "limit"})
    """Seconds after which the trial's process is killed. Not part of any identifier."""
    processes: int = field(default=1, metadata={"part": "repetition"})
    """Fresh processes that measure it. Not stored: each process stores its own rows."""

    def __post_init__(self) -> None:
        only_users_know = ("d_model", "vocab_size") if self.model_code or self.step else ()
        without_model = () if self.num_layers else ("d_model",)  # a collective has no width
        may_be_0 = (*only_users_know, *without_model, "warmup_steps")
        for name in (*COUNTS, *AUTO_FIELDS):
            value = getattr(self, name)
            if isinstance(value, int) and value < (0 if name in may_be_0 else 1):
                raise RequestError(f"{name} is {value}; it must be {'0 or more' if name in may_be_0 else 'at least 1'}")
            if isinstance(value, int) and value > LARGEST_COUNT:
                raise RequestError(f"{name} is {value}; it must be at most {LARGEST_COUNT}")
        if self.window is not None and not self.causal:
            raise RequestError(f"window {self.window} counts positions before each position; it needs causal: true")
        for name, whole in DIVIDES.items():
            if getattr(self, whole) % getattr(self, name):
                raise RequestError(f"{name} {getattr(self, name)} does not divide {whole} {getattr(self, whole)}")
        for name in WORDS_OR_NUMBERS:
            word_or_number(name, getattr(self, name))
        for name in ("max_seconds", "timeout_seconds"):
            if (value := getattr(self, name)) is not None and value <= 0:
                raise RequestError(f"{name} is {value}; it must be more than 0")
        if self.adapter != "none" and 0 < self.d_model < self.adapter_arguments.rank and self.num_heads:
            raise RequestError(
                f"adapter_args.rank is {self.adapter_arguments.rank}, above the width of the model, {self.d_model}"
            )
        if self.num_heads is not None and self.num_heads % (self.num_kv_heads or 1):
            raise RequestError(f"num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}")
        if self.active_experts is not None and self.active_experts > (self.num_experts or 0):
            raise RequestError(
                f"active_experts is {self.active_experts}, and num_experts {self.num_experts or 'is not given'}; "
                "at most all experts are active"
            )
        if self.d_head is not None and self.d_head % 2:
            raise RequestError(f"d_head is {self.d_head}; rotary embeddings need an even head dimension")
        if self.num_heads is not None and self.d_head is None and self.model_code is None:
            if self.d_model % self.num_heads:
                raise RequestError(f"num_heads {self.num_heads} does not divide d_model {self.d_model}")
            if (self.d_model // self.num_heads) % 2:
                raise RequestError(
                    f"d_model {self.d_model} / num_heads {self.num_heads} is odd; "
                    "rotary embeddings need an even head dimension"
                )

    def is_default(self, name: str) -> bool:
        return bool(getattr(self, name) == CONFIG_FIELDS[name].default)

    @property
    def document_length(self) -> int | None:
        """Mean tokens of packed documents that are the same in every sequence; None if there are no such."""
        tokens = int(self.lengths) if self.lengths and self.lengths.isdecimal() else 0
        return tokens or None  # 0 is no length; it may be the name of a file

    @property
    def varies(self) -> bool:
        """Whether each step has another batch, by the lengths of its documents."""
        return self.lengths is not None and self.document_length is None

    @property
    def micro_batch_size(self) -> int:
        return self.batch_size // self.accumulate

    @property
    def references(self) -> tuple[str, ...]:
        """The references to code that is not lmsweep's, among the values of its fields."""
        values = (self.model_code, self.step, self.attention, self.optimizer, self.loss, self.ddp)
        return tuple(value for value in values if value is not None and is_reference(value))

    @property
    def has_own_code(self) -> bool:
        """Whether it names code that is neither lmsweep's nor a model of Hugging Face."""
        return bool({*self.references} - {self.model_code if self.is_hugging_face else None})

    @property
    def adapter_arguments(self) -> AdapterArguments:
        """What the adapter is made with. Raises RequestError for wrong arguments."""
        return adapter_arguments(self.adapter_args)

    @property
    def builds_a_model(self) -> bool:
        """Whether it describes a whole model, lmsweep's or the user's, rather than attention alone."""
        return self.num_layers is not None or self.model_code is not None or self.step is not None

    @property
    def is_hugging_face(self) -> bool:
        return self.model_code is not None and self.model_code.startswith(HUGGING_FACE)

    @property
    def device_type(self) -> str:
        """The kind of device, cpu, mps, cuda or xpu, without the accelerator type."""
        return self.device.partition(":")[0]

    @property
    def takes_gpus(self) -> bool:
        """Whether each rank takes one of the GPUs that Ray counts, rather than cores."""
        return self.device_type in GPU_DEVICES

    @property
    def accelerator_type(self) -> str | None:
        """The accelerator type that was asked for (H200 in cuda:H200), or None."""
        return self.device.partition(":")[2] or None

    @property
    def ranks_per_node(self) -> int:
        return self.world_size // self.nodes

    @property
    def fully_shards(self) -> bool:
        return self.ddp in DDP_VARIANTS and DDP_VARIANTS[self.ddp].fully_shards

    @property
    def shard_ranks(self) -> int:
        """Ranks over which `fully_shard` shards the weights."""
        if self.ddp != "hsdp":
            return self.world_size // self.tp
        return self.shards or max(1, self.ranks_per_node // self.tp)

    @property
    def records_cuda_graphs(self) -> bool:
        return self.compile != "none" and self.compile_mode in CUDA_GRAPH_MODES and self.device_type == "cuda"

    @property
    def always_compiles_attention(self) -> bool:
        """Whether torch.compile compiles the attention whatever `compile` says."""
        return self.attention in ATTENTIONS and ATTENTIONS[self.attention].always_compiled

    @property
    def has_counted_flops(self) -> bool:
        """Whether a trial counts the FLOPs of its model by running it without storage: the closed form knows neither a
        user's model nor which products of frozen weights autograd leaves out."""
        return self.model_code is not None or self.adapter != "none"

    @property
    def recomputation(self) -> Checkpointing:
        return checkpointing_of(self.checkpointing)

    @property
    def compilation(self) -> Compilation:
        return COMPILATIONS[self.compile]

    @property
    def compiles_checkpoints(self) -> bool:
        """Whether a checkpoint is part of each compiled block: one that keeps results of operators has to see these."""
        return self.compilation.each_block and self.recomputation.keeps_products

    @property
    def compiles(self) -> bool:
        """Whether torch.compile is used at all."""
        return self.compile != "none" or self.always_compiles_attention or self.loss in COMPILED_LOSSES

    @property
    def size(self) -> ModelSize:
        assert self.d_ff and self.num_layers and self.num_heads, "a whole model has all four dimensions"
        return size_of(*_dimensions(self))

    @property
    def head_width(self) -> int:
        """The width of a head, or of attention without heads."""
        return self.d_head or self.d_model // (self.num_heads or 1)


_dimensions = attrgetter(*DIMENSIONS)


@lru_cache(maxsize=256)  # trials of a plan share few sizes
def size_of(*dimensions: object) -> ModelSize:
    given: dict[str, Any] = dict(zip(DIMENSIONS, dimensions, strict=True))
    return ModelSize(**given)


WORDS_OR_NUMBERS: dict[str, tuple[str, ...]] = {"checkpointing": tuple(CHECKPOINTINGS), "reshard": ("true", "false")}
"""The words of the fields that also accept a number."""


def word_or_number(name: str, value: object) -> str:
    """Return the one way to write a value that identifiers hash. Raises RequestError if it is none."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if name == "checkpointing" and text == "1":
        return "block"
    least = 1 if name == "checkpointing" else 2
    if text in WORDS_OR_NUMBERS[name] or (re.fullmatch(r"[1-9]\d{0,8}", text) and int(text) >= least):
        return text
    words = ", ".join(WORDS_OR_NUMBERS[name])
    unit = "blocks" if name == "checkpointing" else "ranks"
    raise RequestError(f"{name} is {text}; it must be one of {words}, or a number of {unit} from {least}")


CONFIG_FIELDS: dict[str, Field[Any]] = {f.name: f for f in fields(TrialConfig)}
"""Every field of a configuration, by name."""

STORED_FIELDS: tuple[str, ...] = tuple(name for name, f in CONFIG_FIELDS.items() if f.metadata["part"] != "repetition")
"""The fields that a row says. The others are about how many rows there are."""

COMBINATION_FIELDS: tuple[str, ...] = tuple(
    name for name, f in CONFIG_FIELDS.items() if f.metadata["part"] == "combination"
)
"""The fields of the combination, which `trial_id` hashes."""

WORDS: dict[str, tuple[str, ...]] = {
    "attention": tuple(ATTENTIONS),
    "optimizer": tuple(OPTIMIZERS),
    "loss": tuple(LOSSES),
    "ddp": tuple(DDP_VARIANTS),
}
"""The words of the fields that also accept a reference."""

ARGUMENTS: dict[str, str] = {
    "model": "model_args",
    "step": "step_args",
    "attention": "attention_args",
    "optimizer": "optimizer_args",
    "ddp": "ddp_args",
    "adapter": "adapter_args",
}
"""Field with a reference, or an adapter -> the field of its arguments; sweep files also write `model_args.theta`."""

_HINTS = get_type_hints(TrialConfig)

COUNTS: tuple[str, ...] = tuple(name for name, hint in _HINTS.items() if hint in (int, int | None))
"""The fields that hold a number of things, 1 or more."""

AUTO_FIELDS: tuple[str, ...] = tuple(name for name, hint in _HINTS.items() if Auto in get_args(hint))
"""Integer fields that also accept `auto`."""

LARGEST_COUNT = 2**50
"""Largest value of a field that holds a number. pandas keeps a column with nulls as float64, which is exact to 2**53. A
store takes rows with larger ones for none of lmsweep's."""


@dataclass(frozen=True, kw_only=True)
class StepFlops:
    """FLOPs of one iteration, of the batch and context length of the configuration; null with the reason if unknown."""

    forward: int | None = None
    """FLOPs of forward and loss."""
    backward: int | None = None
    """FLOPs of backward; None also if the mode has none."""
    reason: str | None = None

    def of(self, phase: str) -> int | None:
        """FLOPs of forward, backward or the whole step; None for others. The optimizer has no matrix products."""
        if self.forward is None:
            return None
        step = self.forward + (self.backward or 0)
        return {"forward": self.forward, "backward": self.backward, "step": step}.get(phase)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A configuration and the workloads that run on it, one after the other, in one process."""

    config: TrialConfig
    workloads: tuple[str, ...]
    """In the order in which they run."""
    sweep: str
    question: str | None = None
    """What its sweep asks, as JSON."""
    varying: tuple[str, ...] = field(default=(), compare=False)
    """Fields in which the trials of its grid differ; of the grids that ask for it, the first."""
    code: Code | None = None
    step_takes: tuple[str, ...] = ()
    """Parameters of the function of the user's own step."""
    flops: StepFlops | None = None
    """FLOPs of the user's own model, if planning has counted them."""
    keeps_traces: bool = True
    """Whether a profile also has the trace's file, the shapes of launches, and the table `operators`."""

    def profiled(self) -> "Trial":
        """Return it with a profile of the step that it times, with only what explains differences."""
        if "timing" not in self.workloads or "profile" in self.workloads:
            return self
        return replace(self, workloads=(*self.workloads, "profile"), keeps_traces=False)

    @property
    def references(self) -> tuple[str, ...]:
        return (*self.config.references, *(name for name in self.workloads if is_reference(name)))
