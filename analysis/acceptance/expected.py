"""What a part should take: the distribution of machines that measured it, or public rates.

The logarithm of a machine's time is normal around that of its kind (`lmsweep.trials.statistics.variation`). Its
standard deviation is the shipped prior of machines and processes, with the machines of the part itself: Student's t.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lmsweep.analysis.acceptance.parts import Process
from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.rates.hardware import CHIP
from lmsweep.trials.analytic.rates.intervals import spread_for
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.spec.words import Collective
from lmsweep.trials.statistics.variation import BETWEEN_MACHINES, PRIORS, Kind, moderated

PRIOR_FREEDOM = 3.0
"""Degrees of freedom that the priors of machines are worth, as those of processes."""
SAME_CHIP = 0.02
"""Standard deviation that another GPU with the same chip adds: its memory takes some of the power."""
BY_CHIP = frozenset({"product", "attention, forward", "attention, backward"})
"""Parts that the chip decides and not the memory."""
ITEM = {"bf16": 2, "fp16": 2, "fp32": 4, "tf32": 4}
DTYPE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "tf32": "tf32"}


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The distribution of a part's time over machines of a kind."""

    against: str
    """What it is taken from, in words for a user."""
    seconds: float
    error: float
    """Standard deviation of the logarithm of another machine's time around this one."""
    freedom: float
    machines: int
    """How many measured it; 0 of public rates."""
    is_absolute: bool = True
    """Whether it says what such a machine should take, not only what this one took before, or its peers take."""


def expected_times(part: Sequence[Process], device: Device | None, known: "Known") -> list[Expected]:
    """Return what a part should take, by each source that says something. part: the processes that measured it."""
    found = [
        _shipped(part[0], device, known.shipped),
        _history(part[0], known.history),
        _peers(part[0], known.peers),
    ]
    if found[0] is None and device is not None and part[0].judged.unit != "host":  # the datasheet is that of the GPU
        found[0] = _public(part[0], device)
    return [one for one in found if one is not None]


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known besides the measurement."""

    shipped: Sequence[Process] = ()
    history: Sequence[Process] = ()
    """Earlier acceptances in the same store."""
    peers: Sequence[Process] = ()
    """The other machines of this acceptance."""


def deviation_of(kind: Kind, centres: Sequence[float], *, between: float) -> tuple[float, float]:
    """Return the standard deviation of machines, a process of each, and its degrees of freedom.

    centres: of the logarithms of each machine's times. between: the prior of machines.
    """
    scale = math.hypot(between, PRIORS[kind].scale)
    variance = float(np.var(centres, ddof=1)) if len(centres) > 1 else 0.0
    deviation, freedom = moderated(
        np.array([variance]), np.array([len(centres) - 1.0]), np.array([scale]), np.array([PRIOR_FREEDOM])
    )
    return float(deviation[0]), float(freedom[0])


def _shipped(part: Process, device: Device | None, shipped: Iterable[Process]) -> Expected | None:
    same = _same(part, shipped)
    if part.judged.kind == "cpu":  # too many kinds of CPU; a CPU has only its own history
        return None
    if part.judged.kind == "host":  # whatever the GPU, the host launches
        return _of_machines(part, same, "hosts of the shipped sets")
    if device is None:
        return None
    mine = [one for one in same if _name(one) == device.name]
    if mine:
        return _of_machines(part, mine, f"the shipped sets of {device.name}")
    chips = {device.name, CHIP.get(device.name)} | {name for name, chip in CHIP.items() if chip == device.name}
    alike = [one for one in same if _name(one) in chips]
    if alike and part.judged.part in BY_CHIP:
        words = f"the shipped sets of {_name(alike[0])}, the same chip"
        return _of_machines(part, alike, words, more=SAME_CHIP)
    return None


def _history(part: Process, history: Iterable[Process]) -> Expected | None:
    here = part.node, part.machine, part.device_name
    mine = [one for one in _same(part, history) if (one.node, one.machine, one.device_name) == here]
    between = BETWEEN_TIMES if part.judged.unit == "host" else 0.0
    found = _of_machines(part, mine, "its own history", each="attempt_id", between=between)
    return replace(found, is_absolute=part.judged.kind == "cpu") if found else None


FEWEST_PEERS = 3
BETWEEN_TIMES = 0.06
"""Standard deviation of one host at other times, beside that of its processes (docs/lab/2026-11-25-accept.md)."""


def _peers(part: Process, peers: Iterable[Process]) -> Expected | None:
    others = [
        one
        for one in _same(part, peers)
        if one.device_name == part.device_name and (one.node, one.machine) != (part.node, part.machine)
    ]
    found = _of_machines(part, others, "its peers in this acceptance")
    return replace(found, is_absolute=False) if found and found.machines >= FEWEST_PEERS else None


def _same(part: Process, processes: Iterable[Process]) -> list[Process]:
    """Return the undisturbed processes that measured the same part of the same cell."""
    return [
        one for one in processes if one.cell == part.cell and one.judged.part == part.judged.part and not one.slowed_by
    ]


def _of_machines(
    part: Process,
    processes: Iterable[Process],
    against: str,
    *,
    each: str = "machine",
    between: float | None = None,
    more: float = 0.0,
) -> Expected | None:
    machines: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for one in processes:
        machines[one.source, one.node, getattr(one, each)].append(math.log(one.seconds))
    if not machines:
        return None
    centres = [float(np.mean(found)) for found in machines.values()]
    kind = part.judged.kind
    prior = BETWEEN_MACHINES[kind] if between is None else between
    deviation, freedom = deviation_of(kind, centres, between=prior)
    return Expected(
        against=against,
        seconds=math.exp(float(np.mean(centres))),
        error=math.hypot(deviation * math.sqrt(1 + 1 / len(centres)), more),
        freedom=freedom,
        machines=len(centres),
    )


def _name(process: Process) -> str | None:
    found = find_device(process.device_name)
    return found.name if found else None


def _public(part: Process, device: Device) -> Expected | None:
    """Return what published rates, or the datasheet, let expect; None if they say nothing about the part."""
    rates = rates_of(device)
    seconds, source = _public_seconds(part, device)
    if not seconds:
        return None
    spread = spread_for(device.name, rates.level)
    return Expected(
        against=f"public rates: {source}", seconds=seconds, error=spread.deviation, freedom=math.inf, machines=0
    )


def _public_seconds(part: Process, device: Device) -> tuple[float | None, str]:
    rates, settings = rates_of(device), part.settings
    item, dtype = ITEM[str(settings["precision"])], DTYPE[str(settings["precision"])]
    if part.judged.part == "product":
        width = _number(part, "d_model")
        return 2.0 * width**3 / rates.hardware.rate(dtype), rates.hardware.sources["products"]
    if part.judged.part == "copy":
        moved = 2.0 * item * _number(part, "d_model") ** 2
        return moved / rates.hardware.bandwidth, rates.hardware.sources["bytes"]
    if part.judged.unit == "links":
        ranks = _number(part, "world_size")
        kind: Collective = settings["collective"]  # type: ignore[assignment]
        found = rates.collective(kind, float(_number(part, "message_bytes")), ranks=ranks)
        return found or None, rates.source_of_links(ranks)
    return None, ""


def _number(part: Process, name: str) -> int:
    return int(part.settings[name] or 0)
