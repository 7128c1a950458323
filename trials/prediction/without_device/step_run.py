"""One run of a trial's step without its device, which yields what the step allocates and what it computes.

The step is the real one, of one process or of one rank with its synchronization, on tensors without storage; stand-ins
for compiled parts allocate as their graphs would.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.util import find_spec

import torch
from torch.nn import Module

from lmsweep.trials.machine.torch_private import replaced, unset_random_weights
from lmsweep.trials.memory.storage_tracker import StorageTracker
from lmsweep.trials.model.adapted_layers import import_adapters
from lmsweep.trials.model.attention_step import AttentionStep
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.flex_attention import block_mask_of
from lmsweep.trials.model.users.users_step import FUNCTION_PHASE, UsersStep
from lmsweep.trials.prediction.compiled.graph_memory import GraphMemory, as_compiled, graph_memory
from lmsweep.trials.prediction.compiled.trial_graph import graph_config, traced_attention, traced_graph
from lmsweep.trials.prediction.without_device.allocation_trace import (
    Recorder,
    Trace,
    leaves_only,
    with_ordered_frees,
    without_lasting,
)
from lmsweep.trials.prediction.without_device.fake_device import (
    Fakes,
    block_of,
    eager_on_fakes,
    fake_device,
    fake_math_mode,
    make_state,
)
from lmsweep.trials.prediction.without_device.kernel_workspace import scratch_of
from lmsweep.trials.prediction.without_device.operator_log import OperatorLog
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.adapters import ADAPTERS
from lmsweep.trials.spec.ways.attentions import FUSED_ATTENTION
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.timing.clock import Phase

ITERATIONS = 3
"""The first creates what persists: the optimizer's state, gradients, the buckets of ranks. The second begins with it;
the third also with the allocator's cache as the second left it, as do all that follow."""


@dataclass(frozen=True, kw_only=True)
class StepRun:
    trace: Trace
    """`init`, then for each iteration its phases and `dropped`: allocations and frees."""
    log: OperatorLog
    """The operators of the last iteration that ran."""


@lru_cache(maxsize=4)
def step_run(config: TrialConfig) -> StepRun:
    """Run all iterations that differ, of one process or of the rank with the largest share of the optimizer's state.
    Raises UnpredictableError if the step needs values, UnsupportedError as the trial, and what the user's code does."""
    if config.ddp == "none":
        return record(config)
    from lmsweep.trials.prediction.without_device.fake_ranks import largest_rank

    return record(config, largest_rank(config))


def record(config: TrialConfig, rank: int | None = None, *, repeats: bool = True) -> StepRun:
    """Run a step. repeats: copy an iteration that leaves nothing behind instead of running it again."""
    memory = None
    if config.adapter != "none" and ADAPTERS[config.adapter].magnitudes:  # the others have stand-ins
        import_adapters(config)
    if config.compile != "none":
        memory = graph_memory(traced_graph(graph_config(config)), block=block_of(config))
    with _device(config, rank) as (tracker, fake):
        log = OperatorLog(config)
        recorder = Recorder(tracker, scratch_of(config), log)
        recorder.begin("init")
        if config.step:
            running = _users(config, fake)
        else:
            running = _process(config, fake, recorder, memory) if rank is None else _rank(config, fake, recorder)
        begun = len(recorder.trace)
        with log.watching(running.model):
            for index in range(ITERATIONS if leaves_something(config) else 1):
                previous, begun = recorder.trace[begun:], len(recorder.trace)  # stretches of the iteration before
                if repeats and (copies := _copies(config, index, previous)):
                    for one in copies:
                        recorder.repeat(one)
                    break  # the copies are all iterations that remained
                _iterate(config, running, recorder)
        recorder.end()
    autocast = PRECISIONS[config.precision].autocast is not None
    return StepRun(trace=with_ordered_frees(recorder.trace) if autocast else recorder.trace, log=log)


def _copies(config: TrialConfig, index: int, previous: Trace) -> list[Trace]:
    """Return this iteration and all after it as copies of the previous one; none if it has to run."""
    if index == 1 and _creates_only_state(config, previous):
        return 2 * [without_lasting(previous)]  # the second iteration and the third
    return [previous] if index == ITERATIONS - 1 and leaves_only(None, previous) else []


def _iterate(config: TrialConfig, running: "_Running", recorder: Recorder) -> None:
    recorder.log.begin_iteration()
    if config.varies:  # the first batch is drawn again when steps begin
        recorder.begin("forward")
        running.advance()
    for phase in running.phases():
        recorder.begin("forward" if phase.name == FUNCTION_PHASE else phase.name)
        running.run(phase)
    recorder.begin("dropped")
    running.drop()


def leaves_something(config: TrialConfig) -> bool:
    """Whether an iteration leaves something to the next: optimizer state, gradients, buckets."""
    leaves_gradients = config.mode == "forward_backward" and config.zero_grad != "after_step"
    return config.ddp != "none" or config.mode == "train_step" or leaves_gradients


def _creates_only_state(config: TrialConfig, first: Trace) -> bool:
    """Whether the first iteration differs from those that follow only by creating AdamW's state. A model of
    transformers may also leave a loss scale or a cache, so its trace is checked."""
    plain = config.ddp == "none" and not (config.has_own_code or config.varies) and config.mode == "train_step"
    only_state = plain and config.zero_grad == "after_step" and config.optimizer.startswith("adamw_")
    return only_state and (not config.is_hugging_face or leaves_only("optimizer", first))


@dataclass(frozen=True, kw_only=True)
class _Running:
    """A step that has been built."""

    model: Module
    phases: Callable[[], Sequence[Phase]]
    run: Callable[[Phase], None]
    drop: Callable[[], None]
    advance: Callable[[], object] = lambda: None
    """Takes the batch of the next iteration, where batches differ."""
    mask: object = None
    """FlexAttention's mask, which occupies memory as long as the step exists."""


def _device(config: TrialConfig, rank: int | None) -> AbstractContextManager[tuple[StorageTracker, Fakes]]:
    if rank is None:
        return fake_device(config)
    from lmsweep.trials.prediction.without_device.fake_ranks import one_rank

    return one_rank(config, rank)


def visits_divided(config: TrialConfig, recorder: Recorder) -> AbstractContextManager[None]:
    """A context in which a model of transformers sets its weights in another stretch, as it visits all layers again."""
    if not config.is_hugging_face or find_spec("transformers") is None:
        return nullcontext()
    from transformers import PreTrainedModel

    set_weights: Callable[[PreTrainedModel], None] = PreTrainedModel.init_weights

    def divided(model: PreTrainedModel) -> None:
        recorder.begin("init")
        set_weights(model)
        recorder.begin("init")

    return replaced(PreTrainedModel, "init_weights", divided)


def _process(config: TrialConfig, fake: Fakes, recorder: Recorder, memory: GraphMemory | None) -> _Running:
    with fake, unset_random_weights(), visits_divided(config, recorder):
        again = partial(recorder.begin, "init")  # adapters and copies of the weights visit all layers again
        eager = eager_on_fakes(config)
        if config.compiles_checkpoints:  # the stand-in of a compiled block already saves only what its graph saves
            eager = replace(eager, checkpointing="none")
        step = TrainingStep(eager, fake_math_mode(config), visits_again=again)
        mask = block_mask_of(config, "cpu") if config.attention == "flex" else None
    if memory:  # the inputs of its graph: parameters, buffers, arguments of the call
        for part in step.blocks if config.compilation.each_block else [step.model]:
            part.forward = partial(as_compiled(memory, recorder), *part.parameters(), *part.buffers())

    def operated(name: str) -> None:
        if "_fused_adamw_" in name:  # until here all layers were visited, to copy gradients; now again
            recorder.begin("optimizer")

    if PRECISIONS[config.precision].has_copies:  # the optimizer updates float32 copies of 16-bit weights
        recorder.on_operator = operated

    def run(phase: Phase) -> None:
        if phase.name != "optimizer":
            _run_within(fake, phase)
            return
        if not is_reference(config.optimizer):
            recorder.log.begin("init")  # of the log alone, which ignores `init`: later iterations create no state
            make_state(step, fake)
            recorder.begin(phase.name)  # of the log, and as another stretch: the update visits all layers again
        phase.run()  # not within `fake`: AdamW that is not fused reads its step counters

    def advance() -> None:
        with fake:
            step.advance()

    return _Running(model=step.model, phases=step.phases, run=run, drop=step.drop, advance=advance, mask=mask)


def _users(config: TrialConfig, fake: Fakes) -> _Running:
    """The user's own step, whose model is unknown. `Module.to` only converts: there is no device to move it to."""
    with fake, unset_random_weights(), replaced(Module, "to", _moved):
        step = UsersStep(eager_on_fakes(config), fake_math_mode(config))
    return _Running(model=Module(), phases=step.phases, run=partial(_run_within, fake), drop=step.drop)


def _moved(module: Module, *where: object, dtype: torch.dtype | None = None, **_: object) -> Module:
    kinds = [one for one in (dtype, *where) if isinstance(one, torch.dtype)]
    return module.type(kinds[0]) if kinds else module


def _rank(config: TrialConfig, fake: Fakes, recorder: Recorder) -> _Running:
    from lmsweep.trials.prediction.without_device.fake_ranks import FakeRank, divide_stretches

    with fake, visits_divided(config, recorder):
        # Once layers are sharded, `fully_shard` visits all of them again.
        step = FakeRank(config, on_layers_sharded=lambda: recorder.begin("init"))
    divide_stretches(recorder)
    with fake, visits_divided(config, recorder):
        step.build_model()

    def drop() -> None:
        with fake:
            step.forget_gradients()

    return _Running(model=step.training.model, phases=step.phases, run=partial(_run_within, fake), drop=drop)


def _run_within(fake: Fakes, phase: Phase) -> None:
    with fake:
        phase.run()


def attention_run(config: TrialConfig) -> StepRun:
    """Run forward and backward of attention alone: `init`, the phases. Raises what `step_run` raises."""
    memory = None
    if config.compile != "none" and config.attention not in FUSED_ATTENTION:
        traced = traced_attention(replace(config, model=None, mode="train_step"))
        memory = graph_memory(traced, block=block_of(config))
    with fake_device(config) as (tracker, fake), fake:
        log = OperatorLog(config)
        recorder = Recorder(tracker, scratch_of(config), log)
        recorder.begin("init")
        step = AttentionStep(eager_on_fakes(config), MATH_MODES[config.precision])
        mask = block_mask_of(config, "cpu") if config.attention == "flex" else None
        if memory and isinstance(step.attend, Module):
            step.attend.forward = partial(as_compiled(memory, recorder), *step.attend.buffers())
        elif memory:
            step.attend = as_compiled(memory, recorder)
        recorder.begin("forward")
        step.forward()
        if config.mode in ("forward_backward", "train_step"):
            recorder.begin("backward")
            step.give_gradient()
            step.backward()
        recorder.end()
        del mask  # until here it occupied memory
    return StepRun(trace=recorder.trace, log=log)
