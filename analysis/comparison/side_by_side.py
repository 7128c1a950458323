"""Shows a store's results beside published numbers, or beside those of another store."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.claim import Claim, claim_of, words
from lmsweep.analysis.comparison.compare import TONES
from lmsweep.analysis.comparison.pairs import LONG, paired
from lmsweep.analysis.data.columns import in_order
from lmsweep.analysis.reference import PUBLISHED
from lmsweep.analysis.tables.listing import HIGH, LOW, Listing
from lmsweep.analysis.tables.number_format import two_digits
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys

MOST_NAMED = 6
"""Maximum number of deviations that are named."""
DEVIATES = 1.5
"""Factor from the middle of a table beyond which a part of it is out of the pattern."""
LONGEST = 27
"""Characters of the name of a table."""
MORE = "All cells: -v. All numbers and every condition that differs: --format csv. A flag: lmsweep explain FLAG."
OTHER_KERNELS = (
    "kernels: these reports measured the model of the 2025 course, which computes the same function with einsums "
    "(285 operations in a forward pass of two layers, 225 here) and copies each weight gradient once more"
)


class Line(NamedTuple):
    """A table of the other side, on one kind of hardware, about times or about one kind of memory."""

    source: str
    hardware: str
    pairs: pd.DataFrame
    """Those that count; all if each is doubted."""
    doubted: int
    """Number of pairs that do not count."""
    claim: Claim

    @property
    def doubts(self) -> list[str]:
        return list(dict.fromkeys(word for words in self.pairs["doubts"] for word in words))


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    title: str
    frame: pd.DataFrame
    """The pairs, as `lmsweep.analysis.comparison.pairs.pairs` returns them."""
    lines: list[Line]
    claim: Claim | None
    """Of the hardware with the most times that nothing questions; beside a store of all times."""
    is_published: bool

    def long(self) -> Listing:
        """Return a line for each pair, with all of its numbers, for CSV and JSON."""
        frame = self.frame[LONG].rename(columns={"metric": "value"})
        numbers = [name for name in ("mine", "theirs", "ratio", "wall_ratio") if name in frame]
        return Listing(
            title=self.title, frame=frame, keys=["source"], units=dict.fromkeys(numbers, "SI"), footnotes=_FLAGS
        )

    def brief(self) -> Listing:
        """Return a line for each published table; beside a store, a line for each pair."""
        if not self.is_published:
            return self._lines_of_pairs()
        rows: list[tuple[str, ...]] = []
        for hardware in dict.fromkeys(line.hardware for line in self.lines):
            rows.append((f"on {hardware}", *[""] * 5))
            rows += [_row(line) for line in self.lines if line.hardware == hardware]
        columns = ["table", "cells", "ratio", "range", "95 % of mean", "verdict"]
        return Listing(
            title=self.title, frame=pd.DataFrame(rows, columns=columns), keys=["table"], units={},
            notes=[*self._notes(), MORE], tones=TONES,
        )  # fmt: skip

    def _notes(self) -> Iterator[str]:
        doubted: dict[str, list[str]] = {}
        for line in self.lines:
            for word in line.doubts:
                doubted.setdefault(word, []).append(_short(line.source))
        names = "; ".join(f"{word} ({', '.join(dict.fromkeys(tables))})" for word, tables in doubted.items())
        if names:
            yield f"(…): not in the mean of its hardware, for {names}."
        yield from _deviations(self.lines)

    def tables(self) -> list[Listing]:
        """Return a table for each workload, kind of hardware and quantity: a line for each of our results, and a column
        for each table of the other side."""
        if not self.is_published:
            return [self._lines_of_pairs()]
        found = self.frame.assign(stands="on " + self.frame["hardware"])
        return [
            _wide(rows, f"{self.title.splitlines()[0]}, {hardware}: {quantity}")
            for (hardware, quantity, _), rows in found.groupby(["stands", "quantity", "workload"], sort=False)
        ]

    def _lines_of_pairs(self) -> Listing:
        keys = _keys(self.frame)
        clocks = ["clock"] if self.frame["clock"].nunique() > 1 else []
        frame = in_order(self.frame, keys)
        ends = [f"{name}{end}" for name in ("mine", "theirs", "ratio") for end in ("", LOW, HIGH)]
        by_wall = ["wall_ratio"] if frame.get("wall_ratio", pd.Series(dtype=float)).notna().any() else []
        shown = frame[[*keys, *clocks, *ends, *by_wall, "verdict", "mine_flags", "theirs_flags", "differs"]]
        return Listing(
            title=self.title, frame=shown, keys=[*keys, *clocks], together=("mine", "theirs"), tones=TONES,
            units={"mine": "s", "theirs": "s", "ratio": "1"} | dict.fromkeys(by_wall, "1"),
            footnotes={"mine": ("mine_flags",), "theirs": ("theirs_flags", "differs")},
            conditions=common_conditions(frame, keys),
        )  # fmt: skip


_FLAGS = {"mine": ("mine_flags",), "theirs": ("theirs_flags", "doubts")}


def beside(attempts: pd.DataFrame, name: str, rows: pd.DataFrame | None = None) -> SideBySide:
    """Return these results beside those of `published`, of a reference store, or of any other.

    attempts: rows of `lmsweep.load(..., pooled=False)`. rows: those of the pooled rows that count; None: all. Raises
    RequestError if there is no such store, and NoCounterpartError if no result has a counterpart.
    """
    found = paired(attempts, name, rows)
    is_published, frame = name == PUBLISHED, found.frame
    kinds = ["hardware", "source", "quantity"]
    lines = [
        _line(str(source), str(hardware), frame.loc[rows.index], found.cells)
        for (hardware, source, _), rows in frame.groupby(kinds, sort=False)
    ]
    times = frame[(frame["quantity"] == "time") & (frame["doubts"].map(len) == 0)]
    mine = ", ".join(frame["device_name"].unique())
    claim = None
    if is_published and len(times):
        hardware = times["hardware"].value_counts().index[0]
        times = times[times["hardware"] == hardware]
        claim = claim_of(found.cells.loc[times.index], mine, f"published on {hardware}", timed=True)
    elif len(times):
        claim = claim_of(found.cells.loc[times.index], "theirs", "mine", timed=True)
    said = words(claim, "sentence" if is_published else "table") if claim else ""
    said = said if is_published or not said else f"theirs against mine: {said}"
    counts = f"{len(frame)} pairs. Without a counterpart: {found.unpaired[0]} of mine, {found.unpaired[1]} of {name}."
    title = "\n".join([f"mine ({mine}) beside {name}; ratio: theirs / mine", *filter(None, [said]), counts])
    order = sorted(lines, key=lambda line: (-sum(one.hardware == line.hardware for one in lines), line.hardware))
    return SideBySide(title=title, frame=frame, lines=order, claim=claim, is_published=is_published)


def _line(source: str, hardware: str, pairs: pd.DataFrame, cells: pd.DataFrame) -> Line:
    sound = pairs[pairs["doubts"].map(len) == 0]
    counted = sound if len(sound) else pairs
    claim = claim_of(cells.loc[counted.index], "mine", source, timed=pairs["quantity"].iloc[0] == "time")
    return Line(source, hardware, counted, len(pairs) - len(sound), claim)


def _row(line: Line) -> tuple[str, ...]:
    ratios, (low, high) = line.pairs["ratio"].dropna(), line.claim.interval
    ends = (low, high) if line.claim.clock else (1 / high, 1 / low)
    verdict = {"better": "faster", "worse": "slower"} if line.claim.clock else {"better": "less", "worse": "more"}
    quantity = line.pairs["quantity"].iloc[0]
    name = line.source if quantity == "time" else f"{line.source} {quantity.rpartition('.')[2]}"
    return (
        f"  {_short(name)}",
        f"({line.doubted})" if line.doubted == len(line.pairs) else str(len(line.pairs)),
        two_digits(ratios.median()),
        " to ".join(dict.fromkeys(map(two_digits, (ratios.min(), ratios.max())))),
        "" if np.isnan(low) else " to ".join(map(two_digits, ends)),
        verdict.get(line.claim.verdict, {"unknown": "ambiguous"}.get(line.claim.verdict, line.claim.verdict)),
    )


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 14]}…{name[-13:]}"


def _deviations(lines: list[Line]) -> Iterator[str]:
    """Say which parts of the tables are out of their pattern, with their numbers, the farthest first."""
    found: list[tuple[float, str]] = []
    for line in lines:
        logs = np.log(line.pairs["ratio"].where(line.pairs["ratio"] > 0)).dropna()
        apart = (logs - logs.median()).abs() > np.log(DEVIATES)
        if not apart.any() or apart.sum() > len(logs) / 2:
            continue
        rest = [two_digits(float(end)) for end in np.exp(logs[~apart].agg(["min", "max"]))]
        for (part, place), group in line.pairs.loc[apart[apart].index].groupby(["part", "context_length"]):
            ends = dict.fromkeys(two_digits(end) for end in (group["ratio"].min(), group["ratio"].max()))
            flags = dict.fromkeys(word for words in group["theirs_flags"] + group["mine_flags"] for word in words)
            reason = f" ({', '.join(flags)})" if flags else ""
            distance = float((logs[group.index] - logs.median()).abs().max())
            found.append((distance, f"{line.source} {part} at {place}: {' to '.join(ends)} times, the others "
                          f"{' to '.join(rest)}{reason}"))  # fmt: skip
    for _, said in sorted(found, reverse=True)[:MOST_NAMED]:
        yield said


def _keys(frame: pd.DataFrame) -> list[str]:
    size = "model" if frame["model"].notna().any() else "d_model"
    keys = [*varying_keys(frame, [size, "context_length"], ["part"]), "part"]
    return [key for key in keys if frame[key].nunique(dropna=False) > 1] or [size]


def _wide(rows: pd.DataFrame, title: str) -> Listing:
    keys = [key for key in _keys(rows) if key not in ("mode",)]
    unit = rows["unit"].iloc[0]
    first = in_order(rows.drop_duplicates(keys), keys)
    shown = first[[*keys, "mine", "mine_low", "mine_high", "mine_flags"]]
    for source, of_table in rows.groupby("source", sort=False):
        theirs = of_table.drop_duplicates(keys)[[*keys, "theirs"]].rename(columns={"theirs": _short(str(source))})
        shown = shown.merge(theirs, on=keys, how="left")
    tables = [name for name in shown.columns if name not in (*keys, "mine", "mine_low", "mine_high", "mine_flags")]
    return Listing(
        title=title, frame=shown, keys=keys, units=dict.fromkeys(("mine", *tables), unit), together=("mine", *tables),
        footnotes={"mine": ("mine_flags",)}, conditions=common_conditions(rows, keys),
    )  # fmt: skip
