"""Tensors that have a device and a type, but no storage, for the user's own code: PyTorch's fake tensors."""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from lmsweep.trials.machine.torch_private import GROUPED_MM, FakeTensorMode, OpOverload

Replaced = Mapping[OpOverload, Callable[..., object]]
"""PyTorch's operator -> what runs in its place."""


class Fakes(FakeTensorMode):
    """A context in which tensors have no storage. A copy of a layer shares it with the layer."""

    def __init__(self, replaced: Replaced | None = None) -> None:
        """`replaced` are operators that run otherwise than on the CPU."""
        super().__init__(allow_non_fake_inputs=True)
        self._replaced = {GROUPED_MM: _grouped_product, **(replaced or {})}

    def __deepcopy__(self, memo: object) -> "Fakes":
        return self

    def dispatch(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Return the operator's result without its values."""
        kwargs = kwargs or {}
        other = self._replaced.get(func)
        return other(*args, **kwargs) if other else super().dispatch(func, types, args, kwargs)


def _grouped_product(a: Tensor, b: Tensor, offsets: Tensor | None = None, *_: object, **__: object) -> Tensor:
    """The products of a mixture of experts, as torch.nn.functional.grouped_mm documents their shapes.

    PyTorch's own shape function accepts only bfloat16.
    """
    rows, outer = a.shape[-2], b.shape[-1]
    if a.dim() == b.dim() == 2:
        assert offsets is not None, "each group ends at one of these"
        return a.new_empty(offsets.shape[0], rows, outer)
    return a.new_empty(a.shape[0], rows, outer) if a.dim() == b.dim() else a.new_empty(rows, outer)
