"""Pairs the results of a store with published numbers, or with those of another store, and judges each pair.

A condition that the other side does not state is assumed to be as in our result. `lmsweep compare` judges the pairs.
"""

from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.analysis.comparison.cell_verdicts import Table, judge, judge_clocks
from lmsweep.analysis.comparison.claim import Claim, claim_of
from lmsweep.analysis.comparison.compare import axes_of, places_of, thresholds
from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS, label, labels
from lmsweep.analysis.data.load import load
from lmsweep.analysis.data.open_store import open_store, why_no_store
from lmsweep.analysis.data.pooled_rows import pool
from lmsweep.analysis.data.process_variation import KIND, Known, known_variation
from lmsweep.analysis.data.selection import flag_tuples, ok_rows
from lmsweep.analysis.data.step_parts import parts_of_step
from lmsweep.analysis.reference import PUBLISHED, PUBLISHED_STORES
from lmsweep.trials.results.flag_meanings import CAVEATS
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.model_sizes import DIMENSIONS
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.statistics.median_interval import NORMAL

ALONE = ("attention", "loss")
"""Workloads that measure a part of a model by itself."""

CONDITIONS = ("batch_size", "precision", "compile", "attention", "warmup_steps", "measure_steps")
"""What a published source may leave open."""

_SHOWN = ("device_name", "device", "device_memory", *DIMENSIONS, "workload", "mode", "model", "context_length")
_OTHER_CONDITIONS = tuple(name for name in DISTINGUISHING_COLUMNS if name not in _SHOWN)
"""What `differs` may name beside another store. _SHOWN is left out: a line has columns that show it, or imply it."""

_RESULT = ["measurement_id", "environment_id", "workload", "metric"]
"""What identifies a result, together with its phase."""
_PART_OF_MODE = {"forward": "inference", "train_forward": "forward", "train_step": "step"}
"""Mode -> the part of a step that it runs, if that has another name. The mode `forward` keeps nothing for backward."""
_MEMORY = ("peak_allocated", "allocated", "reserved")

_SAME_VOCABULARY = 0.01
"""Maximum relative difference of vocabularies that differ only in padding."""

VARIATION_OF_PUBLISHED = {"gpu": 0.019, "host": 0.1}
"""Standard deviation of the logarithm of a published time, if the GPU or if the host decided it, from cells that a
report prints twice."""

USUAL_STEPS, USUAL_CONTEXT, USUAL_BATCH = 10, 256, 4
"""What the assignment of the reports asks for: the measured steps of a mean, the context length and the batch size."""

LONG = [
    *("source", "hardware", "measurement_id", "environment_id", "device_name", "workload", "part", "quantity", "unit"),
    *("clock", "model", "d_model", "context_length", "batch_size", "precision", "compile", "attention", "warmup_steps"),
    "measure_steps",
    *(f"{name}{end}" for name in ("mine", "theirs", "ratio") for end in ("", "_low", "_high")),
    *("wall_ratio", "verdict", "mine_flags", "theirs_flags", "caveats", "differs"),
]
"""The columns of `Pairs.frame` that CSV and JSON show."""


class NoCounterpartError(RequestError):
    """No result has a counterpart in the other source."""


SideName = Literal["mine", "theirs"]


class Side(NamedTuple):
    """The rows of one side of a comparison."""

    name: SideName
    attempts: pd.DataFrame
    """All of `lmsweep.load(..., pooled=False)`."""
    numbers: pd.DataFrame
    """What `_numbers` returns; `line` is the index of a row."""
    measured: pd.DataFrame
    """The attempts that have a median, with their phase also in the column `stored`."""
    device_times: pd.DataFrame
    """The attempts' rows of device times; empty if the other side has none."""

    @property
    def suffix(self) -> str:
        """Return what its columns end in where a row has both sides."""
        return "" if self.name == "mine" else "_there"


class Pairs(NamedTuple):
    frame: pd.DataFrame
    """Its columns are those that `paired` lists."""
    cells: pd.DataFrame
    """What `_judged` returns; the index is that of the frame."""
    baseline: SideName
    unpaired: tuple[int, int]
    """Numbers that only this store has, and that only the other side has."""

    def claim(self, rows: pd.Index, mine: str, theirs: str, *, timed: bool) -> Claim:
        """Return what these rows claim of the side that is not the baseline. mine, theirs: what to call the sides."""
        subject, against = (theirs, mine) if self.baseline == "mine" else (mine, theirs)
        return claim_of(self.cells.loc[rows], subject, against, timed=timed)


def paired(attempts: pd.DataFrame, name: str, rows: pd.DataFrame | None = None) -> Pairs:
    """Return a row for each number of the other side that has a counterpart among these results.

    attempts: rows of `lmsweep.load(..., pooled=False)`. name: `published`, another store that ships, or the location of
    a store. rows: the pooled rows that are paired; None: all.

    Numbers are times of a step, of its parts, of attention and of the loss alone, and memory at a point of an
    iteration. Two are paired if model (or width), context length, batch size, precision, compilation and attention
    agree. Where the other side leaves one of them open, it is paired with our result that is nearest to what it states
    and to a plain run: float32, eager, attention without a fused kernel, a steady state. Columns of `frame`:

    - `source` (sweep of the other side: report and table, as `seed2 e2e_fp32`), `hardware`.
    - `measurement_id`, `environment_id`, `workload`, the configuration and the environment of our result. With the
    suffix `_there`, those of the other side; null where it does not state them.
    - `part` (forward, backward, forward_backward, step, ...), `metric` (time, peak_allocated, allocated, reserved),
    `unit`, `clock` (device, wall; null for memory): device time if both sides have it.
    - `mine`, `theirs`, each with `_low` and `_high`, in SI units.
    - `ratio`, theirs / mine, so that above 1 ours is faster or smaller, with `ratio_low` and `ratio_high`; `wall_ratio`
    beside device times.
    - `verdict`, a word of `compare`: of ours against a published number; of the other store against ours, as `lmsweep
    compare OURS THEIRS` says it.
    - `mine_flags`, `theirs_flags` (flags and caveats, tuples); `caveats`, those that exclude the pair from means;
    `wall_flags`, flags of wall time beside device times.
    - `differs`: conditions in which both sides differ, and those that the other side does not state, as a sentence.

    Raises RequestError if there is no such store, and NoCounterpartError if no number has a counterpart.
    """
    is_published = name == PUBLISHED
    if is_published:  # a report may leave the context length open: then it is ours, if we have only one
        lengths = set() if rows is None else set(rows["context_length"].dropna())
        theirs = _published(lengths.pop() if len(lengths) == 1 else None)
    elif open_store(name).exists():
        theirs = _side("theirs", load(name, pooled=False))
    else:
        raise RequestError(f"--with {name}: {why_no_store(name)}")
    mine = _side("mine", attempts, rows)
    if theirs.device_times.empty:  # as in all published tables: then wall times are compared
        mine = mine._replace(device_times=theirs.device_times)
    pairs = _matched(mine, theirs, name)
    unpaired = (len(mine.numbers) - pairs["line"].nunique(), len(theirs.numbers) - pairs["line_there"].nunique())
    pairs = _described(pairs, name)
    # The baseline is what was published, or our result where another store stands beside it.
    sides = (theirs, mine) if is_published else (mine, theirs)
    known = known_variation(mine.attempts) if is_published else known_variation(mine.attempts, theirs.attempts)
    # Each published table is judged as one comparison of times and one of memory.
    is_time = pairs["quantity"] == "time"
    cells = pd.concat([_judged(table, sides, known) for _, table in pairs.groupby(["source", is_time], sort=False)])
    cells = cells.sort_index()  # as the pairs are
    ours = ["line", "median", "low", "high"]  # `_oriented` has these numbers, of both sides
    frame = pairs.drop(columns=[*ours, "line_there"]).join(_oriented(cells, sides))
    frame = frame.rename(columns={"flags": "mine_flags", "flags_there": "theirs_flags"})
    return Pairs(_with_wall_flags(frame), cells, sides[0].name, unpaired)


def _matched(mine: Side, theirs: Side, name: str) -> pd.DataFrame:
    """Return the numbers of both sides that are paired, a row for each pair."""
    keys = ["workload", "part", "quantity", "place"]
    pairs = mine.numbers.merge(theirs.numbers, on=keys, suffixes=(mine.suffix, theirs.suffix))
    pairs = pairs[_compatible(pairs)].copy()  # one block of memory for each type: columns are added much faster
    if pairs.empty:
        raise NoCounterpartError(
            f"{name} has no number with the model, context length, batch size, precision, compilation and attention of "
            f"one in the store, which has {', '.join(sorted(mine.numbers['place'].str.replace('/', ' at ').unique()))}"
        )
    if name == PUBLISHED:
        return _nearest(pairs)
    if (pairs["part"] == "step").any():  # like `compare`, only whole steps: they contain their parts
        return pairs[(pairs["part"] == "step") | pairs["workload"].isin(ALONE)]
    return pairs


def _described(pairs: pd.DataFrame, name: str) -> pd.DataFrame:
    """Add `source`, `hardware`, `caveats` and `differs`."""
    is_published = name == PUBLISHED
    device_name, device = pairs["device_name_there"], pairs["device_there"]
    is_gpu_or_unknown = device.eq("cuda") | device.isna()
    return pairs.assign(
        differs=[_differences(line, is_published=is_published) for _, line in pairs.iterrows()],
        source=pairs["sweep_there"] if is_published else name,
        hardware=device_name.where(is_gpu_or_unknown, device_name + ", " + device),
        # They question a published number, so that it counts in no mean.
        caveats=pairs["flags_there"].map(lambda words: tuple(one for one in words if is_published and one in CAVEATS)),
    ).reset_index(drop=True)


WALL_FLAGS = frozenset({Flag.HOST_BOUND, Flag.BUSY_HOST, Flag.OUTLIERS, Flag.UNSTEADY, Flag.NOT_CONVERGED})
"""Flags of the samples of wall time and of the host, which say nothing about device time."""


def _with_wall_flags(frame: pd.DataFrame) -> pd.DataFrame:
    """Move the flags of wall time, where device time is compared, into a column `wall_flags`."""
    columns: dict[str, list[tuple[str, ...]]] = {"mine_flags": [], "theirs_flags": [], "wall_flags": []}
    for mine, theirs, clock in frame[["mine_flags", "theirs_flags", "clock"]].itertuples(index=False):
        moved = WALL_FLAGS if clock == "device" else frozenset[Flag]()
        columns["mine_flags"].append(tuple(flag for flag in mine if flag not in moved))
        columns["theirs_flags"].append(tuple(flag for flag in theirs if flag not in moved))
        columns["wall_flags"].append(tuple(flag for flag in dict.fromkeys(mine + theirs) if flag in moved))
    return frame.assign(**{name: pd.Series(flags, frame.index) for name, flags in columns.items()})


def _side(name: SideName, attempts: pd.DataFrame, rows: pd.DataFrame | None = None) -> Side:
    numbers = _numbers(pool(attempts) if rows is None else rows)
    have_median = attempts[attempts["median"].notna()]
    device_times = have_median[have_median["metric"] == "device_time"]
    measured = ok_rows(have_median).assign(stored=lambda rows: rows["phase"])
    return Side(name, attempts, numbers.assign(line=range(len(numbers))), measured, device_times)


def _numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the successful times of steps, of their parts, of attention and of the loss, and the memory of an
    iteration.

    Adds what must agree within a pair: `place`, the size and the context length, as `large/1024`; `part`, what ran; and
    `quantity`, `time` or the point of an iteration with the metric of memory, as `step.peak_allocated`. `stored` is the
    phase in the store: `parts_of_step` renames the phases of modes.
    """
    frame = frame.assign(stored=frame["phase"])
    # A published table may print the same time twice: the last counts.
    steps = parts_of_step(frame).drop_duplicates([*DISTINGUISHING_COLUMNS, "environment_id", "phase"], keep="last")
    is_alone = frame["workload"].isin(ALONE)
    times = pd.concat([steps, frame[is_alone & (frame["metric"] == "time")]])
    times = times.assign(part=times["phase"], quantity="time")
    memory = frame[frame["metric"].isin(_MEMORY)]
    memory = pd.concat([_of_model(memory), _of_attention(memory)]).sort_index()  # in the order of the store
    numbers = ok_rows(pd.concat([times, memory], ignore_index=True))
    numbers = numbers[numbers["median"].notna()]
    if numbers.empty:
        raise RequestError("the store has no times or memory of the workloads timing, memory, attention or loss")
    width = "d_model " + labels(numbers["d_model"])
    size = numbers["model"].astype(object).mask(numbers["workload"].isin(ALONE), width)
    place = size.astype(str) + "/" + labels(numbers["context_length"].fillna(USUAL_CONTEXT))
    return numbers.assign(place=place, flags=flag_tuples(numbers["flags"]))


def _of_model(memory: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a model's memory at comparable points. Their part is what the mode runs."""
    rows = memory[memory["workload"].eq("memory") & memory["phase"].isin(["step", "step_end", "before_backward"])]
    parts = rows["mode"].map(lambda mode: _PART_OF_MODE.get(mode, mode))
    return rows.assign(part=parts, quantity=rows["phase"] + "." + rows["metric"])


def _of_attention(memory: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of attention's memory. Their part is the point of the iteration."""
    rows = memory[memory["workload"] == "attention"]
    # Attention reaches its peak in backward, which also has what forward kept: that is the peak of the whole step.
    points = rows["phase"].mask((rows["phase"] == "backward") & (rows["metric"] == "peak_allocated"), "step")
    return rows.assign(part=points, quantity=points + "." + rows["metric"])


@cache
def _published(context_length: float | None) -> Side:
    """Return the published numbers, with intervals for other runs of their sources. context_length: replaces one that
    is not stated. The attention of reports is written out, without a fused kernel; public benchmarks name theirs."""
    rows = pd.concat([load(name, pooled=False).assign(origin=name) for name in PUBLISHED_STORES], ignore_index=True)
    deviation = _deviation(rows)
    rows["low"], rows["high"] = (rows["median"] * np.exp(sign * NORMAL * deviation) for sign in (-1, 1))
    written_out = rows["workload"].map({"timing": "naive", "memory": "naive", "attention": "naive_softmax"})
    is_of_report = rows["origin"] == PUBLISHED
    if context_length is not None:
        rows["context_length"] = rows["context_length"].fillna(context_length)
    attention = rows["attention"].astype(object).mask(is_of_report, written_out)
    # "exact": no variation between processes is added, since the interval already is that of other runs.
    return _side("theirs", rows.assign(**{KIND: "exact"}, attention=attention))


def _deviation(rows: pd.DataFrame) -> NDArray[np.float64]:
    """The standard deviation of the logarithm of each published number: of a time between and within runs, of any other
    by rounding."""
    medians = rows["median"].to_numpy(float)
    by_host = np.array([Flag.HOST_BOUND in words for words in rows["flags"]])
    between_runs = np.where(by_host, VARIATION_OF_PUBLISHED["host"], VARIATION_OF_PUBLISHED["gpu"])
    # Within a run: the standard error of the mean, where the report states the standard deviation of its steps.
    key = ["attempt_id", "phase"]
    stated = rows[rows["metric"] == "time_std"].drop_duplicates(key).set_index(key)["median"]
    of_steps = stated.reindex(pd.MultiIndex.from_frame(rows[key])).to_numpy(float)
    steps = pd.to_numeric(rows["measure_steps"], "coerce").astype(float).fillna(USUAL_STEPS).to_numpy()
    within_run = np.nan_to_num(of_steps / medians / np.sqrt(steps))
    of_time = np.hypot(between_runs, within_run)
    deviation: NDArray[np.float64] = np.where(rows["metric"] == "time", of_time, _rounding(medians))
    return deviation


def _rounding(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standard deviation of numbers by rounding, relative to them: 1200 is rounded to 100. Below 1, 0."""
    last_digit = np.zeros(len(values))
    for place, value in enumerate(values):
        if value >= 1:
            digits = str(int(value))
            last_digit[place] = 10.0 ** (len(digits) - len(digits.rstrip("0")))
    with np.errstate(divide="ignore", invalid="ignore"):
        # What rounding takes away is uniform over one unit of the last digit: its variance is a twelfth.
        deviation: NDArray[np.float64] = np.nan_to_num(last_digit / np.sqrt(12) / values)
    return deviation


def _compatible(pairs: pd.DataFrame) -> pd.Series:
    """Whether the conditions that both sides state agree. One that is left open must be as in a plain run, except for
    the batch size, which may be any."""
    compilation = pairs["compile_there"]
    compiled = (compilation == pairs["compile"]) | (compilation.isna() & (pairs["compile"] == "none"))
    same = _same_precision(pairs, pairs["precision_there"]) & compiled & _agrees_or_open(pairs, "batch_size")
    return (same & _same_kernel(pairs, pairs["attention_there"]) & _same_shape(pairs)).astype(bool)


def _agrees_or_open(pairs: pd.DataFrame, name: str) -> pd.Series:
    there = pairs[f"{name}_there"]
    return there.isna() | (there == pairs[name]).fillna(False)


def _same_precision(pairs: pd.DataFrame, stated: pd.Series) -> pd.Series:
    ours = pairs["precision"]
    same = (stated == ours) | (stated.isna() & ours.isin(["fp32", "tf32"]))
    same |= stated.isin(["mixed", "fp16 or bf16"]) & ours.isin(["bf16", "fp16"])
    same |= (stated == "fp16_pure") & (ours == "bf16_pure")  # products in 16 bits are equally fast
    return same | (_flagged(pairs["flags_there"], "suspected_tf32") & (ours == "tf32"))


def _same_kernel(pairs: pd.DataFrame, stated: pd.Series) -> pd.Series:
    """Whether both sides run the same attention or, in the workload `loss`, the same loss."""
    written_out = ("naive", "naive_softmax")
    same = (stated == pairs["attention"]) | (stated.isin(written_out) & pairs["attention"].isin(written_out))
    same = same.where(pairs["workload"] != "loss", pairs["loss_there"] == pairs["loss"])
    # The user's own attention may be any kernel: it is compared with all that FlashAttention's figures show.
    own = np.array([is_reference(name) for name in pairs["attention"]], dtype=bool)
    return same | (own & pairs["workload"].eq("attention") & pairs["sweep_there"].str.startswith("FlashAttention"))


def _same_shape(pairs: pd.DataFrame) -> pd.Series:
    has_model = pairs["workload"] != "attention"  # it determines the number of heads
    same = (has_model | _agrees_or_open(pairs, "num_heads")) & _agrees_or_open(pairs, "causal")
    there, mine = (pairs[name].astype("Float64") for name in ("vocab_size_there", "vocab_size"))
    return (same & ((there - mine).abs() / mine < _SAME_VOCABULARY).fillna(True)).astype(bool)


def _nearest(pairs: pd.DataFrame) -> pd.DataFrame:
    """Keep one of our results for each published number and each of our devices: the nearest to what is stated, and to
    a plain run where nothing is. The columns of `distance` decide in their order; what is smaller is nearer."""
    device = pairs["device_there"]
    is_tf32 = _flagged(pairs["flags_there"], "suspected_tf32")
    distance = pd.DataFrame(
        {
            "device": device.notna() & (device != pairs["device"]),
            "precision": (pairs["precision"] == "tf32") != is_tf32,  # is_tf32: the source seems to have used it
            "batch": pairs["batch_size"].ne(USUAL_BATCH) & pairs["batch_size_there"].isna(),
            "warmup": _steps_apart(pairs, "warmup_steps"),
            "steps": _steps_apart(pairs, "measure_steps"),
        }
    )
    nearest_first = pairs.loc[distance.sort_values([*distance], kind="stable").index]
    # Each of the user's own attentions keeps a pair, and lmsweep's attentions together another.
    own = nearest_first["attention"].where(nearest_first["attention"].map(is_reference), "")
    kept = nearest_first.assign(own=own).drop_duplicates(["line_there", "device_name", "own"])
    return pairs.loc[kept.index.sort_values()]


def _steps_apart(pairs: pd.DataFrame, name: str) -> pd.Series:
    """How far the number of steps is from what is stated; where nothing is, more steps are nearer (a steady state)."""
    ours, stated = (pd.to_numeric(pairs[column], "coerce").astype(float) for column in (name, f"{name}_there"))
    ours = ours.fillna(0)  # of `auto`
    return (ours - stated).abs().where(stated.notna(), -ours)


def _flagged(flags: pd.Series, word: str) -> pd.Series:
    return pd.Series([word in words for words in flags], flags.index, dtype=bool)


def _judged(pairs: pd.DataFrame, sides: tuple[Side, Side], known: Known) -> pd.DataFrame:
    """Return the cells of one comparison: a row for each pair, with the columns of `judge` and `value`, `places`,
    `same`. sides: the baseline first."""
    timed = pairs["quantity"].iloc[0] == "time"
    processes = [_processes(pairs, one).assign(side=number) for number, one in enumerate(sides)]
    rows = pd.concat(processes, ignore_index=True)
    order = pairs.index.to_numpy()  # of the rows that `judge` and `places_of` return
    limits = thresholds((pairs["device"] == "cpu").to_numpy())
    axes = ["model", "d_model", "context_length", "precision", "compile", "batch_size", "part", "quantity"]
    table = Table(order, axes_of(pairs, axes), limits, known)
    judged = judge(rows, "s" if timed else "B", table)
    hosts = places_of(rows, order, stored_together=False).set_axis(pairs.index)  # a set, of both sides of a pair
    value = pairs["part"] + "." + pairs["quantity"]
    if timed:
        times = pd.concat([one.device_times.assign(side=number) for number, one in enumerate(sides)], ignore_index=True)
        one_host = bool(hosts.map(len).max() < 2)
        judged = judge_clocks(judged, times, rows, table, one_host=one_host)
        value = value.mask(judged["clock"].eq("device").to_numpy(), pairs["part"] + ".device_time")
    return judged.set_axis(pairs.index).assign(value=value, places=hosts, same=limits.same)


def _processes(pairs: pd.DataFrame, side: Side) -> pd.DataFrame:
    """Return the rows of the processes of one side of each pair. `cell` is the pair's index."""
    key = [*_RESULT, "stored"]
    column_of = {name: name if name == "workload" else f"{name}{side.suffix}" for name in [*key, "line"]}
    of_side = pairs[[*column_of.values()]].set_axis([*column_of], axis=1).assign(cell=pairs.index)
    # backward_optimizer, a sum of two phases, is not in the attempts: its pooled row counts as one process.
    is_sum = pairs["part"].eq("backward_optimizer") & of_side["stored"].eq("backward")
    measured = side.measured.merge(of_side.loc[~is_sum, [*key, "cell"]], on=key)
    sums = side.numbers.merge(of_side.loc[is_sum, ["line", "cell"]], on="line")
    rows = pd.concat([measured, sums], ignore_index=True)
    return rows.assign(value=rows["phase"] + "." + rows["metric"], flags=flag_tuples(rows["flags"]))


def _oriented(cells: pd.DataFrame, sides: tuple[Side, Side]) -> pd.DataFrame:
    """Return the columns of `Pairs.frame` about numbers: the ratio is theirs / mine, whichever is the baseline."""
    ends = ("", "_low", "_high")
    shown: dict[str, Any] = {
        f"{side.name}{end}": cells[f"{column}{end}"]
        for side, column in zip(sides, ("baseline", "contrast"), strict=True)
        for end in ends
    }
    baseline, _ = sides
    for name in [one for one in ("ratio", "wall_ratio") if one in cells]:
        ratio, low, high = (cells[f"{name}{end}"] for end in ends)  # contrast / baseline
        if baseline.name == "theirs":
            ratio, low, high = 1 / ratio, 1 / high, 1 / low  # the inverse of the upper end is the lower end
        shown |= {name: ratio, f"{name}_low": low, f"{name}_high": high}
    return pd.DataFrame(shown).assign(verdict=cells["verdict"], clock=cells.get("clock"))


def _differences(line: pd.Series, *, is_published: bool) -> str:
    """The conditions that differ, with their value on the other side, and those that it does not state."""
    names = CONDITIONS if is_published else _OTHER_CONDITIONS
    there = {name: line[f"{name}_there"] for name in names}
    not_stated = [name for name in names if is_published and pd.isna(there[name])]
    differing = [name for name in names if name not in not_stated and label(there[name]) != label(line[name])]
    words = [f"{name} {label(there[name])}" for name in differing]
    if is_published:
        words.append(f"not stated: {', '.join([*not_stated, 'software'])}")
    return "; ".join(words)
