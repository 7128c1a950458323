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

from lmsweep.analysis.comparison.cell_verdicts import CLAIMED, CLOCKS, HOST_LIMITED, deciding
from lmsweep.trials.results.metrics import is_device_time
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.statistics.mean_ratio import mean_ratio, ratio_of
from lmsweep.trials.statistics.variation import BETWEEN_MACHINES

Verdict = Literal["better", "worse", "same", "mixed", "unknown"]
Clock = Literal["device", "wall"]

BETTER, WORSE, UNDECIDED = ("faster", "less"), ("slower", "more"), ("ambiguous", HOST_LIMITED)

MOST_UNSURE = 4.0
"""The mean is printed only if the ends of its interval differ by at most this factor: each end by two from the mean."""
UNSURE = "not known to within a factor of two"

LEAST_IN_PER_CENT, MOST_IN_PER_CENT = 0.5025, 1.995
"""Gains of times between these are in per cent: 49.75 % slower and 99.5 % faster, which round to 50 and 100."""

Form = Literal["sentence", "gain", "badge", "clocks", "table"]


class Gain(NamedTuple):
    """How many times as fast, or as much, and the 95 % interval; the ends are NaN if unknown."""

    mean: float
    low: float = np.nan
    high: float = np.nan

    def words(self, *, timed: bool, multiple: bool = False) -> tuple[str, str]:
        """Return `10 % faster` and `[8, 12]`, or ""; as a multiple, and from twice on, `3.1 times as fast`."""
        known = self.high - self.low > 1e-9  # more than rounding; with NaN it is False
        if multiple or self.needs_multiple(timed=timed):
            amount, ends = self._as_multiple(timed=timed)
        else:
            amount, ends = self._in_per_cent(timed=timed, known=known)
        return amount, ends if known else ""

    def needs_multiple(self, *, timed: bool) -> bool:
        """Whether a multiple says more than per cent, as `2 times as long` does. There is none for small amounts."""
        return not (LEAST_IN_PER_CENT if timed else 0) < self.mean < MOST_IN_PER_CENT

    def _as_multiple(self, *, timed: bool) -> tuple[str, str]:
        factor, word = self, "times as fast" if timed else "times as much"
        if timed and self.mean < 1:
            factor, word = Gain(1 / self.mean, 1 / self.high, 1 / self.low), "times as long"
        return f"{factor.mean:.3g} {word}", f"[{factor.low:.3g}, {factor.high:.3g}]"

    def _in_per_cent(self, *, timed: bool, known: bool) -> tuple[str, str]:
        above, below = ("faster", "slower") if timed else ("more", "less")
        sign, word = (1, above) if self.mean >= 1 else (-1, below)
        low, high = sorted(sign * 100 * (end - 1) for end in (self.low, self.high))
        places = decimals(high - low) if known else int(abs(self.mean - 1) < 0.1)
        texts = [f"{round(end, places) + 0.0:.{places}f}" for end in (low, high)]  # no -0
        return f"{100 * abs(self.mean - 1):.{places}f} % {word}", f"[{', '.join(texts)}]"


def decimals(width: float) -> int:
    """Return the digits after the point that an interval of this width justifies, at most two: of 4 none."""
    return int(np.clip(-np.floor(np.log10(width / 2)), 0, 2)) if width > 0 else 2


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The cells of a claim, and where else it holds."""

    verdicts: Mapping[str, int]
    same: float
    """Sides whose difference is surely smaller than this fraction are the same."""
    itself: int
    """Cells that have the same attempts on both sides, and so no difference to judge."""
    limited: int
    """Cells that are HOST_LIMITED: a difference by one clock does not count there, because of the host."""
    busy: int
    one_host: bool
    """Whether in each cell one host measured both sides."""
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
    clock: Clock | None
    """The clock that decides; None for units other than time. Cells without its times do not count."""
    beside: Gain
    """The gain by the other clock in the same cells; NaN if there is none. Between two machines its ends are NaN."""
    scope: Scope

    @property
    def amount(self) -> tuple[str, str]:
        """The gain and its interval in words: UNSURE if the ends are far apart; "" for an unknown interval."""
        low, high = self.interval
        if high > MOST_UNSURE * low:
            return UNSURE, ""
        return Gain(self.gain, low, high).words(timed=self.clock is not None)

    @property
    def ahead(self) -> float:
        """The gain of the subject at the unfavourable end of its interval: above 1, the subject is better. Where the
        host hides a gain of the GPU, that of the steps counts, since a user waits for them."""
        low, high = (self.beside.low, self.beside.high) if self.is_hidden else self.interval
        return float(np.nan_to_num(low if self.clock else 1 / high, nan=0.0))

    @property
    def of_gpu(self) -> Gain:
        return Gain(self.gain, *self.interval) if self.clock == "device" else self.beside

    @property
    def of_steps(self) -> Gain:
        return self.beside if self.clock == "device" else Gain(self.gain, *self.interval)

    @property
    def is_hidden(self) -> bool:
        """Whether a clear verdict is the GPU's alone: steps do not show it, because the host limits most cells."""
        return self.clock == "device" and self.scope.one_host and 2 * self.scope.limited > self.scope.cells

    @property
    def is_opposed(self) -> bool:
        """Whether steps surely take longer though the GPU surely needs less time, or the reverse."""
        (low, high), other = self.interval, self.beside
        return self.scope.one_host and ((low > 1 > other.high) or (high < 1 < other.low))


def claim_of(cells: pd.DataFrame, subject: str, against: str, *, timed: bool) -> Claim:
    """Return the claim that cells of a comparison make.

    cells: rows of `Comparison.cells`; timed: whether they are times.
    """
    cells = cells[[name for name in CLAIM_COLUMNS if name in cells]]
    one_host = bool(cells["places"].map(len).max() < 2)
    of_device = cells["value"].map(is_device_time).to_numpy(bool) if timed else np.zeros(len(cells), dtype=bool)
    clock: Clock | None = "wall" if timed else None
    beside = Gain(np.nan)
    if timed and one_host and "device_verdict" in cells:
        mean, clock, beside = _by_deciding_clock(cells)
    elif of_device.any():  # between machines device times decide, and the cells without them do not count
        mean, clock = _mean_of(cells, cells[of_device], one_host=one_host, timed=True), "device"
        beside = _mean_by_wall(cells[of_device])
    else:
        mean = _mean_of(cells, one_host=one_host, timed=timed)
    return Claim(
        subject=subject, against=against, gain=mean.gain.mean, interval=(mean.gain.low, mean.gain.high),
        verdict=mean.verdict, clock=clock, beside=beside,
        scope=Scope(
            verdicts=dict(mean.counts), same=float(cells["same"].max()), itself=int(cells["itself"].sum()),
            limited=int(cells["verdict"].eq(HOST_LIMITED).sum()),
            busy=sum(Flag.BUSY_HOST in flags for flags in cells["flags"]),
            one_host=one_host, cells_differ=mean.ends,
        ),
    )  # fmt: skip


CLAIM_COLUMNS = (
    *("value", *CLAIMED, "itself", "places", "same", "flags"),
    *(f"{clock}_{name}" for clock in CLOCKS for name in CLAIMED),
)
"""The columns of `Comparison.cells` that a claim is made of."""


class _Mean(NamedTuple):
    """The mean over the cells by one clock, and the verdict that all of them give."""

    gain: Gain
    ends: tuple[float, float] | None
    """The smallest and the largest gain, if cells differ."""
    counts: Counter[str]
    verdict: Verdict


def _by_deciding_clock(cells: pd.DataFrame) -> tuple[_Mean, Clock, Gain]:
    """Return the mean by the clock that decides on one host, which clock that is, and the gain by the other."""
    wall, device = _mean_by(cells, "wall"), _mean_by(cells, "device")
    # Too few cells differ by wall time, but their mean may. If device times are the same, a slow host may be why.
    if wall.verdict == "unknown" and device.verdict != "same" and (wall.gain.low > 1 or wall.gain.high < 1):
        wall = wall._replace(verdict="better" if wall.gain.low > 1 else "worse")
    decides = deciding(wall.verdict, device.verdict)
    return (wall, decides, device.gain) if decides == "wall" else (device, decides, wall.gain)


def _mean_by(cells: pd.DataFrame, clock: Clock) -> _Mean:
    """Return the mean by one clock, whose columns are `wall_ratio`, `wall_verdict` and so on."""
    return _mean_of(cells.assign(**{name: cells[f"{clock}_{name}"] for name in CLAIMED}), one_host=True, timed=True)


def _mean_by_wall(cells: pd.DataFrame) -> Gain:
    """Return the mean gain by wall time of cells that device time decides, without an interval."""
    walls = cells["wall_ratio"].to_numpy(float) if "wall_ratio" in cells else np.empty(0)
    walls = walls[(walls > 0) & ~cells["itself"].to_numpy(bool)]
    return Gain(ratio_of(-np.log(walls).mean()) if len(walls) else np.nan)


def _mean_of(cells: pd.DataFrame, averaged: pd.DataFrame | None = None, *, one_host: bool, timed: bool) -> _Mean:
    """Count the verdicts of `cells`, and average the gains of `averaged`; None: of the same cells."""
    averaged = cells if averaged is None else averaged
    averaged = averaged[averaged["ratio"].gt(0) & ~averaged["itself"].astype(bool)]
    counts, gain, ends = Counter(cells["verdict"]), Gain(np.nan), None
    if len(averaged):
        logs, halves = np.log(averaged["ratio"].to_numpy(float)), averaged["half"].to_numpy(float)
        logs = -logs if timed else logs  # half the time is twice as fast; an amount is how many times as much
        # Two machines of one kind differ, too: by this standard deviation each, so their ratio by sqrt(2) times it.
        machines = 0.0 if one_host else 2**0.5 * float(averaged["kind"].map(BETWEEN_MACHINES).fillna(0.0).mean())
        mean = mean_ratio(logs, halves, machines)
        gain = Gain(mean.mean, mean.low, mean.high)
        ends = (ratio_of(logs.min()), ratio_of(logs.max())) if mean.differ else None
    return _Mean(gain, ends, counts, _verdict(counts, (gain.low, gain.high), timed=timed))


def _verdict(counts: Counter[str], interval: tuple[float, float], *, timed: bool) -> Verdict:
    """Return the verdict of all cells. better: some are better, none is worse, and the mean surely is better; likewise
    worse. mixed: cells disagree, or most differ but the mean may not. Where it has no interval, most cells decide."""
    better, worse = (sum(counts[word] for word in words) for words in (BETTER, WORSE))
    if better and worse:
        return "mixed"
    low, high = interval
    gains, loses = (low > 1, high < 1) if timed else (high < 1, low > 1)
    most_differ = better + worse > counts.total() / 2
    if (better and gains) or (worse and loses) or (most_differ and np.isnan(low)):
        return "better" if better else "worse"
    if most_differ:
        return "mixed"
    return "same" if counts["same"] > counts.total() / 2 and not better + worse else "unknown"


def words(claim: Claim, form: Form = "sentence") -> str:
    """Return the claim in words.

    form: `sentence` is complete; `gain` follows `A is`, unless the host hides it; `badge` has no interval; `clocks`
    gives each clock; `table` adds the number of cells.
    """
    amount, _ = claim.amount
    is_clear = claim.verdict in ("better", "worse") and amount != UNSURE
    if form == "table":
        return _in_table(claim)
    if form == "badge":
        return _on_badge(claim)
    if is_clear and (claim.is_hidden or claim.is_opposed):
        return _of_both_clocks(claim, form)
    if form == "clocks":
        return _by_clock(claim)
    return _clear_words(claim, form) if is_clear else _undecided_words(claim, form)


def _clear_words(claim: Claim, form: Form) -> str:
    amount, ends = claim.amount
    joint = "as" if "times as" in amount else "than"
    gain = "; ".join(filter(None, (f"{amount} {joint} {claim.against} {ends}".rstrip(), _range(claim))))
    return gain if form == "gain" else f"{claim.subject} {'is' if claim.clock else 'needs'} {gain}"


def _undecided_words(claim: Claim, form: Form) -> str:
    undecided = _undecided(claim) or UNSURE  # one side is better, but nobody knows by how much
    if form == "gain":
        return undecided
    if claim.verdict == "same":
        return f"{claim.subject} and {claim.against}: {undecided}"
    has_counts = claim.verdict == "unknown" and (claim.scope.cells > 1 or {*claim.scope.verdicts} - {*UNDECIDED})
    counts = f" ({count_words(claim)})" if has_counts else ""
    return f"{claim.subject} against {claim.against}: {undecided}{counts}"


def _undecided(claim: Claim) -> str:
    """Return the words of a verdict that names no better side; empty if one side is better."""
    match claim.verdict:
        case "same":
            return f"no difference above {100 * claim.scope.same:.2g} %"
        case "mixed":
            return count_words(claim)
        case "unknown":
            return "cannot tell"
        case "better" | "worse":
            return ""


def _in_table(claim: Claim) -> str:
    scope = claim.scope
    said = ["" if np.isnan(claim.gain) else f": {words(claim, 'clocks')}"]
    said += [f"{scope.itself} with the same measurements on both sides"] if scope.itself else []
    said += [f"{scope.limited} {HOST_LIMITED}"] if scope.limited else []
    return f"{scope.cells} combination{'s'[: scope.cells > 1]}{'; '.join(said)}"


def _on_badge(claim: Claim) -> str:
    amount, _ = claim.amount
    if claim.verdict == "same":
        return f"{_undecided(claim)} with {claim.subject}"
    if claim.verdict not in ("better", "worse"):
        return f"cannot tell {claim.subject} from {claim.against}"
    if amount == UNSURE:
        return f"{claim.subject}: {UNSURE}"
    if claim.is_hidden:
        amount = f"{_time(claim.of_gpu)[0]} on the GPU"
    elif claim.is_opposed:
        amount = f"steps take {_longer(claim.of_steps)}"
    return f"{amount} with {claim.subject}"


def _by_clock(claim: Claim) -> str:
    (amount, ends), undecided = claim.amount, _undecided(claim)
    clock = "device time" if claim.clock == "device" else "time"
    said = [f"{clock} {amount} {ends}".rstrip(), _range(claim)]
    if not np.isnan(claim.beside.mean):
        of_host, _ = Gain(claim.beside.mean / claim.gain).words(timed=True)  # what hosts add to the devices' gain
        said.append(by_other_clock(claim) + ("" if claim.scope.one_host else f" (through the host {of_host})"))
    return (f"{undecided}; " if undecided and amount != UNSURE else "") + ", ".join(filter(None, said))


def by_other_clock(claim: Claim) -> str:
    """Return the gain by the other clock, `wall time 43 % faster`."""
    return f"{'device' if claim.clock == 'wall' else 'wall'} time {Gain(claim.beside.mean).words(timed=True)[0]}"


def _of_both_clocks(claim: Claim, form: Form) -> str:
    """Return `the GPU needs 10 % less time than with A [9, 11], but steps take 24 % longer: the host limits them`."""
    amount, ends = _time(claim.of_gpu)
    against = "" if form == "clocks" else f" than with {claim.against}"
    said = f"the GPU needs {amount}{against} {ends}".rstrip()
    if claim.is_hidden:
        said += f"; steps are not yet {'faster' if claim.of_gpu.mean > 1 else 'slower'}: the host limits them"
    else:
        said += f", but steps take {_longer(claim.of_steps)}: the host limits them"
    return f"with {claim.subject} {said}" if form == "sentence" else said


def _longer(gain: Gain) -> str:
    """Return `24 % longer`, or `10 % less time` if steps take less."""
    return _time(gain)[0].replace("more time", "longer")


def _time(gain: Gain) -> tuple[str, str]:
    """Return `10 % less time`, and its interval."""
    amount, ends = Gain(1 / gain.mean, 1 / gain.high, 1 / gain.low).words(timed=False)  # twice as fast: half the time
    return f"{amount} time", ends


def _range(claim: Claim) -> str:
    """Return `each 6 to 17 % faster` if cells differ, else nothing."""
    if not claim.scope.cells_differ:
        return ""
    ends, timed = [Gain(end) for end in claim.scope.cells_differ], claim.clock is not None
    if ends[1].mean < 1:  # less and slower: the smaller difference first
        ends.reverse()
    multiple = any(
        end.needs_multiple(timed=timed) for end in ends
    )  # `8 % faster to 2 times as fast` would be in two units
    low, high = (end.words(timed=timed, multiple=multiple)[0] for end in ends)
    number, unit = low.split(" ", 1)
    return f"each {number if high.endswith(unit) else low} to {high}"


def count_words(claim: Claim) -> str:
    """Return `faster in 14 of 24 comparisons, undecided in 10`."""
    counts: Counter[str] = Counter()
    for word, count in claim.scope.verdicts.items():
        counts["undecided" if word in UNDECIDED else word] += count
    (first, most), *rest = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    many = f"{first} in {most} of {claim.scope.cells} comparison{'s'[: claim.scope.cells > 1]}"
    return ", ".join([many, *(f"{word} in {n}" for word, n in rest)])
