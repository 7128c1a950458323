"""The rates of one GPU: what each operator of a step costs there, and where that figure comes from."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.rates.attention_rates import AttentionRates, attention_of
from lmsweep.trials.analytic.rates.byte_rates import ByteRates
from lmsweep.trials.analytic.rates.collective_rates import CollectiveTimes, across, between_gpus
from lmsweep.trials.analytic.rates.hardware import CHIP, REFERENCE, Hardware, Level, hardware_of
from lmsweep.trials.analytic.rates.operators import Operator, class_of
from lmsweep.trials.analytic.rates.product_rates import ALIGNED, MOST_UNALIGNED, UNALIGNED, ProductRates, product_of
from lmsweep.trials.analytic.rates.rate_data import MeasuredOperator, measured_operators
from lmsweep.trials.analytic.rates.step_time import SURE
from lmsweep.trials.spec.words import Collective

LAUNCH_SECONDS = {"forward": 11e-6, "backward": 11e-6, "optimizer": 9e-6}
"""Phase -> the host's seconds for a kernel, on the reference host."""
COMPILED_LAUNCH_SECONDS = 10e-6
ELEMENT_WISE = frozenset(
    {"add", "add_", "sub", "rsub", "mul", "mul_", "div", "where", "masked_fill", "pow", "eq", "lt"}
)
BROADCASTING = 1.8
"""Time of an element-wise operator whose operands have different shapes over that of equal ones."""

ASSUMED = (
    f"an assumption, {UNALIGNED:g} times (1 to {MOST_UNALIGNED:g}) the time with rows that are multiples of {ALIGNED} "
    "bytes, not measured"
)


class Cost(NamedTuple):
    seconds: float
    """Of one repetition on the device, without the launch."""
    source: str
    """In words for a user."""
    unsure: tuple[float, float] = SURE
    """Least and most seconds over `seconds`, where nobody measured such an operator."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """What connects nodes."""

    gpus: int
    """Of a node."""
    bytes_per_second: float
    """Of the adapter of one GPU, in one direction."""
    source: str


class _Spread(NamedTuple):
    local: int
    """GPUs of the group on each node."""
    nodes: int


class Rates:
    """The costs of operators on one kind of GPU."""

    def __init__(
        self,
        hardware: Hardware,
        points: Iterable[MeasuredOperator],
        *,
        level: Level,
        links: CollectiveTimes | None = None,
        network: Network | None = None,
    ) -> None:
        by_kind: dict[str, list[MeasuredOperator]] = {}
        for point in points:
            by_kind.setdefault(point.kind, []).append(point)
        self.hardware = hardware
        self.level: Level = level
        self._links = links
        self._network = network
        self._products = ProductRates(hardware, by_kind.get("product", ()))
        self._attention = AttentionRates(hardware, by_kind.get("attention", ()))
        self._bytes = ByteRates(hardware, [*by_kind.get("bytes", ()), *by_kind.get("optimizer", ())])
        self._measured = {
            words: by_kind[kind][0]
            for words, kind in (("products", "product"), ("attention", "attention"), ("bytes", "bytes"))
            if kind in by_kind
        }
        """Class -> one of its points."""
        self._known: dict[Operator, Cost] = {}

    def of(self, operator: Operator) -> Cost:
        """Return the cost of one repetition of an operator."""
        found = self._known.get(operator)
        if found is None:
            found = self._known[operator] = self._cost(operator)
        return found

    def launch(self, operator: Operator) -> float:
        """Return the host's seconds for one launch of an operator."""
        if operator.is_compiled:
            return COMPILED_LAUNCH_SECONDS
        return LAUNCH_SECONDS[operator.phase]

    def collective(self, kind: Collective, size: float, *, ranks: int, stride: int = 1) -> float:
        """Return the seconds of a collective of `size` bytes between ranks that are `stride` apart."""
        local, nodes = self._spread(ranks, stride)
        links = self._links or between_gpus(self.hardware.device, local)
        adapter = self._network.bytes_per_second if self._network else 0.0
        return across(kind, size, local=local, nodes=nodes, links=links, adapter=adapter)

    def source_of_links(self, ranks: int, stride: int = 1) -> str:
        """Return where the times of collectives of so many ranks come from, in words for a user."""
        local, nodes = self._spread(ranks, stride)
        links = self._links or between_gpus(self.hardware.device, local)
        inside = links.source if links else "unknown links"
        return f"{inside} and {self._network.source}" if nodes > 1 and self._network else inside

    def _spread(self, ranks: int, stride: int) -> "_Spread":
        """Return on how many GPUs of how many nodes a group lies; the ranks of a node are neighbours."""
        if self._network is None:
            return _Spread(ranks, 1)
        local = max(1, min(ranks, self._network.gpus // stride))
        return _Spread(local, -(-ranks // local))

    def _cost(self, operator: Operator) -> Cost:
        kind, unsure = class_of(operator), SURE
        sources = self.hardware.sources
        if kind == "collectives":
            size, ranks = operator.bytes, operator.ranks
            name: Collective = operator.name  # type: ignore[assignment]
            seconds = self.collective(name, size, ranks=ranks, stride=operator.stride)
            return Cost(seconds, self.source_of_links(ranks, operator.stride))
        if kind == "products":
            product = product_of(
                operator.name,
                operator.shapes,
                bytes=operator.bytes,
                dtype=operator.dtype,
                layouts=_layouts(operator),
            )
            seconds, least, most = self._products.seconds(product)
            unsure = least / seconds, most / seconds
        elif kind == "attention":
            attention = attention_of(
                operator.name,
                operator.shapes,
                dtype=operator.dtype,
                flops=operator.flops,
                bytes=operator.bytes,
                is_causal=operator.is_causal,
            )
            seconds = self._attention.seconds(attention)
        else:
            kind = "bytes"
            cold = True if operator.phase == "optimizer" else None
            seconds = self._bytes.seconds(operator.name, operator.bytes, dtype=operator.dtype, is_cold=cold)
            seconds *= BROADCASTING if _broadcasts(operator) else 1.0
        source = sources[kind]
        if kind in self._measured:
            here = self.hardware.device.name
            where = here if _name(self._measured[kind]) == here else f"{REFERENCE}, the same chip"
            source = f"{kind} measured on {where}"
        return Cost(seconds, source if unsure == SURE else ASSUMED, unsure)


def _broadcasts(operator: Operator) -> bool:
    """Return whether an operator repeats an operand, so that it reads elements one by one."""
    first, *others = operator.shapes or ((),)
    return operator.name in ELEMENT_WISE and len(first) > 1 and bool(others) and others[0] != first


def _layouts(operator: Operator) -> tuple[str, ...]:
    """Return the layouts that a product's operands may have."""
    if operator.layout:
        return (operator.layout if operator.layout != "tt" else "tn",)
    return ("nt",) if operator.phase == "forward" or operator.is_again else ("nn", "tn")


@cache
def rates_of(device: Device, network: Network | None = None) -> Rates:
    """Return the rates of a device from what ships: measured there or on the same chip, published, or a datasheet."""
    hardware = hardware_of(device)
    points = _points_of(device)
    level: Level = "datasheet"
    if points:
        level = "measured" if any(_name(point) == device.name for point in points) else "scaled"
    elif "datasheet" not in hardware.sources["products"]:
        level = "public"
    return Rates(hardware, points, level=level, network=network)


def rates_with(device: Device, measured: Iterable[MeasuredOperator], network: Network | None = None) -> Rates:
    """Return the rates of a device some of whose operators a store has; of a kind that it lacks, those that ship."""
    found = [point for point in measured if _name(point) == device.name]
    kinds = {point.kind for point in found}
    shipped = rates_of(device, network)
    level: Level = "measured" if {"product", "attention"} <= kinds else shipped.level
    rest = [point for point in _points_of(device) if point.kind not in kinds]
    return Rates(shipped.hardware, [*found, *rest], level=level, network=network) if found else shipped


def _points_of(device: Device) -> list[MeasuredOperator]:
    """Return the measured operators of a device, or those of the device with the same chip."""
    chip = CHIP.get(device.name)
    here = [point for point in measured_operators() if _name(point) == device.name]
    if here or chip is None:
        return here
    return [point for point in measured_operators() if _name(point) == chip and point.kind in ("product", "attention")]


def _name(point: MeasuredOperator) -> str | None:
    return _device_name(point.device_name)


@cache
def _device_name(full_name: str) -> str | None:
    found = find_device(full_name)
    return found.name if found else None


__all__ = ["REFERENCE", "Cost", "Network", "Rates", "rates_of", "rates_with"]
