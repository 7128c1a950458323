"""Run a step with the user's own code on fake tensors, which have a device but no storage, and record its allocations.

The user's code may look at devices, so its tensors are on a device: the CPU, on which PyTorch's own autocast and choice
of kernels work without storage. For CUDA, autocast and fused attention are emulated. No layer is extrapolated: the
whole model runs at its full depth.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from lmsweep.trials.code.importing import nothing_cached
from lmsweep.trials.memory.storage_tracker import CUDA_BLOCK, StorageTracker
from lmsweep.trials.model.precision_modes import MATH_MODES, MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.attention_functions import kernel_chosen
from lmsweep.trials.prediction.compiled.trial_graph import UnpredictableError
from lmsweep.trials.prediction.without_device.allocation_trace import Recorder, Trace, leaves_nothing
from lmsweep.trials.prediction.without_device.cuda_operators import OUTPUTS, cuda_operators
from lmsweep.trials.prediction.without_device.fakes import Fakes
from lmsweep.trials.prediction.without_device.kernel_workspace import scratch_of
from lmsweep.trials.prediction.without_device.meta_device import eager_on, make_state
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
    fake = fakes(config)
    block = CUDA_BLOCK if on_cuda else 1
    with (
        nothing_cached(),
        StorageTracker("cpu", block=block) as tracker,
        fake_kernels(config),
        unpacked_batches(config),
    ):
        recorder = Recorder(tracker, scratch_of(config))
        recorder.begin("init")
        try:
            with fake, uninitialized_weights():
                step = TrainingStep(eager_on(config, "cpu"), math_mode)
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
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise UnpredictableError(f"the step depends on values, not only on shapes: {error.func}") from error
        recorder.end()
    return recorder.trace


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


@contextmanager
def uninitialized_weights() -> Iterator[None]:
    """A context in which truncated normal weights need no values: PyTorch draws them again until all are in range."""
    draw = torch.nn.init._no_grad_trunc_normal_
    torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *_, **__: tensor
    try:
        yield
    finally:
        torch.nn.init._no_grad_trunc_normal_ = draw


def fakes(config: TrialConfig) -> Fakes:
    """A context in which tensors have no storage, and the shapes of the device's operators."""
    return Fakes(OUTPUTS if config.device_type == "cuda" else None)


def fake_math_mode(config: TrialConfig) -> MathMode:
    """The configuration's math mode, without the gradient scaler.

    The scaler reads values, which fake tensors lack; its own memory is negligible.
    """
    return replace(MATH_MODES[config.precision], scales_gradients=False)


def fake_kernels(config: TrialConfig) -> AbstractContextManager[object]:
    """A context in which operators are those of the device, with the attention that the configuration chooses."""
    return cuda_operators(config) if config.device_type == "cuda" else kernel_chosen(config.attention)
