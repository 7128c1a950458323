"""What is to be best: speed, money, energy or memory, and the limit that the best must keep."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lmsweep.trials.analytic.prices import MILLION, Price, dollars_per_million
from lmsweep.trials.results.metrics import PEAKS, WALL_TIME
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.quantities import bytes_of, gib
from lmsweep.trials.spec.suggestions import choices


def tokens_of(config: TrialConfig) -> int:
    """Return the tokens of a step of all ranks; 1 where batches differ, because a cell has the time of one token."""
    if config.varies:
        return 1
    return config.batch_size * config.context_length * config.world_size


class Goal(StrEnum):
    SPEED = "tokens/s"
    MONEY = "$/Mtoken"
    ENERGY = "J/Mtoken"
    MEMORY = "memory"

    @property
    def workload(self) -> str:
        return {Goal.ENERGY: "energy", Goal.MEMORY: "memory"}.get(self, "timing")

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it may be computed from, by preference: the first that was measured counts."""
        return {Goal.ENERGY: ("step.energy",), Goal.MEMORY: PEAKS}.get(self, (WALL_TIME,))

    @property
    def unit(self) -> str:
        return "B" if self is Goal.MEMORY else str(self.value)

    def cost(self, measured: float, config: TrialConfig, hourly: float | None) -> float:
        """Return what is to be small: seconds or joules per token, dollars per million tokens, or bytes.

        measured: seconds, joules or bytes of a step, or where batches differ of a token. hourly: dollars of a device.
        """
        if self is Goal.MEMORY:
            return measured
        if self is Goal.MONEY:  # `hourly` pays for one device, so only the tokens of its rank count
            assert hourly is not None, "a goal in dollars has a price"
            return float(dollars_per_million(measured, tokens_of(config) / config.world_size, hourly))
        return measured / tokens_of(config)

    def shown(self, cost: float) -> float:
        """Return a cost in the goal's unit."""
        if self is Goal.SPEED:
            return 1 / cost
        return cost * MILLION if self is Goal.ENERGY else cost  # dollars are per million already


@dataclass(frozen=True, kw_only=True)
class Aim:
    """A goal with its limit, and the prices that a goal in dollars needs."""

    goal: Goal
    peak: int | None = None
    """Bytes that the peak memory of a step must stay below; None: no limit."""
    prices: tuple[Price, ...] = ()

    def hourly(self, device_name: str, accelerator_type: str | None) -> float | None:
        """Return the dollars per hour of a device; None if it has no price."""
        return next((one.dollars for one in self.prices if one.is_of(device_name, accelerator_type)), None)

    @property
    def words(self) -> str:
        limit = f", peak below {gib(self.peak)}" if self.peak is not None else ""
        return f"{self.goal.value}{limit}"


def parse_aim(goal: str, limits: Iterable[str], prices: Iterable[Price]) -> Aim:
    """Return the aim in the options --goal, --subject-to and --price.

    Raises RequestError for an unknown goal or limit, two limits, and a goal in dollars without a price.
    """
    words = [one.value for one in Goal]
    if goal not in words:
        raise RequestError(f"--goal {goal}: no such goal{choices(goal, words)}")
    priced = tuple(prices)
    if goal == Goal.MONEY and not priced:
        raise RequestError("--goal $/Mtoken needs the price of a device: --price H100=2.5 (dollars per hour)")
    peaks = [_peak_below(text) for text in limits]
    if len(peaks) > 1:
        raise RequestError("--subject-to: given twice; one limit of the peak is enough")
    return Aim(goal=Goal(goal), peak=peaks[0] if peaks else None, prices=priced)


def _peak_below(text: str) -> int:
    """Return the bytes that the peak must stay below. Raises RequestError."""
    limit = re.fullmatch(r"\s*peak\s*<(=?)\s*(.+?)\s*", text)
    size = bytes_of(limit[2]) if limit else None
    if limit is None or size is None:
        raise RequestError(f"--subject-to '{text}': write 'peak < 70GB'")
    return size + 1 if limit[1] else size
