"""The time of a step from its operators: by phase, by part of the model, by class, and what it rests on."""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

from lmsweep.trials.analytic.datasheets import CpuRates
from lmsweep.trials.analytic.rates.intervals import Timed
from lmsweep.trials.analytic.rates.operators import PRODUCTS, Operator, Operators, class_of

NO_ASSUMPTION = (1.0, 1.0)
WAIT_PER_LAUNCH = 0.09
"""In a step that the device limits, the device still waits this share of the host's launch time: 0.08 to 0.11 in five
shipped sets and in the steps predicted before they ran on one H200, 2026-11-25."""


class Work(NamedTuple):
    """Seconds of host and device."""

    launching: float = 0.0
    computing: float = 0.0


def limits(whole: Work, update: Work) -> tuple[float, float]:
    """Return the seconds of a step, including the optimizer's update, by the device and by the host."""
    after = max(0.0, update.computing - update.launching)  # the kernels still to run when the host has launched all
    return whole.computing + WAIT_PER_LAUNCH * whole.launching, whole.launching + after


class Cost(NamedTuple):
    seconds: float
    """Time of one repetition on the device, without its launch."""
    source: str
    """Where the time comes from, in words for a user."""
    unsure: tuple[float, float] = NO_ASSUMPTION
    """Least and most time over `seconds`, for an operator that was not measured."""


class OperatorRates(Hashable, Protocol):
    """What operators cost on one GPU and its host."""

    def of(self, operator: Operator, /) -> Cost:
        """Return the cost of one repetition."""

    def launch(self, operator: Operator, /) -> float:
        """Return the seconds in which the host launches one."""

    @property
    def hosts(self) -> tuple[float, float]:
        """Least and most launch time, over `launch`."""

    @property
    def host_source(self) -> str:
        """Where the launch times come from, in words for a user."""


class CpuOperators:
    """The cores of a CPU: FLOPs or bytes, at the rates that the machine measured. Launches take no time besides."""

    hosts = (1.0, 1.0)
    host_source = "the device itself"

    def __init__(self, rates: CpuRates) -> None:
        self._rates = rates

    def of(self, operator: Operator) -> Cost:
        rate = self._rates.bf16 if operator.dtype == "bfloat16" else self._rates.fp32
        moving = operator.bytes / self._rates.bytes_per_second
        computing = operator.flops / rate if class_of(operator) in ("products", "attention") else 0.0
        return Cost(max(computing, moving), "the machine's products and copies")

    def launch(self, operator: Operator) -> float:
        return 0.0


@dataclass(frozen=True, kw_only=True)
class StepPart:
    """All repetitions of one operator."""

    operator: Operator
    kind: str
    """The class of the operator, by `class_of`."""
    seconds: float
    """Time of the device."""
    launching: float
    """Time in which the host launches it."""
    source: str
    unsure: tuple[float, float]
    """Least and most time over `seconds`, for an operator that was not measured; else NO_ASSUMPTION."""


@dataclass(frozen=True, kw_only=True)
class StepTime(Timed):
    parts: tuple[StepPart, ...]
    computing: float
    """Time of the device's kernels, without communication."""
    launching: float
    """Time in which the host launches all operators."""
    hosts: tuple[float, float]
    """Least and most launch time, over `launching`."""
    host_source: str

    def limits(self, factor: float, end: Literal[0, 1] | None = None) -> tuple[float, float]:
        host = 1.0 if end is None else self.hosts[end]
        update = Work(host * self.launching_update, factor * self.updating)
        return limits(Work(host * self.launching, factor * (self.computing + self.unsure(end))), update)

    def unsure(self, end: Literal[0, 1] | None) -> float:
        """Return the seconds that the assumptions about unmeasured operators add: at least (0), at most (1)."""
        return 0.0 if end is None else math.fsum(one.seconds * (one.unsure[end] - 1) for one in self.parts)

    @property
    def updating(self) -> float:
        return math.fsum(one.seconds for one in self.parts if one.operator.phase == "optimizer")

    @property
    def launching_update(self) -> float:
        return math.fsum(one.launching for one in self.parts if one.operator.phase == "optimizer")

    @property
    def product_type(self) -> str:
        """The type of the products that take most time."""
        times = self.by(lambda one: one.operator.dtype if one.kind == "products" else "")
        return next(filter(None, times), "bfloat16")

    @property
    def sources(self) -> dict[str, str]:
        """Class -> the source of most of its time that is not assumed, then each assumption and its share of time."""
        time: dict[tuple[str, str], float] = defaultdict(float)
        for part in self.parts:
            time[part.kind, part.source] += part.seconds
        assumed = {(one.kind, one.source) for one in self.parts if one.unsure != NO_ASSUMPTION}
        ordered = sorted(time, key=lambda key: (key not in assumed, time[key]))
        main = dict(ordered)  # of each class the last source in this order, which is not assumed if any is not
        words = dict(main)
        for kind, source in ordered:
            if (kind, source) in assumed and main[kind] != source:
                whole = sum(seconds for (other, _), seconds in time.items() if other == kind)
                words[kind] += f" ({time[kind, source] / whole:.0%} of their time: {source})"
        return words

    def by(self, key: Callable[[StepPart], str]) -> dict[str, float]:
        """Seconds of the device by a property of its operators, the longest first."""
        time: dict[str, float] = defaultdict(float)
        for part in self.parts:
            time[key(part)] += part.seconds
        return dict(sorted(time.items(), key=lambda item: -item[1]))


def step_time(operators: Operators, rates: OperatorRates) -> StepTime:
    """Return the time of a step of one process, or of a rank without the other ranks."""
    parts = tuple(_part(one, rates) for one in operators)
    return StepTime(
        parts=parts,
        computing=math.fsum(one.seconds for one in parts if one.operator.stream == "compute"),
        launching=math.fsum(one.launching for one in parts),
        hosts=rates.hosts,
        host_source=rates.host_source,
    )


LEAST_SAVED = 0.02
"""Least share of the device's time that is worth a word."""


def saved_in_16_bits(time: StepTime, rates: OperatorRates) -> dict[str, float]:
    """Return module -> seconds that bfloat16 would save in its float32 products and attention, from LEAST_SAVED on."""
    saved: dict[str, float] = defaultdict(float)
    for part in time.parts:
        if part.operator.dtype == "float32" and part.kind in ("products", "attention"):
            narrow = replace(part.operator, dtype="bfloat16", bytes=part.operator.bytes // 2, count=1)
            saved[part.operator.module] += part.seconds - part.operator.count * rates.of(narrow).seconds
    return {name: seconds for name, seconds in saved.items() if seconds > LEAST_SAVED * time.computing}


def in_tf32(operators: Operators) -> Operators:
    """Return the operators with tensor cores for products of float32."""
    return tuple(
        replace(one, dtype="tf32") if one.dtype == "float32" and one.name in PRODUCTS else one for one in operators
    )


def _part(operator: Operator, rates: OperatorRates) -> StepPart:
    cost = rates.of(replace(operator, count=1))
    return StepPart(
        operator=operator,
        kind=class_of(operator),
        seconds=operator.count * cost.seconds,
        launching=operator.count * rates.launch(operator),
        source=cost.source,
        unsure=cost.unsure,
    )
