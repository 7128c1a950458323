"""Precisions. To add one, add a row to PRECISIONS; a recipe of torchao needs no more."""

from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True, kw_only=True)
class NumberFormats:
    """The number formats of a training step, with types by their name in PyTorch."""

    weights: str = "float32"
    """Type of weights and gradients, and of the optimizer's state unless it has copies of the weights."""
    has_copies: bool = False
    """Whether the optimizer updates float32 copies of the weights (Micikevicius et al. 2018): in 16 bits a small update
    is lost in the sum, and the square of a small gradient is 0."""
    autocast: str | None = None
    """Type that autocast casts to; None: no autocast."""
    tf32: bool = False
    """Whether float32 matrix products may use TF32 tensor cores."""
    scales_gradients: bool = False
    """Whether a gradient scaler guards against underflow."""
    float8_recipe: str | None = None
    """Recipe of torchao by which the linear layers of blocks multiply in float8."""
    rate: str
    """The datasheet's FLOP/s that apply: a field of `Device`."""
    compute_capability: tuple[int, int] | None = None
    """The lowest of NVIDIA's GPUs with these tensor cores; None: any device, if it has the types."""
    gradient_error: float = 0.0
    """Largest relative error of a gradient that the order of additions explains. 0: not measured in ranks of ddp.
    Without synchronization, or with a sum in place of the mean, the error is of the order of 1."""
    update_error: float = 0.0
    """The largest relative error of what two steps add to a weight. AdamW divides each gradient by its own size, so
    that an error in a small gradient counts as much as one in a large gradient."""

    @property
    def operand(self) -> str:
        """Type of the operands of matrix products outside of float8 layers."""
        return self.autocast or self.weights

    @property
    def is_narrow(self) -> bool:
        """Whether operands have 16 bits."""
        return self.operand != "float32"

    @property
    def weight_bytes(self) -> int:
        """Bytes of a weight, of its gradient and of each of its numbers in the optimizer's state."""
        return 4 if self.weights == "float32" else 2


_float8 = partial(
    NumberFormats,
    autocast="bfloat16",
    rate="fp8",
    compute_capability=(8, 9),
    gradient_error=0.25,  # one is 0.12 to 0.19 from the exact gradient (small to xl, H100); two differ by more
    update_error=0.5,
)

PRECISIONS: dict[str, NumberFormats] = {
    "fp32": NumberFormats(rate="fp32", gradient_error=1e-4, update_error=1e-2),
    "tf32": NumberFormats(tf32=True, rate="tf32", compute_capability=(8, 0), gradient_error=1e-2, update_error=0.1),
    "bf16": NumberFormats(autocast="bfloat16", rate="bf16", gradient_error=2e-2, update_error=0.1),
    "fp16": NumberFormats(
        autocast="float16", scales_gradients=True, rate="fp16", gradient_error=2e-2, update_error=0.1
    ),
    "bf16_pure": NumberFormats(weights="bfloat16", rate="bf16", gradient_error=5e-2, update_error=0.5),
    "fp16_pure": NumberFormats(
        weights="float16", has_copies=True, scales_gradients=True, rate="fp16", gradient_error=2e-2, update_error=0.5
    ),
    "fp8_tensorwise": _float8(float8_recipe="tensorwise"),
    "fp8_rowwise": _float8(float8_recipe="rowwise"),
    "fp8_rowwise_gw_hp": _float8(float8_recipe="rowwise_with_gw_hp"),
}
"""Value of the field `precision` -> its number formats."""
