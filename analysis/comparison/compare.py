"""Compares two selections of results cell by cell: the ratio of their medians, and whether they differ."""

from collections import Counter
from dataclasses import dataclass
from textwrap import fill
from typing import NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.analysis.comparison.cell_verdicts import HOST_LIMITED, Table, judge, judge_clocks
from lmsweep.analysis.comparison.claim import Claim, claim_of, words
from lmsweep.analysis.comparison.pairing import (
    SIDES,
    STEPS,
    UNKNOWN,
    cells_of_sides,
    check_equal,
    check_one_result,
    differences,
    may_differ,
)
from lmsweep.analysis.data.code_states import SHOWN_DIGITS
from lmsweep.analysis.data.columns import NO_VALUE, check_key, distinguishing_columns, label, natural_ranks, varying
from lmsweep.analysis.data.process_variation import Known, known_variation
from lmsweep.analysis.data.selection import select
from lmsweep.analysis.tables.bar_chart import strips
from lmsweep.analysis.tables.listing import HIGH, LOW, Listing, Tone
from lmsweep.analysis.tables.number_format import percent
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys
from lmsweep.analysis.tables.render import render
from lmsweep.analysis.tables.text_table import MORE_ON_FLAGS, flag_lines
from lmsweep.trials.results.metrics import device_time_of
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.statistics.significance import Thresholds, holm
from lmsweep.trials.statistics.variation import PRIORS, Floats, Kind

DIFFERENT_BY_DEVICE, DIFFERENT_ON_GPU, DIFFERENT_ELSEWHERE = 0.01, 0.02, 0.05
"""Smallest differences that count by default, as fractions: of device time, of other values on a GPU, elsewhere."""
SAME_ON_GPU, SAME_ELSEWHERE = 0.02, 0.05
"""Two sides are called the same if their difference is surely smaller, as a fraction."""

VERDICTS = ("slower", "faster", "more", "less", "same", HOST_LIMITED, "ambiguous", "failed", "fixed", "no result")
"""slower, faster (times) and more, less (other units): the contrast differs by at least the smallest difference that
counts. same: the difference is smaller, with 95 % confidence. ambiguous: the samples do not decide. failed, fixed: only
the baseline, only the contrast has a result. host-limited: a difference that a slow or busy host may have caused, or
hidden (`judge_clocks`)."""
WITHOUT_ANSWER = (HOST_LIMITED, "ambiguous", "no result")

TWO_CLOCKS = "Device time is the GPU's alone; wall time, for which you wait and pay, has the host's in it."
WIDTH = 79  # characters of a line of the summary
MOST_FLAGS = 5  # that have a line under `Comparison.brief`; under `Comparison.listing` each flag has one
MORE = f"{MORE_ON_FLAGS} Medians, conditions and p-values: -v."

SHOWN = (
    *(f"{side}{end}" for side in SIDES for end in ("", LOW, HIGH)),
    *("processes", "ratio", "p", f"ratio{LOW}", f"ratio{HIGH}", "flags", "verdict"),
)
"""Columns of `judge` that `Comparison.frame` has; `processes` only if a side of any cell has several."""
ERRORS = ("error_baseline", "error_contrast")

TONES: dict[str, Tone] = {
    "slower": "bad", "faster": "good", "more": "bad", "less": "good", "same": "neutral", HOST_LIMITED: "unclear",
    "ambiguous": "unclear", "failed": "bad", "fixed": "good", "no result": "neutral",
}  # fmt: skip


class ResultKey(NamedTuple):
    measurement_id: str
    environment_id: str
    workload: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    frame: pd.DataFrame
    """One row per cell: its keys; `value`; the medians `baseline` and `contrast` in `unit` and `ratio`, contrast /
    baseline, each with `_low` and `_high`; `verdict`; `flags` of both sides. Where they apply: `p`, adjusted for the
    number of cells; `processes`, the number on each side and the spread of their medians; `wall_ratio` of cells judged
    by device time, `device_ratio` of those judged by wall time on one host; `error_baseline` and `error_contrast`, the
    larger error of output and gradients against float64."""
    keys: list[str]
    """Columns that distinguish the cells."""
    unit: str
    conditions: dict[str, str]
    """Keys that have the same value in all cells, and the value."""
    title: str
    claim: Claim | None
    """The claim of all cells, if they are times and no values were selected."""
    cells: pd.DataFrame
    """The frame, with what claims rest on: `half`, half the interval's width on a logarithmic scale; the `kind` of
    variation; `itself`, whether both sides are the same attempts; `places`, the machines that measured the cell;
    `same`, the fraction below which sides are the same; the columns of CLAIMED by each clock, as `wall_ratio`."""
    unpaired: tuple[int, int]
    """Number of cells that only the baseline has, and that only the contrast has."""
    least: tuple[float, ...]
    """Smallest differences that count, as fractions."""
    same: tuple[float, ...]
    """Sides whose difference is surely smaller are the same, as fractions."""
    differences: str
    """What differs between the sides beside what was compared, with the values of both; empty if nothing does."""
    warnings: tuple[str, ...]
    """Sentences about what the verdicts rest on, and what limits them, such as too few processes."""
    results: tuple[list[ResultKey | None], list[ResultKey | None]]
    """The result of each cell in the baseline and in the contrast; None if a side has none."""

    @property
    def summary(self) -> str:
        """The claim in one sentence; empty without one."""
        return words(self.claim, "table") if self.claim else ""

    def listing(self) -> Listing:
        units = dict.fromkeys(("baseline", "contrast"), self.unit)
        units |= dict.fromkeys(("ratio", "wall_ratio", "device_ratio", "p", *ERRORS), "1")
        counts = Counter(self.frame["verdict"])
        verdicts = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
        ends = self.least if len(self.least) < 3 else (self.least[0], self.least[-1])
        least = (" or " if len(self.least) < 3 else " to ").join(map(percent, ends))
        cells = f"{len(self.frame)} combination{'s' if len(self.frame) > 1 else ''}"
        same = " or ".join(map(percent, self.same))
        notes = [f"{cells}: {verdicts}. Differences count from {least}; `same` is within {same}."]
        if self.differences:
            notes.append(f"The sides differ in {self.differences}.")
        if self.claim and self.claim.clock == "device" and not self.claim.scope.one_host:
            notes.append(TWO_CLOCKS)
        if capped := int((self.cells["kind"].isin(CAPPED) & self.cells["verdict"].eq("ambiguous")).sum()):
            notes.append(f"{capped} ambiguous at the GPU's power limit: --set processes=3 decides.")
        if any(self.unpaired):
            notes.append("Unpaired combinations: {} in the baseline, {} in the contrast.".format(*self.unpaired))
        if without := int((self.frame[f"ratio{LOW}"].isna() & self.frame["ratio"].notna()).sum()):
            ratios = f"{without} ratio{'s'[: without > 1]}"
            notes.append(f"No interval of {ratios}: samples or processes differ too much, or medians are not positive.")
        return Listing(
            title=f"{self.title}\n{self.summary}" if self.summary else self.title,
            frame=self.frame,
            keys=self.keys,
            units={name: units[name] for name in units if name in self.frame},
            together=("baseline", "contrast"),
            footnotes={"verdict": ("flags",)},  # of both sides
            conditions=self.conditions,
            notes=[*notes, *self.warnings],
            p_values=("p",),
            tones=TONES,
        )

    def _repr_html_(self) -> str:
        return render(self.brief(), "html")

    def brief(self) -> Listing:
        """Return one line a cell: its interval as a strip, the verdict, and the change in per cent."""
        is_time, frame = self.unit == "s", self.frame
        low, middle, high = (frame[f"ratio{end}"].to_numpy(float) for end in (LOW, "", HIGH))
        if is_time:  # a speed-up is 1 / ratio, so its low end comes from the high end of the ratio
            low, middle, high = 1 / high, 1 / middle, 1 / low
        in_per_cent = [100 * (factor - 1) for factor in (middle, low, high)]
        word, sides = "speed-up" if is_time else "change", self.title.rpartition(": ")[0]
        values = frame["value"].unique()
        keys, of_value = (self.keys[:-1], f" of {values[0]}") if len(values) == 1 < len(self.keys) else (self.keys, "")
        lines = frame[keys].assign(
            interval=strips(np.log(low), np.log(middle), np.log(high)),
            verdict=frame["verdict"],
            change=[_change(*ends) for ends in zip(*in_per_cent, strict=True)],
        )
        flags = Counter(flag for of_cell in frame["flags"] for flag in {*of_cell})
        # The title says what the host adds, and the warnings are left out.
        notes = [note for note in self.listing().notes if note not in (TWO_CLOCKS, *self.warnings)]
        return Listing(
            title="\n".join(filter(None, [f"{sides}: {word}{of_value}, 95 % interval", fill(self.summary, WIDTH)])),
            frame=lines.rename(columns={"change": word}),
            keys=keys,
            units={},
            notes=[*flag_lines(flags)[:MOST_FLAGS], *notes, MORE],
            tones=TONES,
        )


def _change(middle: float, low: float, high: float) -> str:
    if np.isnan(middle):
        return NO_VALUE
    digits = 0 if abs(middle) >= 10 else 1
    # An exact number has no interval; that of processes that differ too much is unknown.
    ends = "" if low == high else " [?]" if np.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{middle:+.{digits}f} %{ends}"


def compare(
    baseline: pd.DataFrame,
    contrast: pd.DataFrame,
    *,
    between: dict[str, tuple[str, str]],
    stores: tuple[str, str] | None = None,
    across: tuple[str, ...] = (),
    values: list[str] | None = None,
    least: float | None = None,
    same: float | None = None,
    variation: Known | None = None,
    device_decides: bool = False,
    options: tuple[str, ...] = (),
) -> Comparison:
    """Compare two selections of rows of `lmsweep.load(..., pooled=False)`; each successful attempt is one process.

    between: the keys that distinguish the sides, with their values in the baseline and in the contrast. Only these, the
    keys that they determine, and `across` may differ. stores: names for the title. values: `phase.metric`, all in one
    unit; smaller is better. least, same: as `min_effect` and `same_within` of `lmsweep.compare`; by default those of
    `thresholds`. variation: between processes, from `known_variation` of whole stores; by default of these rows.
    device_decides: whether device times decide also where one host measured both sides; else wall times do there.
    options: keys each of whose combinations is a comparison, if several are made at once.

    Raises RequestError if the sides differ in any other key, if one side has several results for one cell, or if no
    cells can be paired.
    """
    for name in (*between, *across):
        check_key(name, "--across" if name in across else "--baseline")
    for option, share in (("--min-effect", least), ("--same-within", same)):
        if share is not None and not 0 < share < 1:
            raise RequestError(f"{option} {100 * share:g}%: give more than 0% and less than 100%")
    whole = pd.concat([baseline.assign(side=0), contrast.assign(side=1)], ignore_index=True)
    rows, unit, free, unpaired, warnings = _pair(whole, values, (*between, *across))
    cells = rows.drop_duplicates("cell")  # a row of each cell has its keys
    keys = _keys_of(cells, free)
    cells = _in_order(cells, keys)
    order = cells["cell"].to_numpy()

    counted = thresholds(cells["device"].eq("cpu").to_numpy(), least, same)
    known = known_variation(baseline, contrast) if variation is None else variation
    of_option = cells.groupby(list(options), dropna=False).ngroup() if options else pd.Series(0, cells.index)
    table = Table(order, axes_of(cells, keys[:-1]), counted, known, np.asarray(of_option, dtype=np.int64))
    judged = judge(rows, unit, table)
    machines = places_of(rows, order, stored_together=stores is None)
    names = cells[keys].reset_index(drop=True)
    judges_times = values is None and unit == "s"  # selected values are judged as they are, by no other clock
    if judges_times:
        one_host = not device_decides and machines.map(len).max() < 2
        judged = judge_clocks(judged, whole, rows, table, one_host=one_host)
        by_device = judged["clock"].eq("device").to_numpy()
        names["value"] = names["value"].mask(by_device, names["value"].map(device_time_of))

    # The rows of `names`, `judged`, `shown`, `claimed` and `machines` are the cells, in this order.
    corrected = judged.assign(p=holm(judged["p"].to_numpy(float)))
    shown = names.join(corrected[[name for name in SHOWN if name in corrected]])
    claimed = shown.join(judged[["half", "kind", "itself"]]).join(judged.filter(regex="^(wall|device)_"))
    claimed = claimed.assign(places=machines, same=counted.same)
    frame = shown.join(_ratio_of_other_clock(judged))
    for name, column in _errors_beside(whole, rows, order).items():
        frame.insert(frame.columns.to_list().index("verdict"), name, column)

    unknown = [name for name in UNKNOWN if whole[name].isna().any()]
    chosen = [*([stores] if stores else ()), *between.values()]  # (of the baseline, of the contrast)
    against, subject = (", ".join(values_of_sides[side] for values_of_sides in chosen) for side in (0, 1))
    sides = [f"{stores[1]} against {stores[0]}"] if stores else []
    sides += [f"{name} {of_contrast} against {of_baseline}" for name, (of_baseline, of_contrast) in between.items()]
    return Comparison(
        frame=frame, keys=keys, unit=unit, conditions=common_conditions(rows, [*keys, *free, *unknown]),
        title=f"{'; '.join(sides) or 'contrast against baseline'}: ratio of medians and 95 % interval",
        claim=claim_of(claimed, subject, against, timed=True) if judges_times else None,
        cells=claimed, unpaired=unpaired,
        least=tuple(sorted({*judged["least"].tolist()})), same=tuple(sorted({*counted.same.tolist()})),
        differences=differences(rows, across), warnings=(*warnings, *_variation_words(judged), *_warnings(rows)),
        results=(_results(rows, 0, order), _results(rows, 1, order)),
    )  # fmt: skip


class _Paired(NamedTuple):
    rows: pd.DataFrame
    """The rows of `cells_of_sides` whose cell both sides have. The column `cell` holds the cell's number."""
    unit: str
    free: set[str]
    """Keys in which the sides may differ."""
    unpaired: tuple[int, int]
    warnings: list[str]


def _pair(whole: pd.DataFrame, values: list[str] | None, compared: tuple[str, ...]) -> _Paired:
    """Pair the rows of both sides that agree in all keys except those compared. Raises as `compare` does."""
    rows = cells_of_sides(whole, values)
    free = may_differ(rows, compared)
    distinguishing = distinguishing_columns(rows)
    several = varying(rows, distinguishing)
    identity = [*(name for name in distinguishing if name in several and name not in free), "value"]
    rows["cell"] = rows.groupby(identity, dropna=False, sort=False).ngroup()
    check_one_result(rows)
    baseline, contrast = (set(rows["cell"][rows["side"] == side]) for side in (0, 1))
    both = baseline & contrast
    check_equal(rows, identity, both)
    paired = rows[rows["cell"].isin(both)]
    units = paired["unit"].dropna().unique()
    if len(units) > 1:
        raise RequestError(f"--value: all values must have the same unit, but these have {' and '.join(units)}")
    unpaired = (len(baseline - both), len(contrast - both))
    return _Paired(paired, units[0] if len(units) else "s", free, unpaired, _steps_words(rows))


def _keys_of(cells: pd.DataFrame, free: set[str]) -> list[str]:
    """Return the columns that distinguish cells: at least the size of the model, and `value`, the last one."""
    size = "model" if cells["model"].notna().any() else "d_model"
    keys = [name for name in varying_keys(cells, [size, "context_length"], []) if name not in free]
    several = varying(cells, keys)
    return [*([name for name in keys if name in several] or [size]), "value"]


def _in_order(cells: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the cells in the natural order of these keys; values, the last key, in the order in which they come."""
    ranks = pd.DataFrame({name: natural_ranks(cells, name) for name in keys[:-1]})
    ranks["value"] = pd.factorize(cells["value"])[0]
    return cells.iloc[ranks.sort_values([*ranks]).index]


def thresholds(on_cpu: NDArray[np.bool_], least: float | None = None, same: float | None = None) -> Thresholds:
    """Return the thresholds of each cell. `same` is never below `different`.

    on_cpu: whether each cell was measured on a CPU. least, same: fractions that the user asks for; None: the defaults.
    """

    def of_cells(asked: float | None, on_gpu: float, elsewhere: float) -> NDArray[np.float64]:
        return np.where(on_cpu, elsewhere, on_gpu) if asked is None else np.full(len(on_cpu), asked)

    different = of_cells(least, DIFFERENT_ON_GPU, DIFFERENT_ELSEWHERE)
    same_within = np.maximum(of_cells(same, SAME_ON_GPU, SAME_ELSEWHERE), different)
    return Thresholds(different, of_cells(least, DIFFERENT_BY_DEVICE, DIFFERENT_ELSEWHERE), same_within)


def _ratio_of_other_clock(judged: pd.DataFrame) -> pd.DataFrame:
    """Return `wall_ratio` and `device_ratio` with their intervals, each null where its own clock decides."""
    ratios = judged.filter(regex="^(wall|device)_ratio")
    for name in ratios:
        ratios[name] = ratios[name].mask(judged["clock"].eq(str(name).partition("_")[0]))
    return ratios.dropna(axis="columns", how="all")


def _results(cells: pd.DataFrame, side: int, order: NDArray[np.int64]) -> list[ResultKey | None]:
    of_side = cells[cells["side"] == side].drop_duplicates("cell")
    names = of_side[list(ResultKey._fields)].itertuples(index=False, name=None)
    known = {cell: ResultKey(*key) for cell, key in zip(of_side["cell"], names, strict=True)}
    return [known.get(cell) for cell in order]


def axes_of(cells: pd.DataFrame, keys: list[str]) -> NDArray[np.int64]:
    """Return the value of each key in each cell as an integer, of shape (cells, keys)."""
    codes = [pd.factorize(cells[name], use_na_sentinel=False)[0] for name in keys]
    return np.stack(codes, axis=1) if codes else np.zeros((len(cells), 0), dtype=np.int64)


def places_of(cells: pd.DataFrame, order: NDArray[np.int64], *, stored_together: bool) -> pd.Series:
    """Return the machines that measured each cell. Of rows without a host name, each environment counts as a machine if
    both sides are of one store, else each side."""
    ok = cells[cells["status"] == Status.OK]
    nameless = ok["environment_id"] if stored_together else "side " + ok["side"].astype(str)
    named = ok.assign(place=ok["host_name"].astype(object).fillna(nameless)).groupby("cell")["place"].agg(frozenset)
    return pd.Series([named.get(cell, frozenset()) for cell in order], dtype=object)


class Sides(NamedTuple):
    """The arguments of `compare` for two selections."""

    baseline: pd.DataFrame
    contrast: pd.DataFrame
    between: dict[str, tuple[str, str]]


def select_sides(frame: pd.DataFrame, baseline: dict[str, str], contrast: dict[str, str]) -> Sides:
    """Select both sides of a comparison by their keys. Raises RequestError if both selections are the same."""
    if baseline == contrast:
        raise RequestError("--baseline and --contrast are the same: give keys in which they differ, as key=value")
    baseline_rows = select(frame, baseline, option="--baseline")
    contrast_rows = select(frame, contrast, option="--contrast")
    between = {name: (baseline.get(name, "any"), contrast.get(name, "any")) for name in {**baseline, **contrast}}
    if "code" in between:
        before, after = between["code"]
        between["code"] = (f"{before}{_digest_of(baseline_rows)}", f"{after}{_digest_of(contrast_rows)}")
    return Sides(baseline=baseline_rows, contrast=contrast_rows, between=between)


def _digest_of(rows: pd.DataFrame) -> str:
    digests = rows["code_digest"].dropna().unique()
    return f" ({digests[0][:SHOWN_DIGITS]})" if len(digests) == 1 else ""


def _errors_beside(whole: pd.DataFrame, cells: pd.DataFrame, order: NDArray[np.int64]) -> dict[str, Floats]:
    """Return the largest error of the attention in each cell, for each of ERRORS; nothing if no row has any."""
    result = ["side", "measurement_id", "environment_id"]
    errors = whole[(whole["phase"] == "error") & whole["metric"].isin(["output", "gradient"])]
    if errors.empty:
        return {}
    largest = errors.groupby(result, as_index=False)["max"].max()
    of_cell = cells[["cell", *result]].drop_duplicates().merge(largest, on=result)
    return {
        name: of_cell[of_cell["side"] == side].set_index("cell")["max"].reindex(order).to_numpy(dtype=np.float64)
        for side, name in enumerate(ERRORS)
    }


CAPPED: tuple[Kind, ...] = ("device_capped", "phase_capped")
"""Kinds of time that the GPU's power limit makes vary."""

KIND_WORDS: dict[Kind, str] = {
    "device": "of device time",
    "device_capped": "of device time at the power limit",
    "ranks": "of device time of ranks",
    "phase": "of a phase's device time",
    "phase_capped": "of a phase's device time at the power limit",
    "wall": "of wall time",
    "wall_waits": "of wall time with gaps",
    "host": "of wall time that the host decides",
    "cpu": "of time on a CPU",
    "cpu_busy": "of time on a busy CPU",
    "setup": "of set-up time",
    "resident": "of resident memory",
}


def _variation_words(judged: pd.DataFrame) -> list[str]:
    """Return sentences that say how far processes are taken to differ, and how that is known."""
    tested = judged[judged["ratio"].notna() & (judged["kind"] != "exact")]
    found: dict[bool, list[str]] = {}  # whether the variation was measured -> words of each kind
    for kind, of_kind in tested.groupby("kind", sort=False):
        ends = " to ".join(dict.fromkeys(map(percent, (of_kind["variation"].min(), of_kind["variation"].max()))))
        name = cast(Kind, kind)
        measured = bool((of_kind["variation"] != PRIORS[name].scale).any())
        found.setdefault(measured, []).append(f"{ends} {KIND_WORDS[name]}")
    said = []
    if True in found:
        said.append(f"Standard deviation between processes, from repeated combinations: {', '.join(found[True])}.")
    if False in found:
        sweep = "noise-cpu" if tested["kind"].str.startswith("cpu").all() else "noise"
        said.append(
            f"Standard deviation between processes, assumed: {', '.join(found[False])}. `lmsweep run {sweep}`, or a "
            "sweep with `processes: 3`, measures it."
        )
    if (widened := float(judged["widened"].max())) >= NAMED_WIDENING:
        said.append(
            f"The combinations scatter more than that, beyond what each axis does, and each side has one process: "
            f"intervals are {widened:.1f} times as wide. --set processes=2 shows whether processes differ."
        )
    return said


def _steps_words(cells: pd.DataFrame) -> list[str]:
    values = {name: [label(number) for number in cells.groupby("side")[name].first()] for name in STEPS}
    differing = [f"{name} {' and '.join(texts)}" for name, texts in values.items() if len(set(texts)) > 1]
    return [f"The sides ran other numbers of steps: {', '.join(differing)}."] if differing else []


NAMED_WIDENING = 1.25
"""Intervals that are this many times as wide are mentioned (`_variation_words`)."""


def _warnings(cells: pd.DataFrame) -> tuple[str, ...]:
    measured = cells[cells["min"] < cells["max"]]  # constant samples need no statistics
    processes = measured.groupby(["cell", "side"]).size()
    found = []
    if cells["device"].eq("cpu").any() and (cells["unit"] == "s").any():
        found.append("On a CPU, device time is wall time.")
    if len(processes) and processes.min() == 1:
        found.append("Cells with one process on a side: what other processes would measure is estimated.")
    return tuple(found)
