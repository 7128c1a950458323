"""Before a data-parallel step is timed: do its ranks compute what one process does?"""

import math
from collections.abc import Iterator, Sequence

from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep, is_own
from lmsweep.trials.distributed.ranks.coordinator import Team
from lmsweep.trials.distributed.ranks.orders import CheckGradients, CheckWeights, DigestWeights, TimeStep
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.words import Precision

TOLERANCE: dict[Precision, float] = {"fp32": 1e-4, "tf32": 1e-2, "bf16": 2e-2, "fp16": 2e-2, "bf16_pure": 5e-2}
"""Largest relative error of a gradient that the order of additions and atomics can explain. Without synchronization,
or with a sum in place of the mean, the error is of the order of 1.
"""

WEIGHTS_TOLERANCE: dict[Precision, float] = {"fp32": 1e-2, "tf32": 0.1, "bf16": 0.1, "fp16": 0.1, "bf16_pure": 0.5}
"""The same for what two steps add to a weight. AdamW divides each gradient by its own size, so that an error in a small
gradient counts as much as one in a large gradient.
"""


class RanksDisagreeError(Exception):
    """The ranks have wrong gradients or different weights, so the trial is not worth timing."""


def verify(team: Team[DataParallelStep], config: TrialConfig) -> Iterator[Measurement]:
    """Compare what the ranks compute with one process: the user's code is flagged if it differs.

    Rank 0 calls this. Raises RanksDisagreeError if lmsweep's or PyTorch's differs.
    """
    return _checks_of_own(team, config) if is_own(config) else _checks(team, config)


def _rounds_as(config: TrialConfig) -> Precision:
    """The precision with whose errors the step is compared: weights gathered in bfloat16 are rounded to it."""
    return "bf16_pure" if config.gather == "bf16" else config.precision


def _allowed_error(config: TrialConfig) -> float:
    """The largest relative error of a gradient that rounding explains.

    Tensor parallelism in 16 bits rounds each rank's part of a layer's output before the parts are added. The errors of
    the layers add like independent numbers, and up to four layers stay within the tolerance.
    """
    rounded = TOLERANCE[_rounds_as(config)]
    if config.tp == 1 or config.precision in ("fp32", "tf32"):
        return rounded
    return rounded * math.sqrt(max(1.0, (config.num_layers or 1) / 4))


def _checks(team: Team[DataParallelStep], config: TrialConfig) -> Iterator[Measurement]:
    """Compare gradients with those of one process, and weights between ranks. Raises RanksDisagreeError."""
    errors = [found for found in team.all(CheckGradients()) if found is not None]
    error, allowed = max(errors), _allowed_error(config)
    wrong = [rank for rank, found in enumerate(errors) if not found <= allowed]
    if wrong:
        raise RanksDisagreeError(
            f"gradients{_of_ranks(wrong, config)} are off by {error:.2g} of their norm from those of a single process "
            f"on the whole batch; {allowed:g} is allowed"
        )
    team.all(TimeStep())
    if len(set(team.all(DigestWeights()))) > 1:
        raise RanksDisagreeError("the ranks have different weights after one synchronized step")
    yield Measurement(phase="gradients", metric="relative_error", unit="1", samples=(error,))


def _of_ranks(wrong: Sequence[int], config: TrialConfig) -> str:
    """Return ` of ranks 2, 3 (replica 1)`, or nothing if all ranks are meant. Only hsdp has replicas."""
    if len(wrong) == config.world_size:
        return ""
    ranks = f" of rank{'s' * (len(wrong) > 1)} {', '.join(map(str, wrong))}"
    replicas = sorted({rank // (config.shard_ranks * config.tp) for rank in wrong})
    if config.ddp != "hsdp":
        return ranks
    return f"{ranks} (replica{'s' * (len(replicas) > 1)} {', '.join(map(str, replicas))})"


def _checks_of_own(team: Team[DataParallelStep], config: TrialConfig) -> Iterator[Measurement]:
    """Compare gradients, and weights after two steps, with those of one process, and flag what disagrees."""

    def row(phase: str, metric: str, error: float, allowed: float) -> Measurement:
        flags = () if error <= allowed else (Flag.DISAGREES,)
        return Measurement(phase=phase, metric=metric, unit="1", samples=(error,), flags=flags)

    found = [error for error in team.all(CheckGradients()) if error is not None]
    if found:
        yield row("gradients", "relative_error", max(found), _allowed_error(config))
    else:
        why = "each rank has only a shard of the gradients; error.weights compares what they lead to"
        yield Measurement(phase="gradients", metric="relative_error", unit="1", samples=None, reason=why)
    if config.mode == "train_step":
        yield row("error", "weights", max(team.all(CheckWeights())), WEIGHTS_TOLERANCE[_rounds_as(config)])
