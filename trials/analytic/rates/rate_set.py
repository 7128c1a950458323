"""The rates of one GPU: what each operator of a step costs there, and where that figure comes from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import NamedTuple

from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.rates.attention_rates import AttentionRates, attention_of
from lmsweep.trials.analytic.rates.byte_rates import ByteRates
from lmsweep.trials.analytic.rates.collective_rates import CollectiveTimes, Point, across, between_gpus, measured_links
from lmsweep.trials.analytic.rates.hardware import CHIP, Hardware, Level, hardware_of
from lmsweep.trials.analytic.rates.operators import Operator, class_of
from lmsweep.trials.analytic.rates.product_rates import ASSUMED, Product, ProductRates, product_of
from lmsweep.trials.analytic.rates.rate_data import MeasuredOperator, measured_operators
from lmsweep.trials.analytic.rates.step_time import NO_ASSUMPTION, Cost
from lmsweep.trials.spec.words import Collective

LAUNCH_SECONDS = {
    "eager": 12e-6,  # a kernel of eager code
    "optimizer": 9e-6,  # a kernel of the optimizer
    "cast": 6e-6,  # a cast to another type, mostly launched by autocast without Python
    "again": 22e-6,  # a kernel that a checkpoint launches again, through hooks
    "group": 8e-6,  # a product of a loop over groups; assumed to cost what a cast with three views does
    "adapter": 70e-6,  # the first product of an adapter, with the Python of PEFT's layer around it
    "four_bits": 165e-6,  # a weight of 4 bits that bitsandbytes dequantizes
    "compiled": 11e-6,  # a kernel of compiled code
    "call": 145e-6,  # a call of compiled code, with its guards
}
"""What is launched -> the host's seconds for it, on the reference host. Fitted to steps of the shipped sets that the
host decides: `python -m benchmarks.host_prices` leaves each machine out. Those of adapters and of 4 bits come from
fine-tuning steps on one H200 (docs/lab/2026-11-25-finetuning.md)."""
COLLECTIVE_LAUNCH_SECONDS = {"all_gather": 0.73e-3, "reduce_scatter": 0.58e-3, "all_reduce": 0.05e-3}
"""Kind -> the host's seconds for a collective with the hooks and copies around it, fitted to steps of two H200."""
HOSTS = (0.8, 3.4)
"""How long hosts take to launch, over the reference host: the fastest and the slowest seen with an H200 and an H100."""
LAUNCHES = {"launch_forward": 6.6e-6, "launch_backward": 11e-6}
"""Launch that `lmsweep run operators` measures -> its seconds on the reference host, from the steps of one machine."""
MEASURED_HOSTS = (0.7, 2.0)
"""As HOSTS, over the prediction from launches measured on the host. Chosen after 74 steps on two machines: two
processes of one machine differ by 1.5 while another works beside them. All of 26 later steps on a third machine lie
within (docs/lab/2026-11-25-finetuning.md)."""

_SAME_TYPE = {"float16": "bfloat16"}
EXPECTED_LOAD = "expected load of the experts, in an interval from an even to a skewed one"
FULLEST_SECONDS = 3.5e-6
"""Seconds of `index_put_` for each row added to a row of its output, on average; these additions wait for each other.
Adding 16,384 rows to 32 (gradients of gpt-oss' biases) took an H200 1.79 ms. The fullest row, which sets the time, has
4 times the mean (2.9 and 5.1 in two layers of random weights), a quarter of it if even, twice if all choose alike."""
UNSURE_COPY, UNSURE_UPDATE = (0.8, 1.6), (0.4, 3.0)
"""Least and most time of a copy over the host's link, and of an update in its memory, over the assumed time."""
ASSUMED_HOST = "an assumption about the host's memory and link, not measured"


@dataclass(frozen=True, kw_only=True)
class Network:
    """What connects nodes."""

    gpus: int
    """Number of GPUs of a node."""
    bytes_per_second: float
    """Bandwidth of one GPU's network adapter, in one direction."""
    source: str


@dataclass(frozen=True, kw_only=True)
class MeasuredRates:
    """What was measured of GPUs, by the name of the datasheet, beside what ships."""

    operators: tuple[MeasuredOperator, ...] = ()
    hosts: Mapping[str, float] = field(default_factory=dict)
    """How long the host takes to launch, over the reference host."""
    collectives: Mapping[tuple[str, int], Mapping[Collective, Sequence[Point]]] = field(default_factory=dict)
    """Times of collectives measured on a device, by number of ranks on one node."""


class _Placement(NamedTuple):
    """Where the ranks of a group are."""

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
        network: Network | None = None,
        host: float | None = None,
        links: Mapping[int, CollectiveTimes] | None = None,
    ) -> None:
        """host: launch time over that of the reference host, None if unknown. links: measured ones, by ranks."""
        by_kind: dict[str, list[MeasuredOperator]] = {}
        self._measured: dict[tuple[str, str], str] = {}
        """Kind and type, by which rates are known -> the device that measured them."""
        for point in points:
            by_kind.setdefault(point.kind, []).append(point)
            self._measured.setdefault(_type(point), _device_name(point.device_name) or point.device_name)
        self.hardware = hardware
        self.hosts = MEASURED_HOSTS if host else HOSTS
        self.host_source = f"its launches were measured, {host:.2g} times those of" if host else "assumed to be like"
        self.host_source += " the reference host"
        self._host = host or 1.0
        self._links = links or {}
        self._network = network
        group_launch = self._host * LAUNCH_SECONDS["group"]
        self._products = ProductRates(hardware, by_kind.get("product", ()), group_launch=group_launch)
        self._attention = AttentionRates(hardware, by_kind.get("attention", ()))
        self._bytes = ByteRates(hardware, [*by_kind.get("bytes", ()), *by_kind.get("optimizer", ())])
        self._known: dict[Operator, Cost] = {}

    def level(self, dtype: str = "bfloat16") -> Level:
        """Return what is known of products in this type."""
        if ("product", _SAME_TYPE.get(dtype, dtype)) in self._measured:
            return "measured"
        if dtype == "float32":
            return "fp32"
        return "datasheet" if "datasheet" in self.hardware.sources["products"] else "public"

    def of(self, operator: Operator) -> Cost:
        if operator not in self._known:
            self._known[operator] = self._cost(operator)
        return self._known[operator]

    def launch(self, operator: Operator) -> float:
        """Return the host's seconds for one launch of an operator."""
        if operator.stream == "communication" and operator.name in COLLECTIVE_LAUNCH_SECONDS:
            return self._host * COLLECTIVE_LAUNCH_SECONDS[operator.name]
        if "grouped" in operator.name and self._products.loops(product := _product(operator)):
            return self._host * LAUNCH_SECONDS["group"] * product.groups
        return self._host * (LAUNCH_SECONDS[launched(operator)] + LAUNCH_SECONDS["call"] * operator.calls)

    def connects(self, ranks: int) -> bool:
        """Return whether anything is known of the links between this number of ranks."""
        return self._between(self._placement(ranks, 1).local) is not None

    def collective(self, kind: Collective, size: float, *, ranks: int, stride: int = 1) -> float:
        """Return the seconds of a collective of `size` bytes between ranks that are `stride` apart."""
        local, nodes = self._placement(ranks, stride)
        adapter = self._network.bytes_per_second if self._network else 0.0
        return across(kind, size, local=local, nodes=nodes, links=self._between(local), adapter=adapter)

    def _between(self, ranks: int) -> CollectiveTimes | None:
        return self._links.get(ranks) or between_gpus(self.hardware.device, ranks)

    def source_of_links(self, ranks: int, stride: int = 1) -> str:
        """Return where the times of collectives between this number of ranks come from, in words for a user."""
        local, nodes = self._placement(ranks, stride)
        links = self._between(local)
        inside = links.source if links else "unknown links"
        return f"{inside} and {self._network.source}" if nodes > 1 and self._network else inside

    def _placement(self, ranks: int, stride: int) -> _Placement:
        """Return on how many GPUs of how many nodes a group lies; the ranks of a node are neighbours."""
        if self._network is None:
            return _Placement(ranks, 1)
        local = max(1, min(ranks, self._network.gpus // stride))  # nodes of 8, strides of 1, 2, 8, 16: 8, 4, 1, 1
        return _Placement(local, -(-ranks // local))

    def _cost(self, operator: Operator) -> Cost:
        kind, unsure = class_of(operator), NO_ASSUMPTION
        if kind == "collectives":
            name: Collective = operator.name  # type: ignore[assignment]
            seconds = self.collective(name, operator.bytes, ranks=operator.ranks, stride=operator.stride)
            return Cost(seconds, self.source_of_links(operator.ranks, operator.stride))
        if kind == "host":
            seconds = self.hardware.host_seconds(operator.name, operator.bytes * operator.ranks)
            is_update = operator.name.endswith("update_on_host")
            return Cost(seconds, ASSUMED_HOST, UNSURE_UPDATE if is_update else UNSURE_COPY)
        if kind == "products":
            seconds, least, most = self._products.seconds(_product(operator))
            unsure = least / seconds, most / seconds
        elif kind == "attention":
            seconds = self._attention.seconds(attention_of(operator))
        else:
            kind = "bytes"
            seconds = self._bytes.seconds(
                operator.name,
                operator.bytes,
                dtype=operator.dtype,
                layout=operator.layout,
                elements=max(map(prod, operator.shapes), default=1),
                is_cold=True if operator.phase == "optimizer" else None,
            )
            if operator.name == "index_put_" and len(operator.shapes) > 1:  # recorded; closed forms have one shape
                into, *_, added = map(prod, operator.shapes)  # elements: the output's, indices, what is added
                if (waiting := FULLEST_SECONDS * added / max(into, 1)) > seconds:
                    words = f"sums into few rows profiled on an H200, with an {EXPECTED_LOAD}"
                    even, all_alike = 0.25, 2.0  # the fullest row over what is expected: see FULLEST_SECONDS
                    return Cost(waiting, words, (max(even, seconds / waiting), all_alike))
        source = self._source(operator, kind)
        if "grouped" in operator.name:
            return Cost(seconds, f"{source}, with an {EXPECTED_LOAD}", unsure)
        return Cost(seconds, source if unsure == NO_ASSUMPTION else ASSUMED, unsure)

    def _source(self, operator: Operator, kind: str) -> str:
        """Return where the rate of this kind comes from: a measured device with this chip, or hardware.sources."""
        dtype = _SAME_TYPE.get(operator.dtype, operator.dtype)
        words = "float32" if kind == "products" and dtype == "float32" else kind
        where = self._measured.get(("product", dtype) if kind == "products" else (kind, ""))
        if "grouped" in operator.name and not self._products.loops(_product(operator)):  # of products alone
            where = self._measured.get(("grouped", dtype), where)
        if where is None:
            return self.hardware.sources[words]
        return f"{words} measured on {where}" + (", the same chip" if where != self.hardware.device.name else "")


def launched(operator: Operator) -> str:
    """Return what the host launches, a key of LAUNCH_SECONDS."""
    if operator.is_compiled:
        return "compiled"
    if operator.name.endswith("dequantize_4bit"):
        return "four_bits"
    if ".lora_A." in operator.module and operator.name == "mm" and (operator.phase == "forward" or operator.is_again):
        return "adapter"
    if operator.is_again:
        return "again"
    if operator.phase == "optimizer":
        return "optimizer"
    return "cast" if operator.name == "_to_copy" else "eager"


def _product(operator: Operator) -> Product:
    size, dtype = operator.bytes, operator.dtype
    return product_of(operator.name, operator.shapes, bytes=size, dtype=dtype, layouts=_layouts(operator))


def _layouts(operator: Operator) -> tuple[str, ...]:
    """Return the layouts that a product's operands may have."""
    if operator.layout:
        return (operator.layout if operator.layout != "tt" else "tn",)  # "tt" was not measured; both are rare
    return ("nt",) if operator.phase == "forward" or operator.is_again else ("nn", "tn")  # y=xWᵀ; dx=dyW, dW=dyᵀx


@cache
def rates_of(device: Device, network: Network | None = None) -> Rates:
    """Return the rates of a device from what ships: measured there or on the same chip, published, or a datasheet."""
    return Rates(hardware_of(device), _points_of(device), network=network)


def rates_with(device: Device, measured: MeasuredRates, network: Network | None = None) -> Rates:
    """Return the rates of a device: for each kind and type the measured ones, else those that ship."""
    points = [point for point in measured.operators if _device_name(point.device_name) == device.name]
    types = {_type(point) for point in points}
    shipped = rates_of(device, network)
    rest = [point for point in _points_of(device) if _type(point) not in types]
    sent = {ranks: times for (name, ranks), times in measured.collectives.items() if name == device.name}
    links = {ranks: measured_links(device, ranks, times) for ranks, times in sent.items()}
    host = measured.hosts.get(device.name)
    if not (points or links or host):
        return shipped
    return Rates(shipped.hardware, [*points, *rest], network=network, host=host, links=links)


def _points_of(device: Device) -> list[MeasuredOperator]:
    """Return the points of a device; for products and attention of types that it lacks, those of its chip elsewhere."""
    named = [(_device_name(one.device_name) or "", one) for one in measured_operators()]
    here, chip = [one for name, one in named if name == device.name], CHIP.get(device.name, device.name)
    alike = [one for name, one in named if CHIP.get(name, name) == chip and one.kind in ("product", "attention")]
    known = {_type(one) for one in here}
    return here + [one for one in alike if _type(one) not in known]


def _type(point: MeasuredOperator) -> tuple[str, str]:
    """Return kind and type, by which rates are known. Grouped products are another kind; only products have a type."""
    kind = "grouped" if point.kind == "product" and "grouped" in point.name else point.kind
    return kind, point.dtype if point.kind == "product" else ""


@cache
def _device_name(full_name: str) -> str | None:
    found = find_device(full_name)
    return found.name if found else None
