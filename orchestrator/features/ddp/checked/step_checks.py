"""Checks, before a data-parallel step is timed, that its ranks compute what one process does."""

import math
from collections.abc import Iterator, Sequence

from lmsweep.orchestrator.features.ddp.checked.compared_step import ComparedStep
from lmsweep.orchestrator.features.ddp.checked.coordinator import Team
from lmsweep.orchestrator.features.ddp.checked.gradient_check import gradient_error, weights_digest, weights_error
from lmsweep.trials.distributed.parallel.data_parallel_step import compares_users_code
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.precisions import PRECISIONS, NumberFormats


class RanksDisagreeError(Exception):
    """The ranks have wrong gradients or different weights, so the trial is not worth timing."""


def verify(team: Team[ComparedStep], config: TrialConfig) -> Iterator[Measurement]:
    """Compare the ranks' results with one process. Flags the user's code; raises RanksDisagreeError for any other."""
    return _checks_of_users_code(team, config) if compares_users_code(config) else _checks(team, config)


def _rounds_in_each_layer(config: TrialConfig) -> bool:
    """Whether ranks round what a single process does not: weights that are gathered in bfloat16, or with tensor
    parallelism each rank's part of a layer's output, which is sent in 16 bits before the parts are added. Then
    the tolerances of `bf16_pure`, which rounds weights to bfloat16, hold."""
    return config.gather == "bf16" or (config.tp > 1 and PRECISIONS[config.precision].is_narrow)


def _precision(config: TrialConfig) -> NumberFormats:
    return PRECISIONS["bf16_pure" if _rounds_in_each_layer(config) else config.precision]


def _allowed_error(config: TrialConfig) -> float:
    """The largest relative error of a gradient that rounding explains. Errors of layers add like independent numbers:
    with gathers in bfloat16 they were 0.022 with 4 layers, 0.036 with 16, 0.05 with 32. The tolerance is for up to four
    layers, and grows from there with the square root of their number."""
    growth = math.sqrt(max(1.0, (config.num_layers or 1) / 4)) if _rounds_in_each_layer(config) else 1.0
    return _precision(config).gradient_error * growth


def _checks(team: Team[ComparedStep], config: TrialConfig) -> Iterator[Measurement]:
    """Gradients within the allowed error, and equal weights in all ranks after a step. Raises RanksDisagreeError."""
    # One per rank, in the order of ranks: only the user's wrapper, which is not checked here, may have None.
    errors = [found for found in team.all(gradient_error) if found is not None]
    error, allowed = max(errors), _allowed_error(config)
    wrong = [rank for rank, found in enumerate(errors) if not found <= allowed]  # `not`: NaN is wrong too
    if wrong:
        raise RanksDisagreeError(
            f"gradients{_of_ranks(wrong, config)} are off by {error:.2g} of their norm from those of a single process "
            f"on the whole batch; {allowed:g} is allowed"
        )
    team.all(ComparedStep.step)
    if len(set(team.all(weights_digest))) > 1:
        raise RanksDisagreeError("the ranks have different weights after one synchronized step")
    yield Measurement(phase="gradients", metric="relative_error", unit="1", samples=(error,))


def _of_ranks(wrong: Sequence[int], config: TrialConfig) -> str:
    """` of ranks 2, 3 (replica 1)`, or nothing if all ranks are meant. Only hsdp has replicas."""
    if len(wrong) == config.world_size:
        return ""
    ranks = f" of rank{'s' * (len(wrong) > 1)} {', '.join(map(str, wrong))}"
    if config.ddp != "hsdp":
        return ranks
    replicas = sorted({rank // (config.shard_ranks * config.tp) for rank in wrong})
    return f"{ranks} (replica{'s' * (len(replicas) > 1)} {', '.join(map(str, replicas))})"


def _checks_of_users_code(team: Team[ComparedStep], config: TrialConfig) -> Iterator[Measurement]:
    def row(phase: str, metric: str, error: float, allowed: float) -> Measurement:
        flags = () if error <= allowed else (Flag.DISAGREES,)
        return Measurement(phase=phase, metric=metric, unit="1", samples=(error,), flags=flags)

    found = [error for error in team.all(gradient_error) if error is not None]
    if found:
        yield row("gradients", "relative_error", max(found), _allowed_error(config))
    else:
        why = "each rank has only a shard of the gradients; in mode train_step, error.weights compares the weights"
        yield Measurement(phase="gradients", metric="relative_error", unit="1", samples=None, reason=why)
    if config.mode == "train_step":
        yield row("error", "weights", max(team.all(weights_error)), _precision(config).update_error)
