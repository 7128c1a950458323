"""The operators of any trial's step at its full depth, from which its time and its FLOPs are predicted."""

from collections.abc import Iterable
from dataclasses import replace

from lmsweep.trials.analytic.rates.operators import Operator, Operators, Shape
from lmsweep.trials.model.training_step import PHASES
from lmsweep.trials.model.transformer.checkpointing import grows_with_layers
from lmsweep.trials.prediction.float8_operators import in_float8
from lmsweep.trials.prediction.shared_runs import as_run
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.prediction.without_device.step_run import attention_run, step_run
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS, HIDDEN_LOSSES, Mode
from lmsweep.trials.spec.workloads import Subject


def step_operators(config: TrialConfig, subject: Subject = "model", run: Mode | None = None) -> Operators:
    """Return the operators of one iteration. `run` is a mode whose phases include those of the configuration's, so that
    one run serves several. Raises UnpredictableError, UnsupportedError where the trial would, and what the user's code
    raises."""
    if subject == "attention":
        return _in_precision(config, attention_run(as_eager(config)).log.operators(config.compile))
    if config.num_layers is None and not config.references:
        raise UnpredictableError("the configuration has no whole model")
    if config.ddp == "none" and config.world_size > 1:
        raise UnpredictableError("how the ranks share the model is not known; ddp says it")
    eager = as_eager(config)
    if run is not None and not config.references and config.ddp == "none":
        eager = replace(eager, mode=run)

    def of(layers: int | None) -> Operators:
        log = step_run(as_run(replace(eager, num_layers=layers))).log
        return log.operators(config.compile, compiles_loss=config.loss == "compiled")

    layers, fewest = config.num_layers or 0, 1 if config.ddp == "none" else 2
    alike = not config.references and grows_with_layers(config.checkpointing)
    alike = alike and (config.ddp == "none" or DDP_VARIANTS[config.ddp].repeats_by_layer)
    found: Operators | None = None
    if alike and layers > fewest + 2:
        found = deepened(of(fewest), of(fewest + 1), layers - fewest)
    wanted = PHASES[config.mode]
    return _in_precision(config, [one for one in found or of(config.num_layers) if one.phase in wanted])


def as_eager(config: TrialConfig) -> TrialConfig:
    """Return the configuration whose operators stand for this one's: not compiled, and with PyTorch's own operators in
    place of those of packages, which compute the same."""
    changes: dict[str, str] = {}
    if config.loss in (*HIDDEN_LOSSES, "compiled"):
        changes["loss"] = "cross_entropy"
    if config.precision in FLOAT8_PRECISIONS:
        changes["precision"] = "bf16"
    if config.optimizer in OPTIMIZERS and not OPTIMIZERS[config.optimizer].factory.startswith("torch."):
        changes["optimizer"] = "adamw_fused"
    return replace(
        config,
        compile="none",
        compile_mode="default",
        dynamic_shapes=False,
        memory_budget=None,
        capture="none",
        **changes,  # type: ignore[arg-type]
    )


def _in_precision(config: TrialConfig, operators: Iterable[Operator]) -> Operators:
    if config.precision not in FLOAT8_PRECISIONS:
        return tuple(operators)
    return in_float8(operators, config)


def deepened(small: Operators, larger: Operators, layers: int) -> Operators | None:
    """Return the operators of a model with `layers` more layers than the small one; `larger` has one more. None if the
    additional layer changes more than how often operators run and how much the optimizer's move."""
    few, more = ({replace(one, count=1): one.count for one in side} for side in (small, larger))
    changed = [one for one in small if replace(one, count=1) not in more]
    into = [one for one in larger if replace(one, count=1) not in few]
    added = _added(into, len(changed)) if len(into) != len(changed) else []
    grown = dict(zip((one for one in into if one not in added), changed, strict=False))
    if len(into) - len(added) != len(changed):
        return None
    found = []
    for one in larger:
        alone = replace(one, count=1)
        if alone in few:
            count = few[alone] + layers * (one.count - few[alone])
            if count > 0:
                found.append(replace(one, count=count))
        elif one in grown:
            before = grown[one]
            if (one.name, one.phase, one.count) != (before.name, before.phase, before.count):
                return None
            found.append(_grown(before, one, layers))
        else:
            found.append(replace(one, count=layers * one.count))
    return tuple(found)


def _added(into: list[Operator], changed: int) -> list[Operator]:
    """Operators that only the larger model has: what precedes the layer that is no longer the last."""
    return [] if changed else into


def _grown(small: Operator, larger: Operator, layers: int) -> Operator:
    """An operator over tensors of all layers."""

    def grow(one: int, other: int) -> int:
        return one + layers * (other - one)

    shapes: list[Shape] = []
    for one, other in zip(small.shapes, larger.shapes, strict=True):
        shapes.append(tuple(grow(length, its) for length, its in zip(one, other, strict=True)))
    return replace(
        larger, shapes=tuple(shapes), bytes=grow(small.bytes, larger.bytes), flops=grow(small.flops, larger.flops)
    )
