"""Shows a store's results beside published numbers, or beside those of another store."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_lowercase
from textwrap import shorten, wrap
from typing import NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.claim import MOST_UNSURE, Claim, claim_of, words
from lmsweep.analysis.comparison.compare import TONES, WIDTH
from lmsweep.analysis.data.columns import in_order
from lmsweep.analysis.reference import PUBLISHED
from lmsweep.analysis.tables.listing import HIGH, LOW, Listing
from lmsweep.analysis.tables.number_format import two_digits
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys
from lmsweep.orchestrator.features.beside.pairs import LONG, Pairs, paired
from lmsweep.trials.results.flag_meanings import INFERENCE

MOST_LINES, MOST_TABLES, MOST_NAMED = 38, 30, 6
"""Maximum number of lines of an answer below its first, of those for tables, and of those for deviations."""
_FRAME_LINES = 5
"""Of an answer: the blank line, the heading and the rule above a table, the blank line below it, and MORE."""
DEVIATES = 1.5
"""Factor from the middle of a table beyond which a part of it is out of the pattern."""
NAME, HARDWARE = 21, 12
"""Characters of the name of a table, and of hardware."""
MORE = "All combinations: -v. Every number: --format csv. A flag: lmsweep doctor FLAG."


class Line(NamedTuple):
    """A table of the other side, on one kind of hardware, about times or about memory."""

    source: str
    hardware: str
    pairs: pd.DataFrame
    """Those that nothing questions; all if each is questioned."""
    claim: Claim

    @property
    def caveat(self) -> str:
        """The first reason for which the line is in no mean with others; empty without one."""
        return next((caveats[0] for caveats in self.pairs["caveats"] if caveats), "")


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    title: str
    """Both sides, the claim, and how many numbers have no counterpart."""
    frame: pd.DataFrame
    """The pairs, as in `lmsweep.orchestrator.features.beside.pairs.Pairs`."""
    lines: list[Line]
    """One for each table of the other side; only `brief` of published numbers shows them."""
    claim: Claim | None
    """Of the steps on the hardware with the most that nothing questions; beside a store of all times."""
    is_published: bool

    @property
    def summary(self) -> str:
        """The claim about published numbers, as a sentence; empty without one."""
        return words(self.claim) if self.claim and self.is_published else ""

    def long(self) -> Listing:
        """Return a line for each pair with all of its numbers, for CSV and JSON."""
        flags = {"mine": ("mine_flags",), "theirs": ("theirs_flags", "caveats")}
        frame = self.frame.reindex(columns=LONG)
        return Listing(title=self.title, frame=frame, keys=["source"], units={}, footnotes=flags)

    def brief(self) -> list[Listing]:
        """Return a line for each published table; beside a store, a line for each pair."""
        if not self.is_published:
            return self.cells()
        caveats = [*dict.fromkeys(line.caveat for line in self.lines if line.caveat)]
        timed = [_row(line, caveats) for line in self.lines if line.claim.clock]
        memory = [_row(line, caveats) for line in self.lines if not line.claim.clock]
        columns = ["published", "on", "n", "ratio", "range", "mean", "verdict"]
        heading = [("memory:", *([""] * (len(columns) - 1)))] if memory else []
        rows = timed + heading + memory
        frame = pd.DataFrame(rows[:MOST_TABLES], columns=columns)
        notes = [f"{len(rows) - MOST_TABLES} more tables: -v."] if len(rows) > MOST_TABLES else []
        legend = ", ".join(f"{letter}: {caveat}" for letter, caveat in zip(ascii_lowercase, caveats, strict=False))
        notes += wrap(f"In no mean with others: {legend}.", WIDTH) if legend else []
        left = MOST_LINES - _FRAME_LINES - self.title.count("\n") - len(frame) - len(notes)
        notes = [*notes, *[*_deviations(self.lines)][: max(min(left, MOST_NAMED), 1)], MORE]
        return [Listing(title=self.title, frame=frame, keys=["published"], units={}, notes=notes, tones=TONES)]

    def cells(self) -> list[Listing]:
        """Return a line for each of our results and a column for each table of the other side, by workload, kind of
        hardware and quantity; beside a store, a line for each pair."""
        if not self.is_published:
            parts = self.frame.groupby(self.frame["quantity"].eq("time"), sort=False)
            return [_of_pairs(rows, self.title) for _, rows in parts]
        first = f"{self.title}\nours, and theirs by table"
        divided = self.frame.groupby(["hardware", "workload", "quantity"], sort=False)
        return [
            _wide(rows, f"{first if place == 0 else 'ours, and theirs'} on {hardware}: {workload}, {quantity}")
            for place, ((hardware, workload, quantity), rows) in enumerate(divided)
        ]


def beside(attempts: pd.DataFrame, name: str, rows: pd.DataFrame | None = None) -> SideBySide:
    """Return these results beside those of `published`, of a reference store, or of any other.

    attempts: rows of `lmsweep.load(..., pooled=False)`. rows: those of the pooled rows that count; None: all. Raises
    RequestError if there is no such store, and NoCounterpartError if no result has a counterpart.
    """
    both = paired(attempts, name, rows)
    is_published, frame = name == PUBLISHED, both.frame
    mine = ", ".join(frame["device_name"].unique())
    claim = _claim(both, mine, is_published=is_published)
    said = words(claim, "sentence" if is_published else "table") if claim else ""
    said = said if is_published or not said else f"theirs against mine: {said}"
    theirs = f" ({frame['hardware'].iloc[0]})" if frame["hardware"].nunique() == 1 else ""
    unpaired = f"Alone: {both.unpaired[0]} of mine, {both.unpaired[1]} of {name}."
    heading = wrap(said, WIDTH) if is_published else [f"mine ({mine}) beside {name}{theirs}", said]
    lines = []
    for (machine, source, _), pairs in frame.groupby(["device_name_there", "source", frame["quantity"] == "time"]):
        sound = pairs[pairs["caveats"].map(len) == 0]
        counted = sound if len(sound) else pairs
        timed = pairs["quantity"].iloc[0] == "time"
        sides = ("mine", str(source)) if is_published else (str(source), "mine")  # as in `_claim`
        line = claim_of(both.cells.loc[counted.index], *sides, timed=timed)
        lines.append(Line(str(source), str(machine), counted, line))
    counts = f"{len(frame)} pair{'s'[: len(frame) > 1]}, ratio: theirs / mine. {unpaired}"
    return SideBySide(
        title="\n".join([*filter(None, heading), counts]),
        frame=frame, lines=lines, claim=claim, is_published=is_published,
    )  # fmt: skip


def _claim(both: Pairs, mine: str, *, is_published: bool) -> Claim | None:
    """The claim of all sound times: what mine is against what was published, or what the other store is against mine.

    The subject is the side that is not the baseline of the cells: `pairs` says which.
    """
    times = both.frame[(both.frame["quantity"] == "time") & (both.frame["caveats"].map(len) == 0)]
    if times.empty:
        return None
    if not is_published:
        return claim_of(both.cells.loc[times.index], "theirs", "mine", timed=True)
    steps = times[times["workload"] == "timing"]  # else attention or the loss alone
    times = steps if len(steps) else times
    hardware = times["hardware"].value_counts().index[0]
    cells = both.cells.loc[times.index[times["hardware"] == hardware]]
    return claim_of(cells, mine, f"published on {hardware}", timed=True)


def _row(line: Line, caveats: list[str]) -> tuple[str, ...]:
    ratios, (low, high) = line.pairs["ratio"].dropna(), line.claim.interval
    timed = line.claim.clock is not None
    # The columns are theirs / mine. So is the gain of a claim about times; about memory it is mine / theirs.
    ends = (low, high) if timed else (1 / high, 1 / low)
    better, worse = ("faster", "slower") if timed else ("less", "more")
    verdicts = {"better": better, "worse": worse, "unknown": "ambiguous"}
    return (
        _short(line.source, NAME),
        _short(re.sub("NVIDIA |Apple |80GB ", "", line.hardware), HARDWARE),
        f"{len(line.pairs)}{ascii_lowercase[caveats.index(line.caveat)] if line.caveat else ''}",
        two_digits(ratios.median()),
        _range("-", ratios.min(), ratios.max()),
        _range("-", *ends) if high <= MOST_UNSURE * low else "",
        verdicts.get(line.claim.verdict, line.claim.verdict),
    )


def _range(joint: str, low: float, high: float) -> str:
    return joint.join(dict.fromkeys(map(two_digits, (low, high))))


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-((most - 1) // 2) :]}"


def _deviations(lines: list[Line]) -> Iterator[str]:
    """Say which parts of the tables are out of their pattern, with their numbers, the farthest first."""
    deviations: list[tuple[float, str]] = []
    for line in lines:
        logs = np.log(line.pairs["ratio"].where(line.pairs["ratio"] > 0)).dropna()
        apart = (logs - logs.median()).abs() > np.log(DEVIATES)
        if apart.mean() > 1 / 2:
            continue  # most parts are far from the middle: there is no pattern
        rest = _range(" to ", *np.exp(logs[~apart].agg(["min", "max"])))
        for (part, place), group in line.pairs.loc[apart.index[apart]].groupby(["part", "context_length"]):
            flags = [word for one in group["theirs_flags"] + group["mine_flags"] for word in one if word != INFERENCE]
            said = f"{_range(' to ', group['ratio'].min(), group['ratio'].max())} times, the others {rest}"
            distance = float((logs[group.index] - logs.median()).abs().max())
            where = f"{_short(line.source, NAME)} {part} at {place}"
            deviations.append((distance, "; ".join([f"{where}: {said}", *flags[:1]])))
    yield from (shorten(said, WIDTH, placeholder=" …") for _, said in sorted(deviations, reverse=True))


def _keys(frame: pd.DataFrame) -> list[str]:
    size = "model" if frame["model"].notna().any() else "d_model"
    keys = [*varying_keys(frame, [size, "context_length"], []), "part", "quantity", "clock"]
    keys = [key for key in dict.fromkeys(keys) if key != "mode" and frame[key].nunique(dropna=False) > 1]
    return keys or [size]


def _of_pairs(rows: pd.DataFrame, title: str) -> Listing:
    keys, unit = _keys(rows), rows["unit"].iloc[0]
    ratios = ["ratio", *(name for name in ["wall_ratio"] if name in rows and rows[name].notna().any())]
    numbers = [f"{name}{end}" for name in ("mine", "theirs", *ratios) for end in ("", LOW, HIGH)]
    # Another store's results have no caveats. What differs is a footnote here; CSV and JSON have a column for it.
    flags = {"mine": ("mine_flags",), "theirs": ("theirs_flags", "differs")}
    if len(ratios) > 1:
        flags["wall_ratio"] = ("wall_flags",)
    shown = in_order(rows, keys)[[*keys, *numbers, "verdict", *(name for names in flags.values() for name in names)]]
    return Listing(
        title=title, frame=shown, keys=keys, together=("mine", "theirs"), tones=TONES, footnotes=flags,
        units=dict.fromkeys(("mine", "theirs"), unit) | dict.fromkeys(ratios, "1"),
        conditions=common_conditions(rows, keys),
    )  # fmt: skip


def _wide(rows: pd.DataFrame, title: str) -> Listing:
    keys, unit = _keys(rows), rows["unit"].iloc[0]
    shown = in_order(rows.drop_duplicates(keys), keys)[[*keys, "mine", "mine_low", "mine_high", "mine_flags"]]
    tables = [str(one) for one in rows["source"].unique()]
    for name in tables:
        of_table = rows[rows["source"] == name].drop_duplicates(keys)
        shown = shown.merge(of_table[[*keys, "theirs"]].rename(columns={"theirs": name}), on=keys, how="left")
    return Listing(
        title=title, frame=shown, keys=keys, units=dict.fromkeys(("mine", *tables), unit), together=("mine", *tables),
        footnotes={"mine": ("mine_flags",)}, conditions=common_conditions(rows, keys),
    )  # fmt: skip
