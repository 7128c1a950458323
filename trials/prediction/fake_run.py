"""Run a step with the user's own code on fake tensors, which have a device but no storage, and record its allocations.

The user's code may look at devices, so its tensors are on a device: the CPU, on which PyTorch's own autocast and choice
of kernels work without storage. For CUDA, autocast and fused attention are emulated. No layer is extrapolated: the
whole model runs at its full depth.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec

from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from lmsweep.trials.memory.storage_tracker import CUDA_BLOCK, StorageTracker
from lmsweep.trials.model.emulated_autocast import CompleteCudaAutocast
from lmsweep.trials.model.precision import MATH_MODES, MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.allocation_trace import Recorder, Trace
from lmsweep.trials.prediction.kernel_workspace import scratch_bytes
from lmsweep.trials.prediction.meta_device import (
    FusedAttention,
    GroupedProducts,
    autocast_again,
    eager_on,
    make_state,
    meta_math_mode,
)
from lmsweep.trials.prediction.trial_graph import UnpredictableError
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference


@lru_cache(maxsize=4)
def own_trace(config: TrialConfig, iterations: int) -> Trace:
    """The allocations and frees of the trial: `init`, then for each iteration the phases of its mode and `dropped`.

    Raises UnpredictableError if the step needs values that only a real tensor has, and what the user's code raises.
    """
    if config.compile != "none":
        raise UnpredictableError("the memory of a compiled model of your own is not predicted")
    on_cuda = config.device_type == "cuda"
    math_mode = fake_math_mode(config)
    fake = Fakes(allow_non_fake_inputs=True)
    block = CUDA_BLOCK if on_cuda else 1
    with (
        StorageTracker("cpu", block=block) as tracker,
        fake_kernels(config),
        GroupedProducts(),
        unpacked_batches(config),
    ):
        recorder = Recorder(tracker, scratch_bytes if on_cuda else None)
        recorder.begin("init")
        try:
            with fake:
                step = TrainingStep(eager_on(config, "cpu"), math_mode)
            if on_cuda and config.checkpointing != "none":
                autocast_again(step.blocks, math_mode)
            for _ in range(iterations):
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
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise UnpredictableError(f"the step depends on values, not only on shapes: {error.func}") from error
        recorder.end()
    return recorder.trace


class Fakes(FakeTensorMode):
    """A mode that a copy of a layer shares with the layer."""

    def __deepcopy__(self, memo: object) -> "Fakes":
        return self


@contextmanager
def unpacked_batches(config: TrialConfig) -> Iterator[None]:
    """A context in which transformers' models need not look at values to see that each row is one sequence."""
    if not config.is_hugging_face or find_spec("transformers") is None:
        yield
        return
    from transformers import masking_utils

    look = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = look


def fake_math_mode(config: TrialConfig) -> MathMode:
    """The configuration's math mode for tensors without storage on the CPU."""
    if config.device_type == "cuda":
        return replace(meta_math_mode(config), emulated=CompleteCudaAutocast)
    # The gradient scaler reads values, which fake tensors lack; its own memory is negligible.
    return replace(MATH_MODES[config.precision], scales_gradients=False)


def fake_kernels(config: TrialConfig) -> AbstractContextManager[object]:
    """A context in which scaled_dot_product_attention is that of the device."""
    return FusedAttention(config) if config.device_type == "cuda" else nullcontext()
