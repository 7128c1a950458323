"""The verdict of each part: slow, pass, or cannot tell, by the times that are expected of it.

slow         significantly slower than machines of the kind, and by at least LEAST_SLOWDOWN: a one-sided test, with
             Holm's correction for all parts of the acceptance
pass         slower by less than NEAR_SLOWDOWN or twice the error of what is expected, certainly less than MOST_HIDDEN
             slower, and a slowdown of MOST_HIDDEN would be detected if only this unit were measured
not judged   nothing says what such a machine should take; it decides nothing
cannot tell  all else, with the reason

benchmarks/acceptance.py simulates how often each is right.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import stdtr

from lmsweep.orchestrator.features.accept.expected import Expected, Known, expected_times
from lmsweep.orchestrator.features.accept.parts import Cell, Process
from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.statistics.significance import SIGNIFICANCE, holm
from lmsweep.trials.statistics.variation import Kind

Verdict = Literal["pass", "slow", "cannot tell", "not judged"]

DISTURBED = "disturbed while it was measured"
LEAST_SLOWDOWN = 0.03
"""Smallest slowdown that is called slow, however certain it is."""
NEAR_SLOWDOWN = 0.05
"""A part passes only if its slowdown is below this, or below twice the error of the expected time if that is larger."""
MOST_HIDDEN: dict[Kind, float] = {"host": 3.0, "cpu": 1.0}
"""Kind of variation -> a part passes only if its interval excludes this slowdown, a share: 1.0 is twice the time. Hosts
with the same GPU differ by a factor of two, and copies of a virtual machine from minute to minute by a third."""
USUAL_MOST_HIDDEN, PUBLIC_MOST_HIDDEN = 0.25, 0.65
"""MOST_HIDDEN of other kinds; and of any kind where only public rates are known, whose interval is wide."""


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
    """Where the expected time comes from, in words; None: nothing is expected."""
    machines: int = 0
    expected_seconds: float | None = None
    expected_between: tuple[float, float] | None = None
    """Ends of the 95 % interval of the time of another machine of the kind, in seconds."""
    ratio: float | None = None
    """Measured over expected time; above 1 is slower."""
    ratio_between: tuple[float, float] | None = None
    """Ends of its 95 % interval."""
    p: float | None = None
    """Probability that a machine of the kind is as slow, adjusted for the number of tests."""
    would_show: float | None = None
    """Smallest slowdown, as a share, that this part would call slow."""
    verdict: Verdict
    reason: str
    flags: tuple[str, ...]
    settings: dict[str, str | int | None]


class Unit(NamedTuple):
    node: str
    unit: str
    """GPU 0, links, host."""


class PartKey(NamedTuple):
    unit: Unit
    cell: Cell
    part: str


class _Judgement(NamedTuple):
    """The verdict of a part by one of the times that are expected of it."""

    verdict: Verdict
    by: Expected


def verdicts(
    processes: Iterable[Process],
    gpus: Mapping[str, str],
    devices: Mapping[str, Device | None],
    known: Known,
    disturbed: Iterable[tuple[str, str]] = (),
) -> dict[Unit, list[PartVerdict]]:
    """Return the verdicts of the parts of each unit. gpus: UUID -> the unit that it is; devices: node -> what its GPUs
    should be; disturbed: nodes and units where other processes run. A process that uses a GPU also disturbs the cores
    and the links."""
    parts: dict[PartKey, list[Process]] = defaultdict(list)
    for process in sorted(processes, key=lambda one: one.place):
        name = gpus.get(process.gpu, "GPU") if process.judged.unit == "GPU" else process.judged.unit
        parts[PartKey(Unit(process.node, name), process.cell, process.judged.part)].append(process)
    expected = {key: expected_times(part[0], devices.get(key.unit.node), known) for key, part in parts.items()}
    _set_p_values(parts, expected)
    tests_of_unit = Counter((key.unit, one.question) for key, times in expected.items() for one in times)
    busy = _disturbed_units(parts, disturbed)
    by_unit: dict[Unit, list[PartVerdict]] = defaultdict(list)
    for key, part in parts.items():
        judgements = [
            _Judgement(_of_one(part, one, tests_of_unit=tests_of_unit[key.unit, one.question]), one)
            for one in expected[key]
        ]
        by_unit[key.unit].append(_verdict(part, judgements, is_disturbed=key.unit in busy))
    return by_unit


def _set_p_values(parts: Mapping[PartKey, Sequence[Process]], expected: Mapping[PartKey, Sequence[Expected]]) -> None:
    """Set the p-value of each expected time, and for how many tests it is adjusted: those of its question, about all
    parts of all units."""
    families: dict[str, list[Expected]] = defaultdict(list)
    for key, times in expected.items():
        for one in times:
            distance = _distance(parts[key], one)
            one.p = float(stdtr(one.freedom, -distance / one.error))  # P(T >= distance / error)
            families[one.question].append(one)
    for family in families.values():
        adjusted = holm(np.array([one.p for one in family]))
        for one, p in zip(family, adjusted, strict=True):
            one.p, one.tests = float(p), len(family)


def _disturbed_units(
    parts: Mapping[PartKey, Sequence[Process]], disturbed: Iterable[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Return the units that are known to be disturbed, those with samples that show another process on the GPU, and
    for each GPU among them its node's links and host."""
    shared = [key.unit for key, part in parts.items() if any(Flag.SHARED_GPU in one.flags for one in part)]
    busy: set[tuple[str, str]] = {*disturbed, *shared}
    return busy | {(node, other) for node, name in busy if name.startswith("GPU") for other in ("links", "host")}


def _distance(part: Sequence[Process], expected: Expected) -> float:
    """Return the logarithm of the measured over the expected time; above 0 is slower."""
    return math.log(_seconds(part) / expected.seconds)


def _seconds(part: Sequence[Process]) -> float:
    return geometric_mean([one.seconds for one in part])


def _of_one(part: Sequence[Process], expected: Expected, *, tests_of_unit: int) -> Verdict:
    """Return the verdict by one expectation, by the rules of the module's docstring. tests_of_unit: how many tests of
    the same question are about this unit."""
    distance = _distance(part, expected)
    if expected.p < SIGNIFICANCE and distance >= math.log1p(LEAST_SLOWDOWN):
        return "slow"
    most = MOST_HIDDEN.get(part[0].judged.kind, USUAL_MOST_HIDDEN) if expected.machines else PUBLIC_MOST_HIDDEN
    is_near = distance < max(math.log1p(NEAR_SLOWDOWN), 2 * expected.error)
    upper_end = distance + expected.reach(1 - SIGNIFICANCE)
    is_surely_less = upper_end < math.log1p(most)
    # With the tests of this unit alone: that others are measured beside it must not keep it from passing.
    would_be_detected = _would_show(expected, tests_of_unit) <= most
    return "pass" if is_near and is_surely_less and would_be_detected else "cannot tell"


def _would_show(expected: Expected, tests: int) -> float:
    """Return the smallest slowdown that is detected among so many tests, by the first step of Holm's correction."""
    return max(LEAST_SLOWDOWN, math.expm1(expected.reach(1 - SIGNIFICANCE / tests)))


def _counting(judgements: Sequence[_Judgement]) -> _Judgement | None:
    """Return the judgement that counts: the first `slow`, even if it does not decide, as slower than before or than its
    peers is slow; else the first that decides."""
    slow = [one for one in judgements if one.verdict == "slow"]
    deciding = [one for one in judgements if one.by.decides]
    return next(iter([*slow, *deciding]), None)


def _verdict(part: Sequence[Process], judgements: Sequence[_Judgement], *, is_disturbed: bool) -> PartVerdict:
    """Return the verdict by the judgement that counts. If none does, the part is not judged, as the others may be as
    slow, and the first is shown."""
    first, seconds = part[0], _seconds(part)
    verdict: Verdict = "not judged"
    counting = _counting(judgements)
    if counting:
        is_disturbed = is_disturbed or any(one.slowed_by for one in part)
        verdict, reason = _with_reason(counting, seconds, is_disturbed=is_disturbed)
    elif first.judged.kind == "cpu":
        reason = "no undisturbed history of this CPU yet"
    else:
        reason = "no shipped set has this part of such a machine"
    shown = counting or next(iter(judgements), None)
    return PartVerdict(
        part=first.judged.part,
        trial_id=first.cell.trial_id,
        value=f"{first.cell.phase}.{first.cell.metric}",
        processes=len(part),
        seconds=seconds,
        verdict=verdict,
        reason=reason,
        flags=tuple(dict.fromkeys(flag for one in part for flag in sorted(one.flags))),
        settings=first.settings,
        **(_comparison(seconds, shown.by) if shown else {}),
    )


def _with_reason(counting: _Judgement, seconds: float, *, is_disturbed: bool) -> tuple[Verdict, str]:
    """Return the verdict of the judgement that counts, and the reason if it is `cannot tell`. A part that was disturbed
    is not called slow."""
    if counting.verdict == "slow" and is_disturbed:
        return "cannot tell", DISTURBED
    if counting.verdict == "cannot tell":
        is_slower = seconds / counting.by.seconds > 1 + NEAR_SLOWDOWN
        return "cannot tell", "slower than most, but not surely" if is_slower else "what is expected is too uncertain"
    return counting.verdict, ""


def _comparison(seconds: float, expected: Expected) -> dict[str, Any]:
    """Return the fields of a verdict that compare what was measured with what is expected."""
    ratio, width = seconds / expected.seconds, math.exp(expected.reach(0.975))
    return {
        **{name: getattr(expected, name) for name in ("against", "machines", "p")},
        "expected_seconds": expected.seconds,
        "expected_between": (expected.seconds / width, expected.seconds * width),
        "ratio": ratio,
        "ratio_between": (ratio / width, ratio * width),
        "would_show": _would_show(expected, expected.tests),
    }
