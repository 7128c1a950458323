"""The verdict of each part: slow, pass, or cannot tell, by the times that are expected of it.

slow         slower than can be expected of any machine of the kind, and by LEAST: a one-sided test, with Holm's
             correction for all parts of the acceptance
pass         neither slow nor NEAR it, surely less than WIDEST slower, and a slowdown of WIDEST would show if only
             this unit were measured
not judged   nothing says what such a machine should take; it decides nothing
cannot tell  all else, with the reason

benchmarks/acceptance.py simulates how often each is right.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import stdtr, stdtrit

from lmsweep.analysis.acceptance.expected import Expected, Known, expected_times
from lmsweep.analysis.acceptance.parts import Process
from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.statistics.significance import SIGNIFICANCE, holm
from lmsweep.trials.statistics.variation import Kind

Verdict = Literal["pass", "slow", "cannot tell", "not judged"]

DISTURBED = "disturbed while it was measured"
LEAST = 0.03
"""Smallest slowdown that is called slow, however sure it is."""
NEAR = 0.05
"""Slowdown from which a part that is not surely slow does not pass; twice the error of what is expected, if larger."""
WIDEST: dict[Kind, float] = {"host": 3.0, "cpu": 1.0}
"""Kind -> largest slowdown that a part may hide and still pass. Hosts with the same GPU differ by a factor of two, and
copies of a virtual machine from minute to minute by a third."""
USUAL_WIDEST, PUBLIC_WIDEST = 0.25, 0.65
"""The same of other kinds, and of any kind where only public rates are known, whose interval is wide."""


@dataclass(frozen=True, kw_only=True)
class PartVerdict:
    """One part of a unit, measured beside what is expected."""

    part: str
    trial_id: str
    value: str
    """PHASE.METRIC"""
    processes: int
    seconds: float
    against: str | None = None
    """What is expected comes from; None: unknown."""
    machines: int = 0
    expected_seconds: float | None = None
    expected_low: float | None = None
    """Ends of the 95 % interval of the time of another machine of the kind, in seconds."""
    expected_high: float | None = None
    ratio: float | None = None
    """Measured over expected time; above 1 is slower. The next two are the ends of its 95 % interval."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    p: float | None = None
    """Of a machine of the kind being as slow, adjusted for the number of tests."""
    would_show: float | None = None
    """Smallest slowdown, as a share, that this part would call slow."""
    verdict: Verdict
    reason: str
    flags: tuple[str, ...]
    settings: dict[str, str | int | None]


@dataclass(frozen=True, kw_only=True)
class Part:
    """The processes of one unit that measured one part."""

    node: str
    unit: str
    """GPU 0, links, host."""
    processes: tuple[Process, ...]

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
    """Adjusted for all tests of the same question, once they are known."""
    tests: int = 1
    of_unit: int = 1
    """Those among them of its unit."""

    def reach(self, probability: float) -> float:
        """Return how far above the expected time so large a share of machines stays, as a logarithm."""
        return float(stdtrit(self.expected.freedom, probability)) * self.expected.error

    def would_show(self, tests: int) -> float:
        """Return the slowdown that the first step of Holm's correction for so many tests finds."""
        return max(LEAST, math.expm1(self.reach(1 - SIGNIFICANCE / tests)))


def verdicts(
    parts: Sequence[Part],
    devices: Mapping[str, Device | None],
    known: Known,
    disturbed: Iterable[tuple[str, str]] = (),
) -> list[tuple[Part, PartVerdict]]:
    """Return the verdict of each part. devices: node -> what its GPUs should be; disturbed: nodes and units where other
    processes run. Who uses a GPU uses cores and links too."""
    compared = [
        [_compare(part, one) for one in expected_times(part.processes[0], devices.get(part.node), known)]
        for part in parts
    ]
    families: dict[str, list[_Compared]] = defaultdict(list)
    of_unit: Counter[tuple[str, ...]] = Counter()
    for part, of_part in zip(parts, compared, strict=True):
        for one in of_part:
            families[one.expected.question].append(one)
            of_unit[one.expected.question, part.node, part.unit] += 1
    for family in families.values():
        for one, p in zip(family, holm(np.array([one.p for one in family])), strict=True):
            one.p, one.tests = float(p), len(family)
    for part, of_part in zip(parts, compared, strict=True):
        for one in of_part:
            one.of_unit = of_unit[one.expected.question, part.node, part.unit]
    busy = {*disturbed, *((part.node, part.unit) for part in parts if Flag.SHARED_GPU in part.flags)}
    busy |= {(node, other) for node, unit in busy if unit.startswith("GPU") for other in ("links", "host")}
    return [
        (part, _verdict(part, of_part, is_disturbed=(part.node, part.unit) in busy))
        for part, of_part in zip(parts, compared, strict=True)
    ]


def parts_of(processes: Iterable[Process], units: Mapping[str, str]) -> list[Part]:
    """Return the parts that these processes measured. units: UUID of a GPU -> its unit."""
    found: dict[tuple[object, ...], list[Process]] = defaultdict(list)
    for one in sorted(processes, key=lambda process: process.place):
        unit = units.get(one.gpu, "GPU") if one.judged.unit == "GPU" else one.judged.unit
        found[one.node, unit, one.cell, one.judged.part].append(one)
    return [Part(node=str(key[0]), unit=str(key[1]), processes=tuple(of_part)) for key, of_part in found.items()]


def _compare(part: Part, expected: Expected) -> _Compared:
    distance = float(np.mean([math.log(one.seconds) for one in part.processes])) - math.log(expected.seconds)
    return _Compared(expected=expected, distance=distance, p=float(stdtr(expected.freedom, -distance / expected.error)))


def _verdict(part: Part, compared: Sequence[_Compared], *, is_disturbed: bool) -> PartVerdict:
    first = part.processes[0]
    judged = [(_of_one(one, first.judged.kind), one) for one in compared]
    decisive = [one for one in judged if one[0] == "slow"] or [one for one in judged if one[1].expected.decides]
    verdict: Verdict = decisive[0][0] if decisive else "not judged"
    reason = ""
    found: dict[str, Any] = {}
    if decisive:
        shown = decisive[0][1]
        expected, ratio, half = shown.expected, math.exp(shown.distance), shown.reach(0.975)
        found = {
            "against": expected.against,
            "machines": expected.machines,
            "expected_seconds": expected.seconds,
            "expected_low": expected.seconds * math.exp(-half),
            "expected_high": expected.seconds * math.exp(half),
            "ratio": ratio,
            "ratio_low": ratio * math.exp(-half),
            "ratio_high": ratio * math.exp(half),
            "p": shown.p,
            "would_show": shown.would_show(shown.tests),
        }
        if verdict == "slow" and (is_disturbed or any(one.slowed_by for one in part.processes)):
            verdict, reason = "cannot tell", DISTURBED
        elif verdict == "cannot tell":
            reason = "slower than most, but not surely" if ratio > 1 + NEAR else "what is expected is too uncertain"
    else:
        is_cpu = first.judged.kind == "cpu"
        reason = (
            "no undisturbed history of this CPU yet" if is_cpu else "no shipped set has this part of such a machine"
        )
    return PartVerdict(
        part=first.judged.part,
        trial_id=first.cell.trial_id,
        value=f"{first.cell.phase}.{first.cell.metric}",
        processes=len(part.processes),
        seconds=math.exp(float(np.mean([math.log(one.seconds) for one in part.processes]))),
        verdict=verdict,
        reason=reason,
        flags=part.flags,
        settings=first.settings,
        **found,
    )


def _of_one(compared: _Compared, kind: Kind) -> Verdict:
    if compared.p < SIGNIFICANCE and compared.distance >= math.log1p(LEAST):
        return "slow"
    expected = compared.expected
    widest = WIDEST.get(kind, USUAL_WIDEST) if expected.machines else PUBLIC_WIDEST
    near = compared.distance > max(math.log1p(NEAR), 2 * expected.error)
    unsure = compared.distance + compared.reach(1 - SIGNIFICANCE) > math.log1p(widest)
    return "cannot tell" if near or unsure or compared.would_show(compared.of_unit) > widest else "pass"
