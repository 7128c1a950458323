"""Tensors that have a device but no storage, and the operators of the trial's device for them.

They are on the CPU, on which PyTorch's own autocast and choice of kernels work without storage; `device_operators`
replaces what another device does otherwise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lmsweep.trials.code.importing import nothing_cached
from lmsweep.trials.machine.torch_private import (
    GROUPED_MM,
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    constants,
    functional_collectives,
    replaced,
    returns_view,
    schema_name,
)
from lmsweep.trials.memory.storage_tracker import CUDA_BLOCK, FAKE, StorageTracker
from lmsweep.trials.model.optimizer import OptimizerOfCopies
from lmsweep.trials.model.precision_modes import MATH_MODES, MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.without_device.device_operators import OUTPUTS, device_operators
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.attentions import FUSED_ATTENTION
from lmsweep.trials.spec.ways.compilations import EAGER

Replaced = Mapping[OpOverload, Callable[..., object]]
"""PyTorch's operator -> what runs in its place."""
MOST_COUNTS = 4096
"""Most integers whose values are kept: more than a layer has experts."""


class Expected(NamedTuple):
    """What is expected of the values of integers or of a mask: an attribute of their tensor."""

    mean: float | None = None
    choices: int | None = None
    """Of indices: how many choices there were."""


class UnpredictableError(Exception):
    """What this configuration does cannot be predicted; the message is the reason."""


class Fakes(FakeTensorMode):
    """A context in which tensors have no storage. Deep-copying a layer keeps this mode."""

    def __init__(self, replaced: Replaced | None = None) -> None:
        """replaced: operators whose results differ from those on the CPU."""
        super().__init__(allow_non_fake_inputs=True)
        waited = functional_collectives().wait_tensor.default  # returns its argument, but PyTorch's fake of it a copy
        self._replaced: Replaced = {GROUPED_MM: _grouped_product, waited: lambda tensor: tensor, **(replaced or {})}

    def __deepcopy__(self, memo: object) -> "Fakes":
        return self

    def dispatch(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if func in self._replaced:
            return self._replaced[func](*args, **kwargs)
        return _with_expected(self, func, args, partial(super().dispatch, func, types, args, kwargs))


def _grouped_product(a: Tensor, b: Tensor, offsets: Tensor | None = None, *_: object, **__: object) -> Tensor:
    """A tensor of the shape that grouped_mm returns: PyTorch's own shape function accepts only bfloat16."""
    rows, outer = a.shape[-2], b.shape[-1]
    if a.dim() == b.dim() == 2:  # groups divide the inner dimension: a product for each
        assert offsets is not None, "each group ends at one of these"
        return a.new_empty(offsets.shape[0], rows, outer)
    if a.dim() == b.dim() == 3:
        return a.new_empty(a.shape[0], rows, outer)
    return a.new_empty(rows, outer)  # groups divide the rows of a or the columns of b


def _with_expected(mode: FakeTensorMode, func: OpOverload, args: Sequence[Any], run: Callable[[], Any]) -> Any:
    """Return an operator's result, as `run` returns it without values, with what is expected of its values.

    In a mixture of experts some sizes depend on values: `nonzero` returns as many rows as an expert has tokens. All
    choices are expected equally often. For example, `topk` chooses 2 of 8 experts for each of 100 tokens: indices of 8
    choices. `eq` makes a mask (100, 2) of one expert, whose mean is 1 / 8, and `nonzero` of it returns 25 rows.
    `scatter` makes a mask (100, 8), whose mean is 1 / 4, and `sum` of it over the tokens returns 8 counts of 25.
    """
    name = schema_name(func).removeprefix("aten::")
    given = args[0] if args and isinstance(args[0], FakeTensor) else None
    if given is None or given.constant is not None:
        return run()
    expected: Expected = vars(given).get("expected", Expected())
    known = _of_values(mode, name, given, expected)
    if known is not None:
        return known
    result = run()
    carrier = _carrier(func, name, given, result)
    if carrier is None:
        return result
    mean, choices = _of_result(name, args, carrier, expected)
    if name == "sum" and mean is not None and carrier.dim() == 1 and len(carrier) <= MOST_COUNTS:  # tokens per expert
        experts = min(len(carrier), choices or len(carrier))  # a mask may have more classes than choices
        tokens = _evenly(round(mean * experts), experts, len(carrier))
        return _known(mode, tokens.to(carrier.dtype))
    vars(carrier)["expected"] = Expected(mean, choices)
    return result


def _carrier(func: OpOverload, name: str, given: Tensor, result: Any) -> Tensor | None:
    """Return the tensor of a result that has indices, counts or a mask; None if it has others."""
    if name in ("topk", "sort", "max") and isinstance(result, tuple):
        values, indices = result
        # `given` are scores, or indices that were chosen before and are now sorted.
        result = indices if given.is_floating_point() else values
    if not isinstance(result, FakeTensor) or not result.numel():
        return None
    may_be_mask = name in ("scatter", "sum", "_to_copy") or returns_view(func)  # even if floating-point
    return result if may_be_mask or not result.is_floating_point() else None


def _of_result(name: str, args: Sequence[Any], result: Tensor, operand: Expected) -> Expected:
    """Return what is expected of an operator's result, from what is expected of its first argument."""
    given, (mean, choices) = args[0], operand
    ratio = given.numel() / result.numel()  # elements of the operand for each of the result: those that a sum adds
    if name == "scatter" and isinstance(args[2], Tensor):  # ones at these indices, among zeros
        return Expected(args[2].numel() / result.numel(), choices)
    if mean is not None:
        mean *= ratio if name in ("sum", "any") else 1.0
        mean = min(1.0, mean) if result.dtype == torch.bool else mean
    elif choices and name == "eq":  # a mask of the indices that equal one of the choices
        mean = 1 / choices
    if name in ("topk", "sort", "max", "argmax") and given.is_floating_point():
        # As many as the last dimension of the operand has: from (100, 8), topk (100, 2) 4 * 2, argmax (100,) 8 * 1.
        choices = round(ratio * (result.shape[-1] if result.dim() == given.dim() else 1))
    return Expected(mean, choices)


def _of_values(mode: FakeTensorMode, name: str, given: FakeTensor, expected: Expected) -> Tensor | int | None:
    """Return the expected result of an operator that PyTorch cannot run without values; None for all others."""
    mean, choices = expected
    if name == "nonzero" and mean is not None:
        if mean == 1 and given.dim() == 1 and len(given) <= MOST_COUNTS:  # all are nonzero
            return _known(mode, torch.arange(len(given))[:, None])
        return given.new_empty(max(1, round(mean * given.numel())), given.dim(), dtype=torch.int64)
    if name == "_local_scalar_dense" and mean is not None:  # of a mask, what is more likely
        return mean >= 0.5 if given.dtype == torch.bool else round(mean)
    if name == "bincount" and choices:
        return _known(mode, _evenly(given.numel(), choices, choices))
    return None


def _evenly(total: int, parts: int, length: int) -> Tensor:
    """Return integers that divide `total` as evenly as possible into `parts`, and zeros up to this length."""
    ends = [total * number // parts for number in range(parts + 1)]
    return torch.tensor([end - begin for begin, end in pairwise(ends)] + [0] * (length - parts))


def _known(mode: FakeTensorMode, values: Tensor) -> Tensor:
    return mode.fake_tensor_converter.from_real_tensor(mode, values, make_constant=True)


@contextmanager
def fake_device(config: TrialConfig) -> Iterator[tuple[StorageTracker, Fakes]]:
    """A context with the operators of the trial's device: a tracker of fake storages, and the mode that makes them.
    Raises UnpredictableError if the step needs values."""
    tracker = StorageTracker(FAKE, block=block_of(config))
    try:
        with nothing_cached(), unpacked_batches(config), tracker, device_operators(config), constants(MOST_COUNTS):
            yield tracker, Fakes(OUTPUTS if config.device_type == "cuda" else None)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise UnpredictableError(f"the step depends on values, not only on shapes: {error.func}") from error


def unpacked_batches(config: TrialConfig) -> AbstractContextManager[None]:
    """A context in which transformers' models need not look at values to see that each row is one sequence."""
    if not config.is_hugging_face or find_spec("transformers") is None:
        return nullcontext()
    from transformers import masking_utils

    return replaced(masking_utils, "find_packed_sequence_indices", lambda position_ids: None)


def block_of(config: TrialConfig) -> int:
    """Return the number of bytes to which the device's allocator rounds sizes up."""
    return CUDA_BLOCK if config.device_type == "cuda" else 1


def fake_math_mode(config: TrialConfig) -> MathMode:
    """The configuration's math mode without the gradient scaler, which reads values; its own memory is negligible."""
    return replace(MATH_MODES[config.precision], scales_gradients=False)


def eager_on_fakes(config: TrialConfig) -> TrialConfig:
    """The configuration on fake tensors, not compiled. Fused attention becomes `sdpa`, which `device_operators`
    replaces; FlexAttention without a mask, which its kernel contains. `varlen` has a fake kernel of its own."""
    eager = replace(config, device="cpu", **EAGER)
    if config.attention == "flex":
        return replace(eager, attention="sdpa", window=None, lengths=None, batching="padded")
    if config.attention in FUSED_ATTENTION and config.attention != "varlen":
        return replace(eager, attention="sdpa")
    return eager


def differs_by_device(config: TrialConfig) -> bool:
    """Whether the configuration runs different operations on different devices."""
    return config.attention in FUSED_ATTENTION or MATH_MODES[config.precision].autocast_dtype is not None


def make_state(step: TrainingStep, fake: Fakes) -> None:
    """Create the state that AdamW creates at its first step.

    Unless it is fused, AdamW reads the values of its step counters, so these are real tensors on the CPU.
    """
    assert step.optimizer is not None, "the optimizer phase has an optimizer"
    has_copies = isinstance(step.optimizer, OptimizerOfCopies)  # which get gradients in the step
    for part in getattr(step.optimizer, "parts", [step.optimizer]):
        if not isinstance(part, torch.optim.AdamW):
            continue
        group = part.param_groups[0]  # its only one
        for parameter in group["params"]:
            if (has_copies or parameter.grad is not None) and parameter not in part.state:
                with fake if group["fused"] else nullcontext():
                    count = torch.zeros((), dtype=torch.float32)
                part.state[parameter] = {
                    "step": count,
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
