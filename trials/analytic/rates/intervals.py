"""How sure a predicted time is: a factor and an interval for each level of knowledge, learned from measured times.

`learned` takes from the residuals of each GPU its offset from other GPUs (`_offsets`). The rest has a mean, and a
variance within and between sources (`spread_from`). Each source tests the interval that the others give (`unseen`),
which is widened until it contains enough: by `factor_to_cover`, or by `spread_that_covers` in place of the deviation.
"""

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
"""Levels whose steps other trainers ran, from which a prediction's second interval follows: that of such trainers."""
RAN_BY_OTHERS = OTHERS | {"PCIe", "TP", "run here"}
"""Levels for the interval of one trainer, also its loop as we ran it; the interval of all is only tested by these."""
LEAST_COVERED = 0.9
"""Share of each GPU's residuals that an interval must contain when it is learned without the residual's source."""
ENOUGH_STEPS = 10
"""With fewer residuals of a GPU's steps of several ranks, its interval is at least as wide as that of one process."""
DATASHEET_DEVIATION = 2.2
"""Standard deviation with a datasheet alone, over that with published products: an assumption."""


class Residual(NamedTuple):
    """How far the prediction of one measured step (or memory) was off."""

    level: str
    """What was known: measured (this GPU's rates), public, fp32 (a share of its datasheet), two ranks (steps on two
    GPUs), ranks (a training run of many GPUs; TP and PCIe: with tensor parallelism, over PCIe), others (a step of
    another trainer, with rates measured), tuned stacks (other kernels than PyTorch's), run here (we ran its loop)."""
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
    """Return the spread of residuals of one level, in which each source weighs the same. Its variance is that between
    sources plus that within a source. near: logarithm of the expected factor, to which an unsure mean stays close."""
    by_source: dict[str, list[float]] = defaultdict(list)
    by_place: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in residuals:
        by_source[one.source].append(one.log_ratio)
        by_place[one.source, one.device].append(one.log_ratio)
    means = [fmean(ratios) for ratios in by_source.values()]
    within = fmean(float(np.var(ratios)) for ratios in by_place.values())
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
    kept = [one for one in residuals if one.level == level and keep(one)]
    if not kept:
        return None
    expected = learned(EXPECTED_AS[level], residuals, device) if level in EXPECTED_AS else None
    offsets = _offsets(kept)
    without_offsets = [one._replace(log_ratio=one.log_ratio - offsets[one.device]) for one in kept]
    of_all_gpus = spread_from(without_offsets, math.log(expected.factor) if expected else None)
    with_its_chip = [name for name in offsets if _chip(name) == _chip(device)]
    if not with_its_chip:
        return of_all_gpus._replace(deviation=math.hypot(of_all_gpus.deviation, OTHER_GPU))
    offset = offsets[device if device in offsets else with_its_chip[0]]
    return of_all_gpus._replace(factor=of_all_gpus.factor * math.exp(offset))


def _chip(device: str) -> str:
    return CHIP.get(device, device)


def _offsets(residuals: Sequence[Residual]) -> dict[str, float]:
    """GPU -> how far it is from the mean of the GPUs of a source that has several; 0 if no such source has it. Drawn to
    0: of what one source shows, half counts; of the mean of two, two thirds. If the only source has an A100 at 0.1 and
    an H100 at 0.3, their differences are -0.1 and 0.1, and their offsets -0.05 and 0.05."""
    by_place: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in residuals:
        by_place[one.source][one.device].append(one.log_ratio)
    differences: dict[str, list[float]] = {one.device: [] for one in residuals}
    for by_device in by_place.values():
        means = {name: fmean(ratios) for name, ratios in by_device.items()}
        for name, mean in means.items() if len(means) > 1 else ():
            differences[name].append(mean - fmean(means.values()))
    return {name: sum(of_sources) / (len(of_sources) + 1) for name, of_sources in differences.items()}


def unseen(one: Residual, residuals: Sequence[Residual]) -> Spread | None:
    """Return the spread of a residual's level on its GPU, learned without its source; None without another source."""
    return learned(one.level, residuals, one.device, lambda other: other.source != one.source)


def factor_to_cover(level: str, residuals: Sequence[Residual], device: str) -> float:
    """Return the factor by which the spread of a level must grow, so that its intervals contain LEAST_COVERED of this
    GPU's residuals, and of those of all GPUs with its chip; without any, that share of each GPU's residuals."""
    of_gpu: dict[str, list[float]] = defaultdict(list)
    of_chip: dict[str, list[float]] = defaultdict(list)
    for one in residuals:
        if one.level == level and (spread := unseen(one, residuals)):
            deviations = abs(one.log_ratio - math.log(spread.factor)) / spread.deviation
            half_widths = deviations / INTERVAL_DEVIATIONS  # 1 at the end of the interval
            of_gpu[one.device].append(half_widths)
            of_chip[_chip(one.device)].append(half_widths)
    here = [group for group in (of_gpu.get(device), of_chip.get(_chip(device))) if group]
    return max([1.0, *map(_distance_covered, here or (*of_gpu.values(), *of_chip.values()))])


def _distance_covered(distances: Sequence[float], *, and_next: bool = False) -> float:
    """Return the distance that LEAST_COVERED of these do not exceed; and_next: nor the next one, with this probability:
    split conformal prediction (Lei et al. 2018, doi:10.1080/01621459.2017.1307116). Of 10 distances the ninth;
    and_next: of 10 the largest, as 9 of 10 would be too few of 11."""
    rank = min(math.ceil(LEAST_COVERED * (len(distances) + and_next)), len(distances))
    return sorted(distances)[rank - 1]


@cache
def known_residuals() -> tuple[Residual, ...]:
    return rows_of(RESIDUALS_FILE, Residual)


def others(experts: bool) -> list[Residual]:
    """Return the residuals of steps that other trainers ran, as of one level. For dense models, leave out experts and
    reinforcement learning, which does more than a plan has. For experts all count: no others of experts are known."""
    left_out = () if experts else ("MoE", "RL")
    kept = [one for one in known_residuals() if one.level in OTHERS and not one.kind.endswith(left_out)]
    return [one._replace(level="others") for one in kept]


def ran_by(trainer: str) -> list[Residual]:
    """Return the residuals of steps that a trainer ran, as of one level; each model is a source."""
    ran = [one for one in known_residuals() if one.trainer == trainer and one.level in RAN_BY_OTHERS]
    return [one._replace(level="others", source=f"{one.source}: {one.model}") for one in ran]


@cache
def spread_of_others(device_name: str, experts: bool = False, trainer: str | None = None) -> Spread:
    """Return the spread of a step as other trainers, or the named one, run it. experts: whether the model has any."""
    return spread_that_covers(ran_by(trainer) if trainer else others(experts), device_name)


def peak_of_others(peak: int) -> SurePeak:
    """Return the bytes that other trainers need where this loop needs so many."""
    spread = spread_of_peaks()
    middle = peak * spread.factor
    return SurePeak(round(middle), round(middle / spread.width), round(middle * spread.width))


@cache
def spread_of_peaks() -> Spread:
    """Return the spread of the memory that other trainers need over the predicted peak, alike on all GPUs."""
    return spread_that_covers([one._replace(device="") for one in known_residuals() if one.level == "memory"], "")


def spread_that_covers(residuals: Sequence[Residual], device_name: str) -> Spread:
    """Return the spread of residuals of one level. It is so wide that the interval around what the other sources say
    contains LEAST_COVERED of all residuals, and of those of GPUs with this chip."""
    spread = learned(residuals[0].level, residuals, device_name)
    assert spread is not None, "they are of one level"
    by_others = [(one, math.log(without.factor)) for one in residuals if (without := unseen(one, residuals))]
    anywhere = [abs(one.log_ratio - middle) for one, middle in by_others]
    here = [abs(one.log_ratio - middle) for one, middle in by_others if _chip(one.device) == _chip(device_name)]
    half_width = max(_distance_covered(group, and_next=True) for group in (anywhere, here) if group)
    return Spread(spread.factor, half_width / INTERVAL_DEVIATIONS)


@cache
def spread_for(device_name: str, level: str, ranks: int = 1, subject: Subject = "model") -> Spread:
    """Return the spread of a predicted step on a GPU. It is learned from steps of one process, from steps of two ranks
    on this chip, or from training runs if there are more; attention alone has its own residuals. If fewer than
    ENOUGH_STEPS are known of the GPU, the interval is at least as wide as that of one process."""
    if subject == "attention":
        attention = learned("attention alone", known_residuals(), device_name)
        assert attention is not None, "their residuals ship"
        return Spread(attention.factor, max(attention.deviation, spread_for(device_name, level).deviation))
    if level == "datasheet" and ranks == 1:  # no step was predicted from nothing else
        return Spread(1.0, DATASHEET_DEVIATION * spread_for(device_name, "public").deviation)
    of_steps = level if ranks == 1 else "two ranks" if ranks == 2 and level == "measured" else "ranks"
    spread = learned(of_steps, known_residuals(), device_name)
    assert spread is not None, "each level has residuals that ship"
    spread = spread._replace(deviation=factor_to_cover(of_steps, known_residuals(), device_name) * spread.deviation)
    steps_here = sum(one.level == of_steps and one.device == device_name for one in known_residuals())
    if ranks == 1 or steps_here >= ENOUGH_STEPS:
        return spread
    return spread._replace(deviation=max(spread.deviation, spread_for(device_name, level).deviation))
