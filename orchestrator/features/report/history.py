"""The history of what was measured: states of the user's code, stores or days in order, and where something changed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.claim import BETTER, WORSE, Claim, words
from lmsweep.analysis.data.code_states import SHOWN_DIGITS
from lmsweep.analysis.data.process_variation import KIND, Known, known_variation
from lmsweep.orchestrator.features.report.answers.question import DEVICE, STORE, Option, Question, measures_of
from lmsweep.orchestrator.features.report.answers.verdicts import Answer, answer, cells_of_pair
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.quantities import count_of
from lmsweep.trials.statistics.significance import SIGNIFICANCE
from lmsweep.trials.statistics.variation import PRIORS, Kind

MOST_STAGES = 30
"""Number of the newest stages that are shown: each is compared twice."""

LEAST_MOVES = 5
"""Minimum number of moves of a cell whose median estimates the variation of its kind: one or two may be changes."""

MEDIAN_MOVE = 0.6745 * 2**0.5
"""The median of the absolute difference of two normal numbers, in their standard deviations."""

_PLURALS = {"state of the code": "states of the code", "store": "stores", "date": "dates"}
"""What a stage can be -> several of them."""


def histories(frame: pd.DataFrame, software: Sequence[str]) -> Iterator[Answer]:
    """Yield the answer about the stages of each device and measure, with its changes.

    frame: rows of all attempts, with the column `store`; software: keys in which stages may differ.
    """
    for device, rows in frame.groupby(DEVICE, sort=False):
        for measure in measures_of(rows):
            measured = rows[rows["workload"] == measure.workload]
            options = stages(measured)[-MOST_STAGES:]
            if len(options) < 2:
                continue
            place = f" on {device}" if frame[DEVICE].nunique() > 1 else ""
            question = Question(
                fields=(), measure=measure, options=options, across=("code", *software), variation=_variation(options),
                over=_kind_of_stage(measured),
                text=f"{measure.name[:1].upper()}{measure.name[1:]}{place}: what changed, and when?",
            )  # fmt: skip
            if found := answer(question):
                yield replace(found, changes=changes(found))


def _kind_of_stage(rows: pd.DataFrame) -> str:
    """A key of _PLURALS: a state of the user's code; without such code a store; in a single store a day."""
    if rows["code_digest"].notna().any():
        return "state of the code"
    return "store" if rows[STORE].nunique() > 1 else "date"


def stages(rows: pd.DataFrame) -> list[Option]:
    """Return the rows of each stage, the oldest first, named by the stage and its first day. Each version of PyTorch
    has its own stages."""
    kind = _kind_of_stage(rows)
    if kind == "state of the code":
        rows = rows[rows["code_digest"].notna()]
    day = rows["started_at"].dt.strftime("%Y-%m-%d")
    stage = {"state of the code": rows["code_digest"], "store": rows[STORE], "date": day}[kind]
    name = _names_of_states(rows) if kind == "state of the code" else stage
    torch = rows["torch_version"].fillna("")
    groups = rows.groupby([stage.rename("stage"), torch.rename("torch")], sort=False)
    found = []
    for (_, version), of_stage in sorted(groups, key=lambda one: one[1]["started_at"].min()):
        first = of_stage["started_at"].sort_values().index[0]
        of_version = [f"torch {version}"] if torch.nunique() > 1 else []
        words = dict.fromkeys([str(name[first]), *of_version, str(day[first])])  # a day comes once
        found.append(Option(", ".join(words), {}, of_stage))
    return found


def _names_of_states(rows: pd.DataFrame) -> "pd.Series[str]":
    """The beginning of the revision where that is the whole state, without changes; else of the digest."""
    may_differ = rows["code_dirty"].fillna(True).astype(bool)
    return rows["code_revision"].mask(may_differ).fillna(rows["code_digest"]).str[:SHOWN_DIGITS]


def _variation(options: Sequence[Option]) -> Known:
    """Return the variation between processes, by device and kind of value (KIND): from repetitions within a stage and,
    if a kind has many stages, from the moves of a cell from each stage to the next. Repetitions are not pooled over
    stages, because a real change would count as variation; as one of many moves it hardly shifts their median."""
    known = dict(known_variation(*(one.rows for one in options)))
    cell = ["measurement_id", "phase", "metric"]
    # One row of each cell and stage, the oldest stage first: `diff` is the move from a stage to the next.
    rows = pd.concat([one.rows[one.rows["median"].gt(0)].drop_duplicates(cell) for one in options], ignore_index=True)
    rows = rows.assign(log=np.log(rows["median"].to_numpy(float)))
    moves = rows.assign(move=rows.groupby([*cell, KIND])["log"].diff().abs()).dropna(subset="move")
    for names, of_kind in moves.groupby([DEVICE, KIND]):
        key = cast(tuple[str, Kind], names)
        # Moves of one cell only: those of other cells are not independent, if a stage moves all of them (assumed).
        freedom = float(of_kind.groupby(cell).size().max())
        if freedom < LEAST_MOVES:
            continue
        variance = (of_kind["move"].median() / MEDIAN_MOVE) ** 2
        known[key] = known.get(key, PRIORS[key[1]]).updated(freedom * variance, freedom)
    return known


def changes(found: Answer) -> dict[str, Claim]:
    """Return the stages where something changed, each with its claim against the stage of the last change: compared
    with the stage just before, a slow drift would be missed.

    Holm's method has corrected p for the number of cells. For the number of stages, p is multiplied by the number of
    comparisons less the changes found so far, in the order of time. Up to the first change that is the number of all
    comparisons: 5 % of the histories without a change show a false one.
    """
    first, *others = found.question.options
    last = first
    changed: dict[str, Claim] = {}
    for stage in others:
        try:
            cells = found.of(stage.name) if last is first else cells_of_pair(found.question, last, stage)
        except RequestError:  # no cell in common
            continue
        smallest = cells.loc[cells["verdict"].isin([*BETTER, *WORSE]), "p"].min()  # NaN, below nothing, without any
        comparisons = len(others) - len(changed)
        claim = found.claim(stage.name, cells, against=last.name)
        if claim.verdict in ("better", "worse") and smallest * comparisons < SIGNIFICANCE:
            changed[stage.name] = claim
            last = stage
    return changed


def headline_of_history(found: Answer) -> tuple[str, Sequence[str]]:
    """Return the newest change, and sentences about the others."""
    options = found.question.options
    count = f"{len(options)} {_PLURALS[found.question.over]}"  # at least two
    measure = f"{found.question.measure.name[:1].upper()}{found.question.measure.name[1:]}"
    said = [words(claim) for claim in found.changes.values()]
    if not said:
        newest = found.claim(options[-1].name).verdict
        none = "no change that counts" if newest == "same" else "cannot tell whether anything changed"
        return f"{measure}: {none} in {count}", []
    more = [f"{one}." for one in reversed(said[:-1])]
    return f"{measure}: {said[-1]}", [f"{count_of(len(said), 'change')} in {count}.", *more]
