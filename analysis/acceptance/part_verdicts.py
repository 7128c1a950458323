"""The verdict of each part: slow, pass, or cannot tell, by the times that are expected of it.

slow         slower than can be expected of any machine of the kind, and by LEAST: a one-sided test, with Holm's
             correction for the parts of its unit
pass         neither slow nor NEAR it, and the expectation is so narrow that a slowdown of WIDEST would show
not judged   nothing says what such a machine should take; it decides nothing
cannot tell  all else, with the reason

benchmarks/acceptance.py simulates how often each is right.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtr, stdtrit

from lmsweep.analysis.acceptance.expected import Expected, Known, expected_times
from lmsweep.analysis.acceptance.parts import Process
from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.statistics.significance import SIGNIFICANCE, holm
from lmsweep.trials.statistics.variation import Kind

Verdict = Literal["pass", "slow", "cannot tell", "not judged"]

LEAST = 0.03
"""Smallest slowdown that is called slow, however sure it is."""
NEAR = 0.05
"""Slowdown from which a part that is not surely slow does not pass; twice the error of what is expected, if larger."""
WIDEST: dict[Kind, float] = {"host": 3.0, "cpu": 1.0}
"""Kind -> largest slowdown that a part may hide and still pass. Hosts with the same GPU differ by a factor of two, and
copies of a virtual machine from minute to minute by a third."""
USUAL_WIDEST = 0.25


@dataclass(frozen=True, kw_only=True)
class PartVerdict:
    """One part of a unit, measured beside what is expected."""

    part: str
    trial_id: str
    value: str
    """PHASE.METRIC"""
    processes: int
    seconds: float
    against: str | None
    """What is expected comes from; None: unknown."""
    machines: int
    expected_seconds: float | None
    expected_low: float | None
    """Ends of the 95 % interval of the time of another machine of the kind, in seconds."""
    expected_high: float | None
    ratio: float | None
    """Measured over expected time; above 1 is slower. The next two are the ends of its 95 % interval."""
    ratio_low: float | None
    ratio_high: float | None
    p: float | None
    """Of a machine of the kind being as slow, adjusted for the number of parts of the unit."""
    would_show: float | None
    """Smallest slowdown, as a share, that this part would call slow."""
    verdict: Verdict
    reason: str
    flags: tuple[str, ...]
    settings: dict[str, str | int | None]


@dataclass(frozen=True, kw_only=True)
class Part:
    """The processes of one unit that measured one part."""

    unit: str
    """GPU 0, links, host."""
    node: str
    processes: tuple[Process, ...]

    @property
    def centre(self) -> float:
        return float(np.mean([math.log(one.seconds) for one in self.processes]))

    @property
    def slowed_by(self) -> frozenset[str]:
        return frozenset[str]().union(*(one.slowed_by for one in self.processes))

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(flag for one in self.processes for flag in sorted(one.flags)))


@dataclass(kw_only=True)
class _Compared:
    """A part against one expectation."""

    expected: Expected
    distance: float
    """Logarithm of measured over expected."""
    p: float
    """Adjusted for the tests of its unit, once all are known."""
    tests: int = 1

    @property
    def ratio(self) -> float:
        return math.exp(self.distance)

    def reach(self, probability: float) -> float:
        """Return so many standard errors that a machine of the kind is within them with this probability."""
        return float(stdtrit(self.expected.freedom, probability)) * self.expected.error


def verdicts(
    parts: Sequence[Part],
    devices: Mapping[str, Device | None],
    known: Known,
    disturbed: Iterable[tuple[str, str]] = (),
) -> list[tuple[Part, PartVerdict]]:
    """Return the verdict of each part. devices: node -> what its GPUs should be; disturbed: nodes and units where other
    processes run. Who uses a GPU uses cores and links too."""
    compared = [
        [_compare(part, one) for one in expected_times(part.processes, devices.get(part.node), known)] for part in parts
    ]
    busy = {*disturbed, *((part.node, part.unit) for part in parts if Flag.SHARED_GPU in part.flags)}
    busy |= {(node, other) for node, unit in busy if unit.startswith("GPU") for other in ("links", "host")}
    answers = []
    for unit in dict.fromkeys((part.node, part.unit) for part in parts):
        mine = [place for place, part in enumerate(parts) if (part.node, part.unit) == unit]
        of_unit = [one for place in mine for one in compared[place]]
        for is_absolute in (True, False):  # two questions: as fast as its kind, as fast as before
            family = [one for one in of_unit if one.expected.is_absolute == is_absolute]
            for one, p in zip(family, holm(np.array([one.p for one in family])), strict=True):
                one.p, one.tests = float(p), len(family)
        for place in mine:
            answers.append((parts[place], _verdict(parts[place], compared[place], is_disturbed=unit in busy)))
    return answers


def parts_of(processes: Iterable[Process], units: Mapping[str, str]) -> list[Part]:
    """Return the parts that these processes measured. units: UUID of a GPU -> its unit."""
    found: dict[tuple[object, ...], list[Process]] = defaultdict(list)
    for one in sorted(processes, key=lambda process: process.place):
        unit = units.get(one.gpu, "GPU") if one.judged.unit == "GPU" else one.judged.unit
        found[one.node, unit, one.cell, one.judged.part].append(one)
    return [Part(node=str(key[0]), unit=str(key[1]), processes=tuple(of_part)) for key, of_part in found.items()]


def _compare(part: Part, expected: Expected) -> _Compared:
    distance = part.centre - math.log(expected.seconds)
    p = float(stdtr(expected.freedom, -distance / expected.error))
    return _Compared(expected=expected, distance=distance, p=p)


def _verdict(part: Part, compared: Sequence[_Compared], *, is_disturbed: bool) -> PartVerdict:
    kind = part.processes[0].judged.kind
    judged = [(_of_one(one, kind), one) for one in compared]
    slow = [one for one in judged if one[0] == "slow"]
    absolute = [one for one in judged if one[1].expected.is_absolute]
    verdict: Verdict = "cannot tell"
    shown, reason = None, ""
    if decisive := slow or absolute:
        verdict, shown = decisive[0]
    first = part.processes[0]
    if shown is None:
        verdict, reason = "not judged", "no shipped set has this part of such a machine"
        if first.judged.kind == "cpu":
            reason = "no history of this CPU yet"
    elif verdict == "slow" and (part.slowed_by or is_disturbed):
        verdict, reason = "cannot tell", "disturbed while it was measured"
    elif verdict == "cannot tell":
        reason = "slower than most, but not surely" if shown.ratio > 1 + NEAR else "what is expected is too uncertain"
    expected = shown.expected if shown else None
    half = shown.reach(0.975) if shown else 0.0
    return PartVerdict(
        part=first.judged.part,
        trial_id=first.cell.trial_id,
        value=f"{first.cell.phase}.{first.cell.metric}",
        processes=len(part.processes),
        seconds=math.exp(part.centre),
        against=expected.against if expected else None,
        machines=expected.machines if expected else 0,
        expected_seconds=expected.seconds if expected else None,
        expected_low=expected.seconds * math.exp(-half) if expected else None,
        expected_high=expected.seconds * math.exp(half) if expected else None,
        ratio=shown.ratio if shown else None,
        ratio_low=shown.ratio * math.exp(-half) if shown else None,
        ratio_high=shown.ratio * math.exp(half) if shown else None,
        p=shown.p if shown else None,
        would_show=_would_show(shown) if shown else None,
        verdict=verdict,
        reason=reason,
        flags=part.flags,
        settings=first.settings,
    )


def _of_one(compared: _Compared, kind: Kind) -> Verdict:
    if compared.p < SIGNIFICANCE and compared.ratio >= 1 + LEAST:
        return "slow"
    near = compared.distance > max(math.log1p(NEAR), 2 * compared.expected.error)
    hidden = _would_show(compared) > WIDEST.get(kind, USUAL_WIDEST)
    return "cannot tell" if near or hidden else "pass"


def _would_show(compared: _Compared) -> float:
    """Return the slowdown that the first step of Holm's correction for so many tests finds."""
    return max(LEAST, math.expm1(compared.reach(1 - SIGNIFICANCE / compared.tests)))
