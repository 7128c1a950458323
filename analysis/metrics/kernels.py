"""Classifies profiled kernels by the phase of the step and by kind: matrix product, fused attention, other."""

import re
from functools import cache

import pandas as pd

STEP_PHASES = ("forward", "loss", "backward", "optimizer", "other")
"""The phases that the kernels of a step are divided into; other is collectives and kernels outside any range."""

KINDS = ("matmul", "fused_attention", "other")
"""Matrix products, attention fused into one kernel (which contains matrix products), and everything else."""

_OPERATORS = {
    "fused_attention": re.compile(r"aten::_?(scaled_dot_product|flash_attention|efficient_attention|cudnn_attention)"),
    "matmul": re.compile(r"aten::(mm|bmm|addmm|baddbmm|mv|addmv|dot|_scaled_mm)$"),
}
"""PyTorch operators that launch a kernel of each kind."""

_KERNELS = {
    "fused_attention": re.compile(r"flash|fmha|sdpa|flex_attention", re.IGNORECASE),
    "matmul": re.compile(r"gemm|gemv|nvjet|triton_(tem|mm)_", re.IGNORECASE),
}
"""Names of such kernels, for launches whose operator is unknown, as in a compiled graph."""

_PADDING = re.compile(
    r"^void |\(anonymous namespace\)::|at::native::|<unnamed>::"
    r"|\(int\)|\(.*\)$"  # a cast among the template's parameters; the arguments
    r"|cutlass::Kernel\d?<|(?<=align\d)>"  # cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4>
    r"|tilesize|_(?:warpgroupsize|knob_)\w*$"  # sm90_xmma_gemm_f32f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_...
)
"""Pieces of a name that say nothing about what the kernel computes."""
_GENERIC = re.compile(r"(\w*(?:elementwise|reduce|multi_tensor_apply))_kernel<")
_WRAPPERS = ("BinaryFunctor", "UnaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "gpu_kernel", "func_wrapper")
"""Template parameters of generic kernels that wrap the operation."""
_OF_OPERATION = ("_functor", "Ops", "_kernel_cuda", "_kernel_impl")
"""What names of operations end with, if they have no `Functor` in them."""

MOST_LETTERS = 40
_KEPT = (MOST_LETTERS - len("...")) // 2
"""Letters kept at either end of a name that is too long."""


def classified(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a store's table `kernels` with `phase`, `kind`, `time` (seconds) and `calls` per step."""
    names = zip(kernels["operator"].fillna(""), kernels["kernel"], strict=True)
    return kernels.assign(
        range=kernels["range"].fillna("unattributed"),
        phase=kernels["range"].map(phase_of, na_action="ignore").fillna("other"),
        kind=[kind_of(operator, kernel) for operator, kernel in names],
        time=kernels["total"] / kernels["steps"],
        calls=kernels["instances"] / kernels["steps"],
    )


def phase_of(name: str) -> str:
    """Return the phase of the step (one of STEP_PHASES) that the range of this name belongs to."""
    if name in ("loss", "optimizer"):
        return name
    if name == "collectives":
        return "other"
    if name in ("backward", "accumulate_grad") or name.startswith(("backward of ", "recomputed ")):
        return "backward"
    return "forward"  # its ranges have names of their own, as have the modules of the user's model


@cache  # a profile launches a kernel in many places, and many tables show it
def kind_of(operator: str, kernel: str) -> str:
    """Return the kind of a kernel, one of KINDS; `operator` is empty if unknown."""
    for kind in ("fused_attention", "matmul"):
        if _OPERATORS[kind].match(operator) or _KERNELS[kind].search(kernel):
            return kind
    return "other"


@cache
def short_name(kernel: str) -> str:
    """Return a kernel's name without arguments and namespaces, at most MOST_LETTERS long.

    A generic kernel of PyTorch is named by its operation, as in `elementwise MulFunctor`.
    """
    generic, operation = _GENERIC.search(kernel), _operation(kernel)
    name = f"{generic[1]} {operation}" if generic and operation else _PADDING.sub("", kernel).strip() or kernel
    if len(name) > MOST_LETTERS:
        name = name.split("<")[0] or name
    return name if len(name) <= MOST_LETTERS else f"{name[: _KEPT + 1]}...{name[-_KEPT:]}"


def _operation(kernel: str) -> str | None:
    """Return the operation of a generic PyTorch kernel: the innermost of its template parameters names it."""
    words = [word for word in re.findall(r"\w+", kernel) if not word.startswith(_WRAPPERS)]
    named = [word for word in words if "Functor" in word or word.endswith(_OF_OPERATION)]
    return re.sub("_kernel_(cuda|impl)$", "", named[-1]) if named else None
