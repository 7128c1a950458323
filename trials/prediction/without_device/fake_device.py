"""Tensors that have a device but no storage, and the operators of the trial's device for them.

They are on the CPU, on which PyTorch's own autocast and choice of kernels work without storage; `device_operators`
replaces what another device does otherwise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec

import torch
from torch import Tensor

from lmsweep.trials.code.importing import nothing_cached
from lmsweep.trials.machine.torch_private import (
    GROUPED_MM,
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    OpOverload,
    functional_collectives,
    replaced,
)
from lmsweep.trials.memory.storage_tracker import CUDA_BLOCK, FAKE, StorageTracker
from lmsweep.trials.model.optimizer import MatricesAndOthers
from lmsweep.trials.model.precision_modes import MATH_MODES, MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.without_device.device_operators import OUTPUTS, device_operators
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.attentions import FUSED_ATTENTION
from lmsweep.trials.spec.ways.compilations import EAGER

Replaced = Mapping[OpOverload, Callable[..., object]]
"""PyTorch's operator -> what runs in its place."""


class UnpredictableError(Exception):
    """What this configuration does cannot be predicted; the message is the reason."""


class Fakes(FakeTensorMode):
    """A context in which tensors have no storage. Deep-copying a layer keeps this mode."""

    def __init__(self, replaced: Replaced | None = None) -> None:
        """`replaced` are operators that run otherwise than on the CPU."""
        super().__init__(allow_non_fake_inputs=True)
        waited = functional_collectives().wait_tensor.default  # it returns its argument; as PyTorch fakes it, a copy
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
        """Return the operator's result without its values."""
        kwargs = kwargs or {}
        other = self._replaced.get(func)
        return other(*args, **kwargs) if other else super().dispatch(func, types, args, kwargs)


def _grouped_product(a: Tensor, b: Tensor, offsets: Tensor | None = None, *_: object, **__: object) -> Tensor:
    """The products of a mixture of experts, as torch.nn.functional.grouped_mm documents their shapes. PyTorch's own
    shape function accepts only bfloat16."""
    rows, outer = a.shape[-2], b.shape[-1]
    if a.dim() == b.dim() == 2:
        assert offsets is not None, "each group ends at one of these"
        return a.new_empty(offsets.shape[0], rows, outer)
    return a.new_empty(a.shape[0], rows, outer) if a.dim() == b.dim() else a.new_empty(rows, outer)


@contextmanager
def fake_device(config: TrialConfig) -> Iterator[tuple[StorageTracker, Fakes]]:
    """A context with the operators of the trial's device: a tracker of fake storages, and the mode that makes them.
    Raises UnpredictableError if the step needs values."""
    tracker = StorageTracker(FAKE, block=block_of(config))
    try:
        with nothing_cached(), unpacked_batches(config), tracker, device_operators(config):
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
        return replace(eager, attention="sdpa", window=None, document_length=None)
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
    for part in step.optimizer.parts if isinstance(step.optimizer, MatricesAndOthers) else (step.optimizer,):
        if not isinstance(part, torch.optim.AdamW):
            continue
        for parameter in part.param_groups[0]["params"]:
            if parameter.grad is not None and parameter not in part.state:
                if part.param_groups[0]["fused"]:
                    with fake:
                        count = torch.zeros((), dtype=torch.float32)
                else:
                    count = torch.zeros((), dtype=torch.float32)
                part.state[parameter] = {
                    "step": count,
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
