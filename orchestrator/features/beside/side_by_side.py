"""Shows a store's results beside published numbers, or beside those of another store."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_lowercase
from textwrap import shorten, wrap
from typing import NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.claim import MOST_UNSURE, Claim, words
from lmsweep.analysis.comparison.compare import TONES, WIDTH
from lmsweep.analysis.data.columns import in_order
from lmsweep.analysis.reference import PUBLISHED
from lmsweep.analysis.tables.listing import HIGH, LOW, Listing
from lmsweep.analysis.tables.number_format import two_digits
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys
from lmsweep.orchestrator.features.beside.pairs import LONG, Pairs, paired
from lmsweep.trials.results.flag_meanings import INFERENCE
from lmsweep.trials.spec.quantities import count_of

MOST_LINES, MOST_TABLES, MOST_NAMED = 38, 30, 6
"""Maximum number of lines of an answer below its first, of those for tables, and of those for deviations."""
_FRAME_LINES = 5
"""Lines of an answer besides these: the blank line, heading and rule above the table, the blank line below, MORE."""
DEVIATES = 1.5
"""A pair deviates if its ratio differs from the median of its table by more than this factor."""
NAME, HARDWARE = 21, 12
"""Maximum number of characters of the name of a table, and of hardware."""
MORE = "All combinations: -v. Every number: --format csv. A flag: lmsweep doctor FLAG."


class Line(NamedTuple):
    """A line of the answer: a table of the other side, on one kind of hardware, about times or about memory."""

    source: str
    hardware: str
    pairs: pd.DataFrame
    """The table's pairs without a caveat; all if each has one."""
    claim: Claim

    @property
    def caveat(self) -> str:
        """The first caveat, which excludes the table from means over tables; empty without one."""
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
    """About the times without caveats: of published numbers, those of steps on the most frequent hardware."""
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
        """Return a line for each published table, and the pairs that deviate; beside a store, a line for each pair."""
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
            is_time = self.frame["quantity"] == "time"
            return [_of_pairs(rows, self.title) for _, rows in self.frame.groupby(is_time, sort=False)]
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
    pairs = paired(attempts, name, rows)
    is_published, frame = name == PUBLISHED, pairs.frame
    mine = ", ".join(frame["device_name"].unique())
    claim = _claim(pairs, mine, is_published=is_published)
    said = words(claim, "sentence" if is_published else "table") if claim else ""
    if is_published:
        heading = wrap(said, WIDTH)
    else:
        theirs = f" ({frame['hardware'].iloc[0]})" if frame["hardware"].nunique() == 1 else ""
        heading = [f"mine ({mine}) beside {name}{theirs}", *([f"theirs against mine: {said}"] if said else [])]
    unpaired = f"Alone: {pairs.unpaired[0]} of mine, {pairs.unpaired[1]} of {name}."
    counts = f"{count_of(len(frame), 'pair')}, ratio: theirs / mine. {unpaired}"
    return SideBySide(
        title="\n".join([*heading, counts]),
        frame=frame, lines=_lines(pairs), claim=claim, is_published=is_published,
    )  # fmt: skip


def _lines(pairs: Pairs) -> list[Line]:
    lines, frame = [], pairs.frame
    for (machine, source, timed), rows in frame.groupby(["device_name_there", "source", frame["quantity"] == "time"]):
        sound = rows[rows["caveats"].map(len) == 0]
        counted = sound if len(sound) else rows
        claim = pairs.claim(counted.index, "mine", str(source), timed=bool(timed))
        lines.append(Line(str(source), str(machine), counted, claim))
    return lines


def _claim(pairs: Pairs, mine: str, *, is_published: bool) -> Claim | None:
    """The claim about all times without caveats: mine against what was published, or the other store against mine."""
    times = pairs.frame[(pairs.frame["quantity"] == "time") & (pairs.frame["caveats"].map(len) == 0)]
    if times.empty:
        return None
    if not is_published:
        return pairs.claim(times.index, "mine", "theirs", timed=True)
    steps = times[times["workload"] == "timing"]  # if there are none: attention or the loss
    times = steps if len(steps) else times
    hardware = times["hardware"].value_counts().index[0]
    return pairs.claim(times.index[times["hardware"] == hardware], mine, f"published on {hardware}", timed=True)


def _row(line: Line, caveats: list[str]) -> tuple[str, ...]:
    """Return the row of a table in `brief`. caveats: of all lines; a letter refers to the one of this line."""
    ratios, (low, high) = line.pairs["ratio"].dropna(), line.claim.interval
    timed = line.claim.clock is not None
    # The columns are theirs / mine. So is the gain of a claim about times; about memory it is mine / theirs.
    ends = (low, high) if timed else (1 / high, 1 / low)  # the inverse of the upper end is the lower end
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
    """Yield a sentence for each part and context of a table that deviates from the rest of it, the farthest first."""
    deviations: list[tuple[float, str]] = []
    for line in lines:
        logs = np.log(line.pairs["ratio"].where(line.pairs["ratio"] > 0)).dropna()
        distances = (logs - logs.median()).abs()
        deviates = distances > np.log(DEVIATES)
        if deviates.mean() > 1 / 2:
            continue  # most pairs are far from the median: it describes no rest from which others deviate
        rest = _range(" to ", *np.exp(logs[~deviates].agg(["min", "max"])))
        for (part, context), group in line.pairs.loc[logs.index[deviates]].groupby(["part", "context_length"]):
            flags = [word for one in group["theirs_flags"] + group["mine_flags"] for word in one if word != INFERENCE]
            said = f"{_range(' to ', group['ratio'].min(), group['ratio'].max())} times, the others {rest}"
            where = f"{_short(line.source, NAME)} {part} at {context}"
            deviations.append((float(distances[group.index].max()), "; ".join([f"{where}: {said}", *flags[:1]])))
    yield from (shorten(said, WIDTH, placeholder=" …") for _, said in sorted(deviations, reverse=True))


def _keys(frame: pd.DataFrame) -> list[str]:
    """Return the columns that distinguish the pairs, for the left side of a table."""
    size = "model" if frame["model"].notna().any() else "d_model"
    keys = [*varying_keys(frame, [size, "context_length"], []), "part", "quantity", "clock"]
    keys = [key for key in dict.fromkeys(keys) if key != "mode" and frame[key].nunique(dropna=False) > 1]
    return keys or [size]


def _of_pairs(rows: pd.DataFrame, title: str) -> Listing:
    """Return a line for each pair."""
    keys, unit = _keys(rows), rows["unit"].iloc[0]
    has_wall_ratio = "wall_ratio" in rows and bool(rows["wall_ratio"].notna().any())
    ratios = ["ratio", "wall_ratio"] if has_wall_ratio else ["ratio"]
    numbers = [f"{name}{end}" for name in ("mine", "theirs", *ratios) for end in ("", LOW, HIGH)]
    # Another store's results have no caveats. What differs is a footnote here; CSV and JSON have a column for it.
    flags = {"mine": ("mine_flags",), "theirs": ("theirs_flags", "differs")}
    if has_wall_ratio:
        flags["wall_ratio"] = ("wall_flags",)
    shown = in_order(rows, keys)[[*keys, *numbers, "verdict", *(name for names in flags.values() for name in names)]]
    return Listing(
        title=title, frame=shown, keys=keys, together=("mine", "theirs"), tones=TONES, footnotes=flags,
        units=dict.fromkeys(("mine", "theirs"), unit) | dict.fromkeys(ratios, "1"),
        conditions=common_conditions(rows, keys),
    )  # fmt: skip


def _wide(rows: pd.DataFrame, title: str) -> Listing:
    """Return a line for each of our results, with a column for each table of the other side."""
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
