"""How sure a predicted time is: a factor and an interval for each level of knowledge, learned from measured times."""

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np

from lmsweep.trials.analytic.rates.hardware import CHIP
from lmsweep.trials.analytic.rates.rate_data import DATA, rows_of
from lmsweep.trials.spec.workloads import Subject

RESIDUALS_FILE = DATA / "residuals.csv"
"""Made by `python -m benchmarks.score_card`."""
INTERVAL_DEVIATIONS = 2.2
"""Half the width of a 95 % interval in standard deviations: more than 1.96, since the sources share some errors."""
ONE_SOURCE_DEVIATION = 0.15
"""Standard deviation between sources that is assumed if there is one source: that between training runs."""
EXPECTED_AS = {"public": "measured", "two ranks": "measured"}
"""Level -> the level whose factor its own should equal: steps of one process differ in rates or communication only."""
EXPECTED_DEVIATION = 0.07
"""Standard deviation of the logarithm of a factor around the expected one: as between one and two ranks."""
OTHER_GPU = 0.06
"""Standard deviation between GPUs, added if a level has no residual of this chip: as between A100 and H100."""
OTHERS = frozenset({"others", "ranks", "public", "fp32", "tuned stacks", "sizes assumed"})
"""Levels whose steps other trainers ran: the second interval, of a step as these run it, is learned from them."""
RAN_BY_OTHERS = OTHERS | {"PCIe", "TP", "run here"}
"""Levels of a trainer's own interval; steps of its loop that we ran count there alone, and test the interval of all."""
LEAST_COVERED = 0.9
"""Share of each GPU's cells that an interval must contain when it is learned without the source of the cell."""
ENOUGH_STEPS = 10
"""Steps of several ranks of a GPU from which these are as sure as they show, and else no surer than one process."""
DATASHEET_DEVIATION = 2.2
"""Standard deviation with a datasheet alone, over that with published products: an assumption."""


class Residual(NamedTuple):
    level: str
    """What was known: measured (this GPU's rates), public, fp32 (a share of its datasheet), two ranks (steps on two
    GPUs), ranks (a training run of many GPUs), or others (a step of another trainer, with rates measured)."""
    source: str
    device: str
    log_ratio: float
    """log(measured / predicted)."""
    kind: str = "dense 16 bit"
    """Of the model and its products: fp32, MoE, LoRA."""
    trainer: str = ""
    """One of NAMED_TRAINERS, or empty."""
    model: str = ""


class Timed(ABC):
    """A step whose time follows from the times of its operators on device and host."""

    @abstractmethod
    def limits(self, factor: float, end: Literal[0, 1] | None = None) -> tuple[float, float]:
        """Return the seconds by the device, with its waits, if it takes `factor` times as long, and those by the host.
        `end` 0 or 1: the least or most, by the assumptions about the host and operators that were not measured."""

    def at(self, factor: float, end: Literal[0, 1] | None = None) -> float:
        """Return the seconds of the step: of the device or of the host, whichever is longer."""
        return max(self.limits(factor, end))

    @property
    def seconds(self) -> float:
        """Time of the whole step."""
        return self.at(1.0)

    @property
    def is_host_bound(self) -> bool:
        device, host = self.limits(1.0)
        return host > device


class Sure(NamedTuple):
    """Predicted seconds, and their 95 % interval."""

    seconds: float
    low: float
    high: float


class SurePeak(NamedTuple):
    """Predicted bytes, and their interval."""

    bytes: int
    low: int
    high: int


class Spread(NamedTuple):
    """What a prediction from operators alone is multiplied by, and how sure the product is."""

    factor: float
    deviation: float
    """Standard deviation of log(measured / product)."""

    def of(self, time: Timed) -> Sure:
        """Return the predicted seconds of a step, and the 95 % interval."""
        return Sure(time.at(self.factor), time.at(self.factor / self.width, 0), time.at(self.factor * self.width, 1))

    @property
    def width(self) -> float:
        """The factor by which the 95 % interval is wide, each way."""
        return math.exp(INTERVAL_DEVIATIONS * self.deviation)


def spread_from(residuals: Iterable[Residual], near: float | None = None) -> Spread:
    """Return the spread of residuals of one level. Sources weigh the same; sources differ, and so do cells of one
    source. near: the logarithm of the expected factor: few sources that disagree stay close to it."""
    by_source: dict[str, list[float]] = defaultdict(list)
    by_place: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in residuals:
        by_source[one.source].append(one.log_ratio)
        by_place[one.source, one.device].append(one.log_ratio)
    means = [fmean(found) for found in by_source.values()]
    within = fmean(float(np.var(found)) for found in by_place.values())
    between = float(np.var(means)) if len(means) > 1 else ONE_SOURCE_DEVIATION**2
    middle = fmean(means)
    if near is not None:
        weight = EXPECTED_DEVIATION**2 / (EXPECTED_DEVIATION**2 + between / len(means))
        middle = near + weight * (middle - near)
    return Spread(math.exp(middle), math.sqrt(within + between))


def learned(
    level: str, residuals: Sequence[Residual], device: str, keep: Callable[[Residual], bool] = lambda _: True
) -> Spread | None:
    """Return the spread of a level on a GPU, from its residuals that `keep` selects; None if there are none."""
    found = [one for one in residuals if one.level == level and keep(one)]
    if not found:
        return None
    moves = _moves(found)
    like = learned(EXPECTED_AS[level], residuals, device) if level in EXPECTED_AS else None
    as_one = [one._replace(log_ratio=one.log_ratio - moves[one.device]) for one in found]
    spread = spread_from(as_one, math.log(like.factor) if like else None)
    for known in (device, *moves):  # this GPU, or one with the same chip
        if known in moves and _chip(known) == _chip(device):
            return spread._replace(factor=spread.factor * math.exp(moves[known]))
    return spread._replace(deviation=math.hypot(spread.deviation, OTHER_GPU))


def _chip(device: str) -> str:
    return CHIP.get(device, device)


def _moves(residuals: Sequence[Residual]) -> dict[str, float]:
    """Return how far each GPU is from the others, in the sources that have several GPUs; 0 if no such source has it."""
    by_place: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in residuals:
        by_place[one.source][one.device].append(one.log_ratio)
    found: dict[str, list[float]] = {one.device: [] for one in residuals}
    for places in by_place.values():
        means = {name: fmean(cells) for name, cells in places.items()}
        for name, mean in means.items() if len(means) > 1 else ():
            found[name].append(mean - fmean(means.values()))
    return {name: sum(moves) / (len(moves) + 1) for name, moves in found.items()}  # one source says half of it


def unseen(one: Residual, residuals: Sequence[Residual]) -> Spread | None:
    """Return the spread of a cell's level on its GPU without its source; None without another source."""
    return learned(one.level, residuals, one.device, lambda other: other.source != one.source)


def widened(level: str, residuals: Sequence[Residual], device: str) -> float:
    """Return the factor by which the spread of a level must grow, so that its intervals contain LEAST_COVERED of the
    cells of this GPU, and of all with its chip. If there are none, they must contain that share of each GPU's."""
    groups: dict[str, list[float]] = defaultdict(list)
    for one in residuals:
        if one.level == level and (spread := unseen(one, residuals)):
            distance = abs(one.log_ratio - math.log(spread.factor)) / spread.deviation
            for group in (one.device, f"chip of {_chip(one.device)}"):
                groups[group].append(distance / INTERVAL_DEVIATIONS)
    known = [groups[name] for name in (device, f"chip of {_chip(device)}") if name in groups]
    return max([1.0, *map(_covering, known or groups.values())])


def _covering(distances: Sequence[float], more: int = 0) -> float:
    """Return the distance that LEAST_COVERED of these do not exceed; with one `more`, that the next does not with this
    probability: split conformal prediction (Lei et al. 2018, doi:10.1080/01621459.2017.1307116)."""
    return sorted(distances)[min(math.ceil(LEAST_COVERED * (len(distances) + more)), len(distances)) - 1]


@cache
def known_residuals() -> tuple[Residual, ...]:
    return rows_of(RESIDUALS_FILE, Residual)


def others(experts: bool) -> list[Residual]:
    """Return the residuals of steps that other trainers ran, as of one level. Reinforcement learning does more than a
    plan has: its steps count only where no others are known, those of experts."""
    apart = ("MoE", "RL")
    found = [one for one in known_residuals() if one.level in OTHERS and (experts or not one.kind.endswith(apart))]
    return [one._replace(level="others") for one in found]


def ran_by(trainer: str) -> list[Residual]:
    """Return the residuals of steps that a trainer ran, as of one level; each model is a source."""
    found = [one for one in known_residuals() if one.trainer == trainer and one.level in RAN_BY_OTHERS]
    return [one._replace(level="others", source=f"{one.source}: {one.model}") for one in found]


@cache
def spread_of_others(device_name: str, experts: bool = False, trainer: str | None = None) -> Spread:
    """Return the spread of a step on a GPU as other trainers run it, or as the one named does: over its operators, as
    all spreads are. experts: whether the model is a mixture of experts."""
    return covering(ran_by(trainer) if trainer else others(experts), device_name)


def peak_of_others(peak: int) -> SurePeak:
    """Return the bytes that other trainers need where this loop needs so many."""
    spread = spread_of_peaks()
    middle = peak * spread.factor
    return SurePeak(round(middle), round(middle / spread.width), round(middle * spread.width))


@cache
def spread_of_peaks() -> Spread:
    """Return the spread of the memory that other trainers need over the predicted peak, alike on all GPUs."""
    return covering([one._replace(device="") for one in known_residuals() if one.level == "memory"], "")


def covering(found: Sequence[Residual], device_name: str) -> Spread:
    """Return the spread of residuals of one level as wide as contains LEAST_COVERED of all cells, and of those of GPUs
    with this chip, each held against what the other sources say."""
    spread = learned(found[0].level, found, device_name)
    assert spread is not None, "they are of one level"
    cells = [(one, math.log(without.factor)) for one in found if (without := unseen(one, found))]
    here = [one for one in cells if _chip(one[0].device) == _chip(device_name)]
    widths = [_covering([abs(one.log_ratio - middle) for one, middle in group], 1) for group in (cells, here) if group]
    return Spread(spread.factor, max(widths) / INTERVAL_DEVIATIONS)


@cache
def spread_for(device_name: str, level: str, ranks: int = 1, subject: Subject = "model") -> Spread:
    """Return the spread of a predicted step on a GPU. It is learned from steps of one process, from steps of two ranks
    on this chip, or from training runs if there are more; attention alone has its own residuals. If fewer than
    ENOUGH_STEPS are known of the GPU, the interval is at least as wide as that of one process."""
    if subject == "attention":
        alone = learned("attention alone", known_residuals(), device_name)
        assert alone is not None, "their residuals ship"
        return Spread(alone.factor, max(alone.deviation, spread_for(device_name, level).deviation))
    if level == "datasheet" and ranks == 1:  # no step was predicted from nothing else
        return Spread(1.0, DATASHEET_DEVIATION * spread_for(device_name, "public").deviation)
    which = level if ranks == 1 else "two ranks" if ranks == 2 and level == "measured" else "ranks"
    spread = learned(which, known_residuals(), device_name)
    assert spread is not None, "each level has residuals that ship"
    spread = spread._replace(deviation=widened(which, known_residuals(), device_name) * spread.deviation)
    if ranks == 1 or [(one.level, one.device) for one in known_residuals()].count((which, device_name)) >= ENOUGH_STEPS:
        return spread
    return spread._replace(deviation=max(spread.deviation, spread_for(device_name, level).deviation))
