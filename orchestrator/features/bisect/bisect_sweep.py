"""Searches the releases of a package for the one in which a cell of a sweep (a value of one trial) changed."""

import math
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pandas as pd
from packaging.version import InvalidVersion, Version

import lmsweep
from lmsweep.analysis import load
from lmsweep.analysis.comparison.cell_verdicts import HOST_LIMITED
from lmsweep.analysis.comparison.compare import Comparison, compare
from lmsweep.analysis.data.columns import label
from lmsweep.analysis.data.process_variation import Known, known_variation
from lmsweep.analysis.tables.listing import Listing
from lmsweep.orchestrator.api import make_ready
from lmsweep.orchestrator.commands.measure import run_or_exit
from lmsweep.orchestrator.commands.show_table import show_parts
from lmsweep.orchestrator.plan_request import How, What, Where
from lmsweep.orchestrator.planning.plan import Plan, Planned
from lmsweep.orchestrator.software import SoftwareError, interpreter_with, requirements_of
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.machine.interpreter import environment
from lmsweep.trials.machine.scratch import temporary_folder
from lmsweep.trials.results.environment import environment_id
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.identity import measurement_id

CHANGED = ("slower", "faster", "more", "less", "failed", "fixed")
"""Verdicts by which a cell changed."""

INDEX_SECONDS = 120.0
"""Time in which the package index must answer."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What `bisect` is asked."""

    what: What
    """The sweep, without its software; with profiles if it is to be explained."""
    where: Where
    how: How
    package: str
    releases: Sequence[str]
    """At least two, the oldest first."""
    processes: int
    """Fresh processes that measure each release."""
    values: Sequence[str]
    """What is compared, `PHASE.METRIC`; empty: what a comparison shows."""
    resume: str
    """The command that resumes the search."""

    def software(self, position: int) -> str:
        """Return the software of the trials with this release. Raises RequestError if the release is not a
        valid version."""
        try:
            return requirements_of({self.package: self.releases[position]})
        except ValueError as error:
            raise RequestError(f"--releases: {error}") from None


def known_releases(package: str, good: str, bad: str) -> list[str]:
    """Return the releases that the package index offers here, from `good` to `bad`: if `bad` is the older one,
    from new to old. Raises RequestError."""
    try:
        low, high = sorted([Version(good), Version(bad)])
        requirements_of({package: good})
    except (InvalidVersion, ValueError) as error:
        raise RequestError(f"--good {good} --bad {bad}: {error}") from None
    words = [sys.executable, "-m", "pip", "index", "versions", package, "--disable-pip-version-check"]
    unknown = f"the package index does not list the releases of {package}"
    advice = "name the releases with --releases 2.11.0,2.12.0,2.13.0"
    folder, settings = temporary_folder(), environment()  # a folder without modules that Python would import
    try:
        done = subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True, timeout=INDEX_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequestError(f"{unknown}: {error}; {advice}") from None
    listed = re.search(r"^Available versions: (.*)$", done.stdout, flags=re.MULTILINE)
    if not listed:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise RequestError(f"{unknown}: {last}; {advice}")
    offered = {_without_local(Version(text.strip())) for text in listed[1].split(",")}
    offered -= {_without_local(low), _without_local(high)}  # they are added below as the user wrote them: 2.11.0+cu126
    between = [str(one) for one in sorted(offered) if low < one < high]
    return [good, *(between if low == Version(good) else between[::-1]), bad]


def _without_local(version: Version) -> Version:
    return Version(version.public)


def bisect_sweep(question: Question) -> None:
    """Measure the two ends and then halve, until the release is found, and print what changed."""
    for position in range(len(question.releases)):
        question.software(position)  # rejects an invalid version before anything runs
    ends = _measured(question, 0, len(question.releases) - 1, are_ends=True).compare(question.values)
    show_parts([ends.listing()])
    changed = ends.frame[ends.frame["verdict"].isin(CHANGED)]
    if changed.empty:
        limited = ends.frame["verdict"].eq(HOST_LIMITED).any()
        why = " Wall times differ, but the host may explain that: measure on a quiet machine." if limited else ""
        both = f"{question.software(0)} and {question.software(len(question.releases) - 1)}"
        say(f"\n{both} do not differ beyond the noise, so there is nothing to search.{why}")
        return
    # Of several cells that changed, follow the one that changed most.
    followed = changed.iloc[int(changed["ratio"].map(_size).to_numpy().argmax())]
    cell = {name: followed[name] for name in ends.keys}
    words = ", ".join(f"{name} {label(one)}" for name, one in cell.items())
    say(f"\nsearching {len(question.releases)} releases for the change of {words}: {_change(followed)}")
    search = Bisection(len(question.releases))
    while (middle := search.next()) is not None:
        count = math.ceil(math.log2(search.high - search.low))  # each measurement halves what is left
        say(f"\nbetween {question.software(search.low)} and {question.software(search.high)}: about {count} to measure")
        row = _row(_measured(question, 0, middle).compare(question.values), cell)
        search.learn(middle, None if row is None else _has_changed(row, followed))
    _say_found(question, search, cell)


class Bisection:
    """A search through a list of releases: the first has not changed, the last has."""

    def __init__(self, count: int) -> None:
        assert count >= 2, "two ends"
        self.low = 0
        """The last position that is known not to have changed."""
        self.high = count - 1
        """The first position that is known to have changed."""
        self.skipped: set[int] = set()
        """Positions that cannot be measured."""

    def next(self) -> int | None:
        """Return the position to measure next, the one nearest the middle; None if the change is found."""
        middle = (self.low + self.high) / 2
        left = (position for position in range(self.low + 1, self.high) if position not in self.skipped)
        return min(left, key=lambda position: abs(position - middle), default=None)

    def learn(self, position: int, has_changed: bool | None) -> None:
        """Learn a measurement; None if the release cannot be measured."""
        if has_changed is None:
            self.skipped.add(position)
        elif has_changed:
            self.high = position
        else:
            self.low = position


class Measured(NamedTuple):
    """What was measured of two releases."""

    names: tuple[str, str]
    """The software of each, such as `torch==2.12.0`."""
    rows: tuple[pd.DataFrame, pd.DataFrame]
    known: Known
    """Variation between processes, estimated from the whole store."""

    def compare(self, values: Sequence[str]) -> Comparison:
        """Return the comparison, whose frame has a row per cell: its keys, `verdict`, and `ratio`, the value of the
        second release over that of the first, null if it is not known."""
        between = {"software": self.names}
        return compare(*self.rows, between=between, values=list(values) or None, variation=self.known)

    def explain(self, location: str) -> Listing:
        between = {"software": self.names}
        return lmsweep.explain_steps(self.rows, (location, location), between=between, known=self.known).listing()


def _measured(question: Question, first: int, second: int, *, are_ends: bool = False) -> Measured:
    """Measure two releases, as far as the store lacks them. are_ends: of the search. They must be installable, whereas
    the search skips any other release that is not."""
    names = question.software(first), question.software(second)
    more = (f"software={','.join(names)}", f"processes={question.processes}")
    what = replace(question.what, overrides=(*question.what.overrides, *more))
    ready = make_ready(what, question.where, question.how, began=time.monotonic())
    if are_ends:
        _install(ready.planned.plan)
    run_or_exit(ready, question.resume)
    every = load(question.where.store, pooled=False)
    frame = _rows_of(ready.planned, every)
    of_first, of_second = (frame[frame["software"] == name] for name in names)
    return Measured(names, (of_first, of_second), known_variation(every))


def _rows_of(planned: Planned, every: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of all workloads of a sweep's trials, measured in the environments in which the plan runs them.

    A planned trial has only the workloads that it still measures, so the trials of the sweep name them.
    """
    environments: dict[str | None, set[str]] = {}
    for one in planned.plan.trials:
        software = one.trial.config.software
        environments.setdefault(software, set()).add(environment_id(one.environment, software))
    measured = {
        (measurement_id(trial.config, name), environment)
        for trial in planned.sweep.trials
        for environment in environments.get(trial.config.software, ())
        for name in trial.workloads
    }
    keys = zip(every["measurement_id"], every["environment_id"], strict=True)
    return every[[key in measured for key in keys]]


def _install(plan: Plan) -> None:
    """Make the environments of the ends. Raises RequestError if one cannot be made."""
    for software in plan.software:
        try:
            interpreter_with(software, lambda words: say(words, error=True))
        except SoftwareError as error:
            raise RequestError(
                f"{software} is an end of the search: {error}; name another release by --good, --bad or --releases"
            ) from error


def _row(comparison: Comparison, cell: dict[str, object]) -> pd.Series | None:
    """Return the line of a cell; None if there is none. Keys with a single value in this comparison are
    not columns, so only the others are compared."""
    frame = comparison.frame
    for name, value in cell.items():
        if name in comparison.keys:
            frame = frame[frame[name].map(label) == label(value)]
    return None if frame.empty else frame.iloc[0]


def _has_changed(row: pd.Series, ends: pd.Series) -> bool | None:
    """Return whether a release is nearer to the last than to the first, by the logarithm of its time; None if its ratio
    is not known. If one of the ends failed, return whether the release has the verdict of the ends.

    row: the release against the first. ends: the last against the first. `ratio` is the later value over the first.
    """
    if ends["verdict"] in ("failed", "fixed"):
        return bool(row["verdict"] == ends["verdict"])
    if pd.isna(row["ratio"]):
        return None
    return math.log(row["ratio"]) / math.log(ends["ratio"]) > 0.5


def _size(ratio: float) -> float:
    """Return how large a change is; to or from a failure it is the largest."""
    return math.inf if pd.isna(ratio) else abs(math.log(ratio))


def _change(row: pd.Series) -> str:
    return str(row["verdict"]) if pd.isna(row["ratio"]) else f"{row['ratio']:.3g}x, {row['verdict']}"


def _say_found(question: Question, search: Bisection, cell: dict[str, object]) -> None:
    measured = _measured(question, search.low, search.high)
    comparison = measured.compare(question.values)
    say("")
    show_parts([comparison.listing()])
    row = _row(comparison, cell)
    before, after = question.software(search.low), question.software(search.high)
    unknown = [question.software(one) for one in sorted(search.skipped) if search.low < one < search.high]
    place = f"between {before} and {after}" if unknown else f"with {after}, after {before}"
    said = f"\nThe change came {place}: {_change(row) if row is not None else 'failed'}."
    if unknown:
        said += f" Between them, {', '.join(unknown)} could not be measured."
    if row is not None and row["verdict"] not in CHANGED:
        said += " This step alone is within the noise: the change is spread over several releases."
    say(said)
    if question.what.profile:
        say("")
        show_parts([measured.explain(question.where.store)])
