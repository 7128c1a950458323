"""What the kernels of a profile work for: which stretch of the step, and whether they are matrix products."""

import re

import pandas as pd

from lmsweep.trials.results.measurement import RANGES

STRETCHES = ("forward", "loss", "backward", "optimizer", "other")
"""What the ranges add up to; other is collectives and what belongs to no range."""

KINDS = ("matmul", "fused_attention", "other")
"""Matrix products, attention in one kernel (there are products in it), and everything else."""

_OPERATORS = {
    "fused_attention": re.compile(r"aten::_?(scaled_dot_product|flash_attention|efficient_attention|cudnn_attention)"),
    "matmul": re.compile(r"aten::(mm|bmm|addmm|baddbmm|mv|addmv|dot|_scaled_mm)$"),
}
"""PyTorch's operators that launch a kind of kernel."""

_KERNELS = {
    "fused_attention": re.compile(r"flash|fmha|sdpa|flex_attention", re.IGNORECASE),
    "matmul": re.compile(r"gemm|gemv|nvjet|triton_(tem|mm)_", re.IGNORECASE),
}
"""Names of such kernels where the operator does not tell, as in a compiled graph."""

_PADDING = re.compile(
    r"^void |\(anonymous namespace\)::|at::native::|<unnamed>::|\(int\)|\(.*\)$"
    r"|cutlass::Kernel\d?<|(?<=align\d)>|tilesize|_(?:warpgroupsize|knob_)\w*$"
)
_GENERIC = re.compile(r"(\w*(?:elementwise|reduce|multi_tensor_apply))_kernel<")
_WORK = re.compile(
    r"\b(?!BinaryFunctor|[AB]?UnaryFunctor|gpu_kernel|func_wrapper)"
    r"(\w*?(?:Functor\w*|_functor|Ops|(?=_kernel_cuda)|(?=_kernel_impl)))(?:_kernel_cuda|_kernel_impl)?\b"
)
"""What a kernel of PyTorch's that serves many operators does: the innermost of its parameters tells."""

MOST_LETTERS = 40
_KEPT = (MOST_LETTERS - 3) // 2
"""Letters of either end of a name that is too long: libraries name a kernel's kind first and its layout last."""


def classified(kernels: pd.DataFrame) -> pd.DataFrame:
    """Rows of a store's table `kernels` with `stretch`, one of STRETCHES, `kind`, one of KINDS, `time`, the seconds of
    one step, and `calls`, those of one step; `range` is `unattributed` where it was null.
    """
    names = zip(kernels["operator"].fillna(""), kernels["kernel"], strict=True)
    return kernels.assign(
        range=kernels["range"].fillna("unattributed"),
        stretch=kernels["range"].map(stretch_of, na_action="ignore").fillna("other"),
        kind=[kind_of(operator, kernel) for operator, kernel in names],
        time=kernels["total"] / kernels["steps"],
        calls=kernels["instances"] / kernels["steps"],
    )


def stretch_of(name: str) -> str:
    """The stretch that a range is in."""
    if name in ("loss", "optimizer"):
        return name
    if name == "collectives":
        return "other"
    # What is inside forward has its own name; `backward of` it, and `recomputed`, belong to backward.
    in_forward = name in (*RANGES[RANGES.index("attention") :], "forward") or name.startswith("graph ")
    return "forward" if in_forward else "backward"


def kind_of(operator: str, kernel: str) -> str:
    """The kind of a kernel; `operator` is empty where it is not known."""
    for kind in ("fused_attention", "matmul"):
        if _OPERATORS[kind].match(operator) or _KERNELS[kind].search(kernel):
            return kind
    return "other"


def short_name(kernel: str) -> str:
    """The name of a kernel without its arguments and namespaces, no longer than a table can hold: `elementwise
    MulFunctor` for one of the kernels that PyTorch makes of a function of numbers.
    """
    generic, work = _GENERIC.search(kernel), _WORK.findall(kernel)
    name = f"{generic[1]} {work[-1]}" if generic and work else _PADDING.sub("", kernel).strip() or kernel
    if len(name) > MOST_LETTERS:
        name = name.split("<")[0] or name
    return name if len(name) <= MOST_LETTERS else f"{name[: _KEPT + 1]}...{name[-_KEPT:]}"
