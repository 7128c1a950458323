"""A claim: by how much one selection is ahead of another, by which clock and in which cells; and its words.

A claim is made from the cells of a comparison, and nowhere else. Terminal, page, badge, shared folder and the last
lines of a run print `words`, so that they say one number, one interval and one direction.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.cell_verdicts import HOST_LIMITED
from lmsweep.trials.results.metrics import is_device_time
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.statistics.mean_ratio import MeanRatio, mean_ratio, ratio_of
from lmsweep.trials.statistics.variation import BETWEEN_MACHINES

Verdict = Literal["better", "worse", "same", "mixed", "unknown"]

BETTER, WORSE, UNDECIDED = ("faster", "less"), ("slower", "more"), ("ambiguous", HOST_LIMITED)

MOST_UNSURE = 4.0
"""The mean is printed only if the high end of its interval is at most this many times the low end."""
UNSURE = "not known to within a factor of two"

Form = Literal["sentence", "gain", "badge", "clocks", "table"]


class Gain(NamedTuple):
    """How many times as fast, or as much, and the 95 % interval; the ends are NaN if unknown."""

    mean: float
    low: float = np.nan
    high: float = np.nan

    def words(self, *, timed: bool) -> tuple[str, str]:
        """Return `10 % faster` and `8 to 12`; from twice on `3.1 times as fast`. The interval may be empty."""
        known = self.high - self.low > 1e-9  # NaN is not
        # Beyond these bounds the difference would round to 99 % slower, or to 100 % faster.
        if not (0.5025 if timed else 0) < self.mean < 1.995:
            flipped = Gain(1 / self.mean, 1 / self.high, 1 / self.low) if timed and self.mean < 1 else self
            word = ("times as long" if self.mean < 1 else "times as fast") if timed else "times as much"
            return f"{flipped.mean:.3g} {word}", f"{flipped.low:.3g} to {flipped.high:.3g}" if known else ""
        word = (("slower", "faster") if timed else ("less", "more"))[int(self.mean >= 1)]
        sign = 1 if self.mean >= 1 else -1
        ends = sorted(sign * 100 * (end - 1) for end in (self.low, self.high))
        places = decimals(ends[1] - ends[0]) if known else int(abs(self.mean - 1) < 0.1)
        texts = [f"{round(end, places) + 0.0:.{places}f}" for end in ends]  # no -0
        return f"{100 * abs(self.mean - 1):.{places}f} % {word}", " to ".join(texts) if known else ""


def decimals(width: float) -> int:
    """Return the digits after the point that an interval of this width justifies: at most two."""
    return int(np.clip(-np.floor(np.log10(width / 2)), 0, 2)) if width > 0 else 2


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The cells of a claim, and where else it holds."""

    verdicts: Mapping[str, int]
    """Number of cells by verdict."""
    least: float
    """Sides that surely differ by less are the same, as a fraction."""
    itself: int
    """Cells that have the same attempts on both sides, and so no difference to judge."""
    busy: int
    """Cells that were measured on a busy host."""
    one_machine: bool
    """Whether one machine measured all cells."""
    cells_differ: tuple[float, float] | None
    """The smallest and the largest gain of a cell, if cells differ by more than processes do."""

    @property
    def cells(self) -> int:
        return sum(self.verdicts.values())


@dataclass(frozen=True, kw_only=True)
class Claim:
    subject: str
    against: str
    gain: float
    """How many times as fast the subject is, or as much it needs: the geometric mean over the cells. NaN if unknown."""
    interval: tuple[float, float]
    """95 % interval of the mean, on other machines if several measured it; NaN if unknown."""
    verdict: Verdict
    clock: Literal["device", "wall"] | None
    """The clock of the times; None for other units. If any cell has device times, the others do not count."""
    wall: float
    """The gain by wall time in the cells of a gain by device time; NaN if there is none."""
    scope: Scope

    @property
    def amount(self) -> tuple[str, str]:
        """The gain and its interval in words. The gain is UNSURE if the ends are far apart; no interval is empty."""
        low, high = self.interval
        if high > MOST_UNSURE * low:
            return UNSURE, ""
        return Gain(self.gain, low, high).words(timed=self.clock is not None)

    @property
    def ahead(self) -> float:
        """The gain of the subject at the unfavourable end of its interval: above 1, the subject is better."""
        low, high = self.interval
        return float(np.nan_to_num(low if self.clock else 1 / high, nan=0.0))


def claim_of(cells: pd.DataFrame, subject: str, against: str, *, timed: bool) -> Claim:
    """Return the claim that cells of a comparison make.

    cells: rows of `Comparison.cells`; timed: whether they are times.
    """
    by_device = cells["value"].map(is_device_time).to_numpy(bool) if timed else np.zeros(len(cells), dtype=bool)
    shown = cells[by_device] if by_device.any() else cells
    shown = shown[shown["ratio"].gt(0) & ~shown["itself"].astype(bool)]
    places = frozenset[str]().union(*cells["places"])
    found, ends = MeanRatio(np.nan, np.nan, np.nan, differ=False), (np.nan, np.nan)
    if len(shown):
        logs, halves = np.log(shown["ratio"].to_numpy(float)), shown["half"].to_numpy(float)
        logs = -logs if timed else logs
        machines = 0.0 if len(places) == 1 else 2**0.5 * float(shown["kind"].map(BETWEEN_MACHINES).fillna(0.0).mean())
        found, ends = mean_ratio(logs, halves, machines), (ratio_of(logs.min()), ratio_of(logs.max()))
    interval = found.low, found.high
    walls = shown["wall_ratio"].to_numpy(float) if by_device.any() and "wall_ratio" in shown else np.empty(0)
    walls = walls[walls > 0]
    return Claim(
        subject=subject,
        against=against,
        gain=found.mean,
        interval=interval,
        verdict=_verdict(Counter(cells["verdict"]), interval),
        clock=("device" if by_device.any() else "wall") if timed else None,
        wall=ratio_of(-np.log(walls).mean()) if len(walls) else np.nan,
        scope=Scope(
            verdicts=dict(Counter(cells["verdict"])),
            least=float(cells["least"].max()),
            itself=int(cells["itself"].sum()),
            busy=sum(Flag.BUSY_HOST in flags for flags in cells["flags"]),
            one_machine=len(places) == 1,
            cells_differ=ends if found.differ else None,
        ),
    )


def _verdict(counts: Counter[str], interval: tuple[float, float]) -> Verdict:
    """Return the verdict of all cells together. It is better if some cells are better, none is worse, and the interval
    of the mean agrees."""
    better, worse = (sum(counts[word] for word in words) for words in (BETTER, WORSE))
    low, high = interval
    if better and worse:
        return "mixed"
    if (better or worse) and (low > 1 or high < 1):
        return "better" if better else "worse"
    if better + worse > counts.total() / 2:
        return ("better" if better else "worse") if np.isnan(low) else "mixed"
    return "same" if counts["same"] > counts.total() / 2 and not better + worse else "unknown"


def words(claim: Claim, form: Form = "sentence") -> str:
    """Return the claim in words.

    form: `sentence` is complete; `gain` follows `A is`; `badge` has no interval; `clocks` gives each clock; `table`
    adds the number of cells.
    """
    scope, (amount, ends) = claim.scope, claim.amount
    is_sure = claim.verdict in ("better", "worse")
    undecided = {
        "same": f"no difference above {100 * scope.least:.2g} %",
        "mixed": count_words(claim),
        "unknown": "cannot tell",
    }.get(claim.verdict, "")
    if form == "table":
        said = [f": {words(claim, 'clocks')}"] if not np.isnan(claim.gain) else [""]
        said += [f"{scope.itself} with the same attempts on both sides"] if scope.itself else []
        said += [f"{limited} {HOST_LIMITED}"] if (limited := scope.verdicts.get(HOST_LIMITED, 0)) else []
        return f"{scope.cells} cell{'s'[: scope.cells > 1]}{'; '.join(said)}"
    if form == "clocks":
        clock = "device time" if claim.clock == "device" else "time"
        said = [f"{clock} {amount}" + (f" [{ends.replace(' to ', ', ')}]" if ends else "")]
        said += [spread] if (spread := _range(claim)) else []
        if not np.isnan(claim.wall):
            wall, of_host = (Gain(one).words(timed=True)[0] for one in (claim.wall, claim.wall / claim.gain))
            said.append(f"wall time {wall} (through the host {of_host})")
        return (f"{undecided}; " if undecided and amount != UNSURE else "") + ", ".join(said)
    if form == "badge":
        if is_sure:
            return f"{claim.subject}: {UNSURE}" if amount == UNSURE else f"{amount} with {claim.subject}"
        if claim.verdict == "same":
            return f"{undecided} with {claim.subject}"
        return f"cannot tell {claim.subject} from {claim.against}"
    if form == "gain" and amount == UNSURE:
        return UNSURE
    if is_sure and amount != UNSURE:
        joint = "as" if "times as" in amount else "than"
        inside = "; ".join(filter(None, (ends, _range(claim))))
        said_of_it = f"{amount} {joint} {claim.against}" + (f" ({inside})" if inside else "")
        return said_of_it if form == "gain" else f"{claim.subject} {'is' if claim.clock else 'needs'} {said_of_it}"
    if claim.verdict == "same":
        return f"{claim.subject} and {claim.against}: {undecided}"
    counts = f" ({count_words(claim)})" if claim.verdict == "unknown" else ""
    return f"{claim.subject} against {claim.against}: {undecided or UNSURE}{counts}"


def _range(claim: Claim) -> str:
    """Return `cells 6 to 17 % faster` if cells differ, else nothing."""
    ends = claim.scope.cells_differ
    if not ends:
        return ""
    low, high = (Gain(end).words(timed=claim.clock is not None)[0] for end in ends)
    (first, *unit), rest = low.split(" "), high.split(" ", 1)
    return f"cells {first if unit == rest[1].split(' ') else low} to {high}"


def count_words(claim: Claim) -> str:
    """Return `faster in 14 of 24 cells, undecided in 10`."""
    counts: Counter[str] = Counter()
    for word, count in claim.scope.verdicts.items():
        counts["undecided" if word in UNDECIDED else word] += count
    total = counts.total()
    (first, most), *rest = counts.most_common()
    return ", ".join([f"{first} in {most} of {total} cell{'s'[: total > 1]}", *(f"{word} in {n}" for word, n in rest)])
