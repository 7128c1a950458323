"""Tensors that have a device but no storage, and the operators of the trial's device for them.

They are on the CPU, on which PyTorch's own autocast and choice of kernels work without storage; `device_operators`
replaces what another device does otherwise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

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
from lmsweep.trials.model.optimizer import MatricesAndOthers, OptimizerOfCopies
from lmsweep.trials.model.precision_modes import MATH_MODES, MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.without_device.device_operators import OUTPUTS, device_operators
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.attentions import FUSED_ATTENTION
from lmsweep.trials.spec.ways.compilations import EAGER

Replaced = Mapping[OpOverload, Callable[..., object]]
"""PyTorch's operator -> what runs in its place."""
MEAN, CHOICES = "expected_mean", "expected_choices"
"""Attributes of tensors of integers: the mean of their values; of indices, how many choices there were."""
MOST_COUNTS = 4096
"""Most integers whose values are kept: more than a layer has experts."""


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
        return _expected(self, func, args, partial(super().dispatch, func, types, args, kwargs))


def _grouped_product(a: Tensor, b: Tensor, offsets: Tensor | None = None, *_: object, **__: object) -> Tensor:
    """The products of a mixture of experts, as torch.nn.functional.grouped_mm documents their shapes. PyTorch's own
    shape function accepts only bfloat16."""
    rows, outer = a.shape[-2], b.shape[-1]
    if a.dim() == b.dim() == 2:
        assert offsets is not None, "each group ends at one of these"
        return a.new_empty(offsets.shape[0], rows, outer)
    return a.new_empty(a.shape[0], rows, outer) if a.dim() == b.dim() else a.new_empty(rows, outer)


def _expected(mode: FakeTensorMode, func: OpOverload, args: Sequence[Any], run: Callable[[], Any]) -> Any:
    """Return an operator's result, as `run` returns it without values, with what is expected of its values.

    In a mixture of experts some sizes depend on values: `nonzero` returns as many rows as an expert has tokens. All
    choices are expected equally often: `topk` of a router's scores notes their number, `eq` or `scatter` makes of them
    a mask with a mean, `sum` adds it up to the tokens of each expert, and `nonzero` takes its size from the mean.
    """
    name = schema_name(func).removeprefix("aten::")
    given = args[0] if args and isinstance(args[0], FakeTensor) else None
    if given is None or given.constant is not None:
        return run()
    mean, choices = (getattr(given, attribute, None) for attribute in (MEAN, CHOICES))
    known = _of_values(mode, name, given, mean, choices)
    if known is not None:
        return known
    result = run()
    made: Any = result
    if name in ("topk", "sort", "max") and isinstance(result, tuple):
        values, indices = result
        made = indices if given.is_floating_point() else values  # sorted integers are indices that were chosen before
    keeps_mask = name in ("scatter", "sum", "_to_copy") or returns_view(func)  # which may be of floating-point numbers
    if not isinstance(made, FakeTensor) or not made.numel() or (made.is_floating_point() and not keeps_mask):
        return result
    # How many elements of the operand there are for each of the result: those that a sum adds, for instance.
    ratio = given.numel() / made.numel()
    mean = _mean_of_result(name, args, made, ratio, mean, choices)
    if mean is not None and name == "sum" and made.dim() == 1 and len(made) <= MOST_COUNTS:  # the tokens of each expert
        parts = min(len(made), choices or len(made))  # a mask may have more classes than there are choices
        return _known(mode, _evenly(round(mean * parts), parts, len(made)).to(made.dtype))
    if name in ("topk", "sort", "max", "argmax") and given.is_floating_point():
        # Indices of the chosen: among as many as the operand's last dimension has, which topk shortens.
        choices = round(ratio * (made.shape[-1] if made.dim() == given.dim() else 1))
    for attribute, value in ((MEAN, mean), (CHOICES, choices)):
        if value is not None:
            setattr(made, attribute, value)
    return result


def _mean_of_result(
    name: str, args: Sequence[Any], made: Tensor, ratio: float, mean: float | None, choices: int | None
) -> float | None:
    """Return the mean of an operator's result, from the operand's; None if it is not known."""
    if name == "scatter" and isinstance(args[2], Tensor):  # ones at these indices, among zeros
        return args[2].numel() / made.numel()
    if mean is not None:
        mean *= ratio if name in ("sum", "any") else 1.0
        return min(1.0, mean) if made.dtype == torch.bool else mean
    return 1 / choices if choices and name == "eq" else None  # a mask of the indices that equal one of the choices


def _of_values(
    mode: FakeTensorMode, name: str, given: FakeTensor, mean: float | None, choices: int | None
) -> Tensor | int | None:
    """Return the expected result of an operator that PyTorch cannot run without values; None for all others."""
    if name == "nonzero" and mean is not None:
        if mean == 1 and given.dim() == 1 and len(given) <= MOST_COUNTS:
            return _known(mode, torch.arange(len(given))[:, None])
        return given.new_empty(max(1, round(mean * given.numel())), given.dim(), dtype=torch.int64)
    if name == "_local_scalar_dense" and mean is not None:  # of a mask, what is more likely
        return mean >= 0.5 if given.dtype == torch.bool else round(mean)
    return _known(mode, _evenly(given.numel(), choices, choices)) if name == "bincount" and choices else None


def _evenly(total: int, parts: int, length: int) -> Tensor:
    """Return integers that divide `total` as evenly as possible into `parts`, and zeros up to this length."""
    ends = [total * number // parts for number in range(parts + 1)]
    return torch.tensor([ends[i + 1] - ends[i] if i < parts else 0 for i in range(length)])


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
    """The configuration on fake tensors and without torch.compile. Fused attention becomes `sdpa`, which
    `device_operators` replaces. FlexAttention, whose mask is in its kernel, saves what a kernel without a mask saves.
    `varlen` has a fake kernel of its own."""
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
    composed = step.optimizer if isinstance(step.optimizer, MatricesAndOthers | OptimizerOfCopies) else None
    for part in composed.parts if composed else (step.optimizer,):
        if not isinstance(part, torch.optim.AdamW):
            continue
        for parameter in part.param_groups[0]["params"]:
            if (has_copies or parameter.grad is not None) and parameter not in part.state:
                with fake if part.param_groups[0]["fused"] else nullcontext():
                    count = torch.zeros((), dtype=torch.float32)
                part.state[parameter] = {
                    "step": count,
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
