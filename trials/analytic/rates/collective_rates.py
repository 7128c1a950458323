"""How long a collective takes: from measured or published ones within a node, by the adapters between nodes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from lmsweep.trials.analytic.datasheets import LINKS, Device, find_device, host_link
from lmsweep.trials.analytic.rates.rate_data import public_collectives
from lmsweep.trials.analytic.rates.surface import Curve
from lmsweep.trials.spec.words import Collective

LATENCY_SECONDS = 20e-6
"""Assumed latency of a collective without data between the GPUs of a node, if none was measured or published."""
SHARE_OF_LINK = 0.77
"""Share of a link's datasheet bandwidth that large collectives reach: 348 of 450 GB/s (`h200-x2-ddp`)."""
HOP_SECONDS = 6e-6
"""Assumed latency of one step of a collective between nodes. Its steps grow with the logarithm of the nodes."""
SHARES_OF_PCIE = {2: 0.62, 4: 0.48, 8: 0.38}
"""Ranks of one node -> share of PCIe's datasheet bandwidth that collectives reach between cards without links of their
own: medians for 2, 4 and 8 ranks of L40S (0.64, 0.16, 0.045), RTX PRO 6000 Server (0.61, 0.41, 0.38), RTX 5090 (of 4
and 8: 0.56, 0.44, NVIDIA/nccl issue 1639) and A100 beyond bridges (three, as 4: 0.63, nccl-tests issue 178).
Above two, it matters how cards share switches and sockets: the L40S seem to exchange through the host."""
SHARE_OF_NETWORK = 0.85
"""Share of the adapters' bandwidth that large collectives between nodes reach: an assumption."""


class Point(NamedTuple):
    """One measured collective; the size of its message is in bytes, as nccl-tests counts them."""

    size: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CollectiveTimes:
    """The times of collectives between some ranks of one node."""

    bandwidth: float
    """Bus bandwidth of a large all-reduce, B/s."""
    latency: float = LATENCY_SECONDS
    measured: Mapping[Collective, Sequence[Point]]
    """Measured times by kind, in order of size, of the same number of ranks."""
    source: str
    """Where the numbers come from, in words for a user."""

    def seconds(self, kind: Collective, size: float, ranks: int) -> float:
        """Return the seconds of a collective of `size` bytes: measured, between two measured ones, or by bandwidth."""
        factor = bus_factor(kind, ranks)
        if not factor:
            return 0.0
        points = self.measured.get(kind, ())
        if not points:
            return self.latency + factor * size / self.bandwidth
        return Curve(points).at(size)


@cache
def between_gpus(device: Device, ranks: int) -> CollectiveTimes | None:
    """Return the times between GPUs of one node: published, else by the datasheet's link or PCIe; None if unknown."""
    found: dict[int, dict[Collective, list[Point]]] = {}
    for row in public_collectives():
        met = find_device(row.device_name)
        if met is not None and _link_name(met.name) == _link_name(device.name):
            found.setdefault(row.ranks, {}).setdefault(row.kind, []).append(Point(row.bytes, row.seconds))
    if found:
        nearest = min(found, key=lambda known: (abs(math.log(known / max(ranks, 2))), -known))  # or larger
        points = {kind: in_order(of_kind) for kind, of_kind in found[nearest].items()}
        largest = points["all_reduce"][-1]
        words = f"published collectives between {nearest} {device.name} (AIConfigurator)"
        bandwidth = bus_factor("all_reduce", nearest) * largest.size / largest.seconds
        grown = {kind: bus_factor(kind, ranks) / bus_factor(kind, nearest) for kind in points}
        points = {kind: [Point(size, grown[kind] * seconds) for size, seconds in points[kind]] for kind in points}
        return CollectiveTimes(bandwidth=bandwidth, measured=points, source=words)
    if device.name in LINKS:
        return from_datasheet(LINKS[device.name], device.name)
    return _over_pcie(device, ranks) if device.chip.compute != (12, 1) else None  # of a GB10 a node has one


def _over_pcie(device: Device, ranks: int) -> CollectiveTimes:
    share = SHARES_OF_PCIE[min((2, 4, 8), key=lambda known: abs(math.log(known / max(ranks, 2))))]
    words = (
        f"{share:.0%} of PCIe {device.chip.pcie}'s {host_link(device) / 1e9:g} GB/s, as published for four other cards"
    )
    return CollectiveTimes(bandwidth=share * host_link(device), measured={}, source=words)


def measured_links(device: Device, ranks: int, points: Mapping[Collective, Sequence[Point]]) -> CollectiveTimes:
    """Return the times between GPUs of one node where some kinds were measured."""
    known = between_gpus(device, ranks)
    kind: Collective = "all_reduce" if "all_reduce" in points else next(iter(points))
    largest = points[kind][-1]
    bandwidth = bus_factor(kind, ranks) * largest.size / largest.seconds
    words = f"collectives measured between {ranks} {device.name}"
    return CollectiveTimes(bandwidth=bandwidth, measured={**(known.measured if known else {}), **points}, source=words)


def from_datasheet(bandwidth: float, name: str) -> CollectiveTimes:
    """Return the times between devices of this name, whose datasheet states the bandwidth, B/s in one direction."""
    words = f"{SHARE_OF_LINK:.0%} of the datasheet's {bandwidth / 1e9:g} GB/s of {name}"
    return CollectiveTimes(bandwidth=SHARE_OF_LINK * bandwidth, measured={}, source=words)


def across(
    kind: Collective, size: float, *, local: int, nodes: int, links: CollectiveTimes | None, adapter: float
) -> float:
    """Return the seconds of a collective of `local` GPUs on each of `nodes`: by the slower of links and adapters.

    adapter: B/s of one GPU's share of its node's adapters. Rings over all GPUs enter and leave a node over all of them,
    so that each carries an equal share of what a node sends. Inside the node the same bytes pass over the links.
    """
    ranks = local * nodes
    inside = links.seconds(kind, size, local) if links and local > 1 else 0.0
    if nodes == 1:
        return inside
    crossing = bus_factor(kind, ranks) * size / (SHARE_OF_NETWORK * adapter * local)
    hops = (math.ceil(math.log2(nodes)) + 1) * HOP_SECONDS
    return max(inside, crossing) + hops


def in_order(points: Iterable[Point]) -> list[Point]:
    """Return the points by size, the shortest of each size, none shorter than one of a smaller size."""
    best: dict[int, float] = {}
    for size, seconds in points:
        best[size] = min(seconds, best.get(size, math.inf))
    longest = accumulate((best[size] for size in sorted(best)), max)
    return [Point(size, seconds) for size, seconds in zip(sorted(best), longest, strict=True)]


def bus_factor(collective: Collective, ranks: int) -> float:
    """Bytes that each of n ranks sends, per byte of the message (nccl-tests, doc/PERFORMANCE.md): 2 (n - 1) / n for an
    all-reduce, 1 for a broadcast and for one message, else (n - 1) / n."""
    if ranks == 1:
        return 0.0
    if collective in ("broadcast", "send_recv"):
        return 1.0
    return (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks


def _link_name(name: str) -> str:
    """The name of the device whose links are the same."""
    return {"GH200 96GB": "H100 SXM", "GH200 144GB": "H200 SXM", "A100 SXM 40GB": "A100 SXM 80GB"}.get(name, name)
