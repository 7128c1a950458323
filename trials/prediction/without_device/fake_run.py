"""Run a step with the user's own code on fake tensors, which have a device but no storage, and record its allocations.

The user's code may look at devices, so its tensors are on a device: the CPU, on which PyTorch's own autocast and choice
of kernels work without storage. For CUDA, autocast and fused attention are emulated. No layer is extrapolated: the
whole model runs at its full depth.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec

from torch import Tensor

from lmsweep.trials.code.importing import nothing_cached
from lmsweep.trials.machine.torch_private import (
    GROUPED_MM,
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    OpOverload,
    replaced,
    unset_random_weights,
)
from lmsweep.trials.memory.storage_tracker import CUDA_BLOCK, StorageTracker
from lmsweep.trials.model.precision_modes import MATH_MODES, MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.attention_functions import kernel_chosen
from lmsweep.trials.prediction.compiled.trial_graph import UnpredictableError
from lmsweep.trials.prediction.without_device.allocation_trace import Recorder, Trace, leaves_nothing
from lmsweep.trials.prediction.without_device.cuda_operators import OUTPUTS, cuda_operators
from lmsweep.trials.prediction.without_device.kernel_workspace import scratch_of
from lmsweep.trials.prediction.without_device.meta_device import eager_on, make_state
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference

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
    """The products of a mixture of experts, as torch.nn.functional.grouped_mm documents their shapes. PyTorch's own
    shape function accepts only bfloat16."""
    rows, outer = a.shape[-2], b.shape[-1]
    if a.dim() == b.dim() == 2:
        assert offsets is not None, "each group ends at one of these"
        return a.new_empty(offsets.shape[0], rows, outer)
    return a.new_empty(a.shape[0], rows, outer) if a.dim() == b.dim() else a.new_empty(rows, outer)


@lru_cache(maxsize=4)
def users_trace(config: TrialConfig, iterations: int) -> Trace:
    """The allocations and frees of the trial: `init`, then for each iteration the phases of its mode and `dropped`.
    Raises UnpredictableError if the step needs values that only a real tensor has, and what the user's code raises."""
    if config.compile != "none":
        raise UnpredictableError("the memory of a compiled model of your own is not predicted")
    with fake_device(config) as (tracker, fake):
        recorder = Recorder(tracker, scratch_of(config))
        recorder.begin("init")
        with fake, unset_random_weights():
            step = TrainingStep(eager_on(config, "cpu"), fake_math_mode(config))
        for index in range(iterations):
            last = recorder.trace[-len(step.phases()) - 1 :]
            if index > 1 and leaves_nothing(last):
                recorder.trace += last
                continue
            for phase in step.phases():
                recorder.begin(phase.name)
                if phase.name != "optimizer":
                    with fake:
                        phase.run()
                    continue
                # AdamW reads its count of steps, so that is a real tensor.
                if not is_reference(config.optimizer):
                    make_state(step, counted_on="cpu")
                phase.run()
            recorder.begin("dropped")
            step.drop()
        recorder.end()
    return recorder.trace


@contextmanager
def fake_device(config: TrialConfig) -> Iterator[tuple[StorageTracker, Fakes]]:
    """A context with the operators of the trial's device: a tracker of storages on the CPU, and the mode without them.
    Raises UnpredictableError if the step needs values."""
    on_cuda = config.device_type == "cuda"
    kernels = cuda_operators(config) if on_cuda else kernel_chosen(config.attention)
    tracker = StorageTracker("cpu", block=block_of(config))
    try:
        with nothing_cached(), unpacked_batches(config), tracker, kernels:
            yield tracker, Fakes(OUTPUTS if on_cuda else None)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise UnpredictableError(f"the step depends on values, not only on shapes: {error.func}") from error


@contextmanager
def unpacked_batches(config: TrialConfig) -> Iterator[None]:
    """A context in which transformers' models need not look at values to see that each row is one sequence."""
    if not config.is_hugging_face or find_spec("transformers") is None:
        yield
        return
    from transformers import masking_utils

    with replaced(masking_utils, "find_packed_sequence_indices", lambda position_ids: None):
        yield


def block_of(config: TrialConfig) -> int:
    """The device's allocator hands out multiples of so many bytes."""
    return CUDA_BLOCK if config.device_type == "cuda" else 1


def fake_math_mode(config: TrialConfig) -> MathMode:
    """The configuration's math mode without the gradient scaler, which reads values; its own memory is negligible."""
    return replace(MATH_MODES[config.precision], scales_gradients=False)
