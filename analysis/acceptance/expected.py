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
from lmsweep.trials.statistics.variation import BETWEEN_MACHINES, PRIORS, moderated

PRIOR_FREEDOM = 3.0
"""Degrees of freedom that the priors of machines are worth, as those of processes."""
SAME_CHIP = 0.02
"""Standard deviation that another GPU with the same chip adds: its memory takes some of the power."""
BY_CHIP = frozenset({"product", "attention, forward", "attention, backward"})
"""Parts that the chip decides and not the memory."""


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
    scale = math.hypot(BETWEEN_MACHINES[kind] if between is None else between, PRIORS[kind].scale)
    variance = float(np.var(centres, ddof=1)) if len(centres) > 1 else 0.0
    of_cell, of_prior = np.array([len(centres) - 1.0]), np.array([PRIOR_FREEDOM])
    deviation, freedom = moderated(np.array([variance]), of_cell, np.array([scale]), of_prior)
    return Expected(
        against=against,
        seconds=math.exp(float(np.mean(centres))),
        error=math.hypot(deviation[0] * math.sqrt(1 + 1 / len(centres)), more),
        freedom=float(freedom[0]),
        machines=len(centres),
    )


def _name(process: Process) -> str | None:
    found = find_device(process.device_name)
    return found.name if found else None


def _public(part: Process, device: Device) -> Expected | None:
    """Return what published rates, or the datasheet, let expect; None if they say nothing about the part."""
    rates, settings = rates_of(device), part.settings
    width, size, ranks = (int(settings[name] or 0) for name in ("d_model", "message_bytes", "world_size"))
    assert settings["precision"] == "bf16" or part.judged.part not in ("product", "copy"), "as the sweep accept says"
    if part.judged.part == "product":
        seconds, source = 2.0 * width**3 / rates.hardware.rate("bfloat16"), rates.hardware.sources["products"]
    elif part.judged.part == "copy":
        seconds, source = 4.0 * width**2 / rates.hardware.bandwidth, rates.hardware.sources["bytes"]
    elif part.judged.unit == "links":
        kind: Collective = settings["collective"]  # type: ignore[assignment]
        seconds, source = rates.collective(kind, float(size), ranks=ranks), rates.source_of_links(ranks)
    else:
        return None
    error = spread_for(device.name, rates.level).deviation
    words = f"public rates: {source}"
    return Expected(against=words, seconds=seconds, error=error, freedom=math.inf, machines=0) if seconds else None
