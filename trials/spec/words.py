"""The words that fields of a configuration accept."""

from typing import TYPE_CHECKING, Literal

from lmsweep.trials.spec.ways.adapters import ADAPTERS
from lmsweep.trials.spec.ways.allocators import ALLOCATORS
from lmsweep.trials.spec.ways.compilations import COMPILATIONS
from lmsweep.trials.spec.ways.offloads import OFFLOADS
from lmsweep.trials.spec.ways.precisions import PRECISIONS

Mode = Literal["forward", "train_forward", "forward_backward", "train_step"]
ZeroGrad = Literal["after_step", "before_backward"]
CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")
"""Values of `compile_mode` with which torch.compile records CUDA graphs."""
Capture = Literal["none", "step"]  # step: each phase is one CUDA graph
GPU_DEVICES = ("cuda", "xpu")
"""Kinds of device that Ray counts and assigns: NVIDIA's and AMD's GPUs, Intel's GPUs."""
Batching = Literal["padded", "grouped", "packed", "token_budget"]
Gather = Literal["fp32", "bf16"]  # type of the weights that sharding gathers
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
Profiler = Literal["torch", "nsys"]
NAMED_TRAINERS = ("LLM-Foundry", "Megatron", "fms-fsdp", "nanotron", "prime-rl", "torchtitan")
"""Trainers with published step times of three models or more: enough for a prediction interval of their own."""
Auto = Literal["auto"]
"""As a number of steps: it is decided during the measurement (`lmsweep.trials.timing.stopping`)."""

if TYPE_CHECKING:
    Precision = str
    Compile = str
    AdapterWord = str
    Offload = str
    Allocator = str
else:  # type checkers cannot unpack a dict into Literal
    AdapterWord = Literal["none", *ADAPTERS]
    Offload = Literal[tuple(OFFLOADS)]
    Allocator = Literal[tuple(ALLOCATORS)]
    Compile = Literal[*COMPILATIONS]
    Precision = Literal[tuple(PRECISIONS)]

FLOAT8_PRECISIONS = tuple(name for name, formats in PRECISIONS.items() if formats.float8_recipe)
"""Precisions in which the linear layers of the blocks multiply numbers of 8 bits."""
NARROW_PRECISIONS = tuple(name for name, formats in PRECISIONS.items() if formats.is_narrow)
"""Precisions in which attention multiplies numbers of 16 bits."""
