"""The words that fields of a configuration accept."""

from typing import Literal

Mode = Literal["forward", "train_forward", "forward_backward", "train_step"]
Precision = Literal[
    "fp32",
    "tf32",
    "bf16",
    "fp16",
    "bf16_pure",
    "fp8_tensorwise",
    "fp8_rowwise",
    "fp8_rowwise_gw_hp",
]
FLOAT8_PRECISIONS = ("fp8_tensorwise", "fp8_rowwise", "fp8_rowwise_gw_hp")
"""Precisions in which the linear layers of the blocks multiply numbers of 8 bits."""
Compile = Literal["none", "block", "model"]
Attention = Literal[
    "naive", "naive_softmax", "sdpa", "sdpa_math", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "flex", "varlen"
]
Optimizer = Literal[
    "adamw_fused", "adamw_foreach", "adamw_loop", "adamw_8bit", "adamw_4bit", "sgd", "adafactor", "muon"
]
ZeroGrad = Literal["after_step", "before_backward"]
HIDDEN_LOSSES = ("chunked", "liger", "cut_cross_entropy")
"""Losses that take hidden states and the weight of the output head, not logits."""
CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")
"""Values of `compile_mode` with which torch.compile records CUDA graphs."""
Capture = Literal["none", "step"]
GPU_DEVICES = ("cuda", "xpu")
"""Kinds of device that Ray counts and assigns: NVIDIA's and AMD's GPUs, Intel's GPUs."""
Checkpointing = Literal["none", "block", "sqrt", "nested", "selective"]
"""Words of `checkpointing`; a number of blocks is another value."""
Gather = Literal["fp32", "bf16"]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
Loss = Literal["eager", "cross_entropy", "compiled", "chunked", "liger", "cut_cross_entropy"]
Profiler = Literal["torch", "nsys"]
Auto = Literal["auto"]
"""The number of steps is decided during the measurement: see `lmsweep.trials.timing.stopping`."""
NARROW_PRECISIONS = ("bf16", "fp16", "bf16_pure", *FLOAT8_PRECISIONS)
"""Precisions in which attention multiplies numbers of 16 bits."""
ADAMW = ("adamw_fused", "adamw_foreach", "adamw_loop")
"""PyTorch's forms of AdamW. They differ in kernels, not in results."""
