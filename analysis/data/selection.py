"""Selects the rows of a table or comparison, and the medians and intervals of one value such as `step.time`."""

import numpy as np
import pandas as pd

from lmsweep.analysis.data.code_states import rows_of_state
from lmsweep.analysis.data.columns import check_key, is_null, label
from lmsweep.trials.analytic.datasheets import boost_of, find_device
from lmsweep.trials.analytic.flop_conventions import MEANING
from lmsweep.trials.analytic.prices import names_device
from lmsweep.trials.results.flag_meanings import ABOVE_PEAK
from lmsweep.trials.results.metrics import (
    DERIVED,
    DEVICE_TIME,
    METRICS,
    PADDING,
    PEAKS,
    RATES,
    TOKEN_TIME,
    WALL_TIME,
    counts_flops,
    metric_of,
)
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.reference import HUGGING_FACE
from lmsweep.trials.spec.suggestions import choices


def select(frame: pd.DataFrame, where: dict[str, str], *, option: str = "--where") -> pd.DataFrame:
    """Return the rows whose keys have these values; for `where` see `lmsweep.analysis.pivot`.

    Raises RequestError, naming the command-line option, for an unknown key and for a value that no row has.
    """
    chosen = np.ones(len(frame), dtype=bool)
    for name, text in where.items():
        check_key(name, option)
        if name == "code":
            chosen &= rows_of_state(frame, text, option)
            continue
        codes, stored = pd.factorize(frame[name], use_na_sentinel=False)
        labels = [label(value) for value in stored]
        wanted = [text] if text in labels else text.split(",")
        meant = [stored_label for word in wanted for stored_label in _meant(word, labels, option, name)]
        chosen &= np.isin(codes, [labels.index(one) for one in meant])
    return frame[chosen] if where else frame


def _meant(word: str, labels: list[str], option: str, name: str) -> list[str]:
    """Return the stored values that a word selects: the equal one, or all device names that have it as whole words."""
    if word in labels:
        return [word]
    named = [one for one in labels if names_device(word, one)] if name == "device_name" else []
    if not named:
        raise RequestError(f"{option} {name}={word}: the store has no such result{choices(word, labels)}")
    return named


def ok_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["status"] == Status.OK]


def rows_of(frame: pd.DataFrame, value: str, *, of: str, sweep: str) -> pd.DataFrame:
    """Return the rows with a number of a value such as `step.time`, for notebooks. Raises RequestError without any.

    of: what the caller selected, in words. sweep: the packaged sweep that measures it.
    """
    found = frame[(frame["phase"] + "." + frame["metric"]).eq(value) & frame["median"].notna()]
    if found.empty:
        raise RequestError(f"the store has no {value} of {of}; measure it with: lmsweep run {sweep}")
    return found


NAMING = ["workload", "phase", "metric", "attempt_id", "median", "tokens_per_second"]
"""Columns that say which values a frame holds: to select rows of all columns would take ten times as long."""


def usual_values(frame: pd.DataFrame) -> list[str]:
    """Return the values that tables show by default: the first of these sets that the frame has. (1) The time of a
    token that is no padding, if the batches of all timed steps differ; (2) `step.time`, unless only attention was
    timed; (3) the times of forward and backward; (4) the gradient errors of the workload `precision`; (5) a memory
    peak; (6) the rates of the workload `ceiling`; (7) the first value by name. `step.time` if all trials failed."""
    frame = frame[NAMING]
    known = values_in(frame)
    if _has_each_step(frame, TOKEN_TIME):  # their times are of different work
        return [TOKEN_TIME]
    if not known or WALL_TIME in values_in(frame[frame["workload"] != "attention"]):
        return [WALL_TIME]
    for usual in (["forward.time", "backward.time"], ["gradients.relative_error"]):
        if shown := [name for name in usual if name in known]:
            return shown
    numbers = values_in(frame[frame["median"].notna()])
    for peak in PEAKS:
        if peak in numbers:
            return [peak]
    return [name for name in ("matmul.flops_rate", "copy.bandwidth") if name in known] or known[:1]


def _has_each_step(frame: pd.DataFrame, value: str) -> bool:
    """Whether these rows have timed steps, and this value of each of them."""
    steps = frame[frame["phase"].eq("step") & frame["median"].notna()]
    timed, having = (set(steps["attempt_id"][steps["metric"] == metric_of(one)]) for one in (WALL_TIME, value))
    return bool(timed) and timed <= having


ERRORS_OF_OWN = ("error.output", "error.gradient")
"""Values that say how far the user's attention is from float64."""

MOST_PARTS = 4
"""Parts of a profiled step that are shown first."""


def first_values(frame: pd.DataFrame) -> list[str]:
    """Return the values to show first: of profiles, the shares of the parts of a step that take most of its kernel
    time; `step.device_time` if every timed step has it; else `usual_values`.

    Device time belongs to the hardware, wall time to the host as well. Errors of the user's attention follow.
    """
    frame = frame[NAMING]
    shares = frame[frame["metric"] == "kernel_share"].groupby("phase")["median"].sum()
    if {*frame["workload"]} == {"profile"} and len(shares):
        return [f"{phase}.kernel_share" for phase in shares.nlargest(MOST_PARTS).index]
    if _has_each_step(frame[frame["workload"] == "timing"], DEVICE_TIME):
        usual = [DEVICE_TIME]
    elif (usual := usual_values(frame)) == [TOKEN_TIME]:
        usual = [TOKEN_TIME, PADDING]
    return [*usual, *sorted({*ERRORS_OF_OWN} & {*values_in(frame)}, key=ERRORS_OF_OWN.index)]


def workloads_beside(chosen: pd.DataFrame, values: list[str]) -> list[str]:
    """Return the workloads that succeeded in the chosen rows but have none of these values."""
    shown = chosen["workload"][(chosen["phase"] + "." + chosen["metric"]).isin(values)]
    return sorted(set(chosen["workload"][chosen["status"] == Status.OK]) - set(shown))


def values_in(frame: pd.DataFrame) -> list[str]:
    """Return every value that the rows hold, stored or derived, sorted."""
    pairs = set(zip(frame["phase"].to_numpy(), frame["metric"].to_numpy(), strict=True))
    stored = {pair for pair in pairs if not any(map(is_null, pair))}
    timed = frame["phase"][frame["tokens_per_second"].notna()].unique()
    names = [f"{phase}.{metric}" for phase, metric in stored]
    names += [f"{phase}.energy_per_token" for phase, metric in stored if metric == "energy"]
    return sorted([*names, *(f"{phase}.{metric}" for phase in timed for metric in RATES)])


def cells_of(frame: pd.DataFrame, chosen: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the chosen rows that hold the value, with its numbers in `median`, `low` and `high`.

    frame: rows of `lmsweep.load`. chosen: some of these rows. Includes failed trials whose workload measures the value
    elsewhere in the frame. `flags` are tuples; `reason` says why a successful row has no number. Raises RequestError if
    no row of the frame has the value.
    """
    if frame.empty:
        raise RequestError("the store holds no results yet")
    metric = metric_of(value)
    cells = _rows_with(frame, chosen, value)
    stored = {name: cells[name].to_numpy() for name in ("median", "low", "high")}  # of the stored metric
    numbers = stored
    reason = np.where(cells["reason"].notna(), cells["reason"], "no samples were stored")
    units = cells["unit"].to_numpy(object)
    if len({unit for unit in units if isinstance(unit, str)}) > 1:  # workloads of users may store it in different units
        usual = cells["unit"].mode().iloc[0]
        other = np.array([isinstance(unit, str) and unit != usual for unit in units])
        numbers = {name: np.where(other, np.nan, number) for name, number in numbers.items()}
        reason = np.where(other, [f"its unit is {unit}, not {usual}" for unit in units], reason)
        cells = cells.assign(unit=pd.Series(np.where(other, usual, units), cells.index, dtype=object))
    if metric in RATES:
        speed = cells[metric].to_numpy()
        work = speed * numbers["median"]  # in the longest time it gives the lowest rate
        numbers = {"median": speed, "low": work / numbers["high"], "high": work / numbers["low"]}
        whys = {  # the first that holds counts
            "only the workloads timing and attention have it": ~cells["workload"].isin(["timing", "attention"]),
            "the tokens of a batch are unknown": pd.Series(metric == "tokens_per_second", cells.index),
            "the FLOPs are unknown": cells["tflops"].isna(),
        }
        why = pd.Series("the peak of this device in this arithmetic is unknown", cells.index)
        why = why.case_when([(holds, text) for text, holds in whys.items()])
        reason = np.where(cells["median"].isna(), reason, f"{metric}: " + why)
    elif metric in DERIVED:
        factor = cells[metric].to_numpy() / numbers["median"]
        numbers = {name: factor * number for name, number in numbers.items()}
    unknown = np.isnan(numbers["median"]) & (cells["status"] == Status.OK).to_numpy(bool)
    marks = flag_tuples(cells["flags"])
    if counts_flops(value):
        marks = with_above_peak(marks, cells["hfu" if metric == "hfu" else "mfu"], cells["device_name"])
    reasons = pd.Series(np.where(unknown, reason, ""), cells.index, dtype=object)
    return cells.assign(value=value, flags=marks, reason=reasons, **({} if numbers is stored else numbers))


def _rows_with(frame: pd.DataFrame, chosen: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the chosen rows that hold the value, and failed trials whose workload measures it in the frame."""
    phase, _, metric = value.rpartition(".")
    source = DERIVED.get(metric, metric)  # the stored metric that it is derived from
    holding = ((frame["phase"] == phase) & (frame["metric"] == source)).to_numpy(bool)
    workloads = set(frame["workload"][holding])  # that measure the value
    if metric in DERIVED or not holding.any():  # else the frame has the value; the list of all takes time
        if not (known := values_in(frame)):  # all trials failed: each may measure it
            workloads = set(frame["workload"])
        elif value not in known:
            raise RequestError(f"--value {value}: the store has no such value{choices(value, known)}")
    wanted = ((chosen["phase"] == phase) & (chosen["metric"] == source)).to_numpy(bool)
    failed = (chosen["status"] != Status.OK).to_numpy(bool)
    if failed.any():  # a failed trial has one row, without phase and metric; it belongs to each value of its workload
        wanted = wanted | (failed & (chosen["workload"].isin(workloads) & chosen["phase"].isna()).to_numpy(bool))
    return chosen[wanted]


def unit_of(cells: pd.DataFrame, value: str) -> str | None:
    """Return the unit of a value in the rows of `cells_of`; None if every trial failed."""
    if (metric := metric_of(value)) in RATES:
        return METRICS[metric].unit
    units = {one for held, one in zip(cells["value"], cells["unit"], strict=True) if held == value and not is_null(one)}
    assert len(units) <= 1, f"{value} has one unit"
    return units.pop() if units else None


def flag_tuples(flags: pd.Series) -> pd.Series:
    """Return the stored lists of flags as tuples, empty where there is no list."""
    found = [() if words is pd.NA else tuple(words) for words in flags.to_list()]
    return pd.Series(found, flags.index, dtype=object)


def how_counted(rows: pd.DataFrame) -> str:
    """Return the convention by which the FLOPs of rows of `lmsweep.analysis.load` are counted, as titles print it."""
    used = set(rows["flops_convention"])
    words = MEANING[used.pop()] if len(used) == 1 else None
    words = words or f"{MEANING['hardware']}; models of your own by the model convention"
    hidden = "; pairs of positions outside a window or between documents count too"
    counted = rows[rows["flops_convention"] == "model"]
    may_hide = counted[["window", "lengths"]].notna().any(axis=None)
    may_hide = may_hide or counted["model_code"].astype(str).str.startswith(HUGGING_FACE).any()  # it may have windows
    return words + (hidden if may_hide else "")


def with_above_peak(flags: pd.Series, mfu: pd.Series, devices: pd.Series) -> pd.Series:
    """Return the tuples of flags, with ABOVE_PEAK where the MFU exceeds what the device's highest clock allows and
    `physics_violation` does not say so."""
    known = {name: find_device(str(name)) for name in devices.unique()}
    most = [boost_of(device) if (device := known[name]) else 1.0 for name in devices]
    marked = [
        (*words, ABOVE_PEAK) if share > limit and Flag.PHYSICS_VIOLATION not in words else words
        for words, share, limit in zip(flags, mfu, most, strict=True)
    ]
    return pd.Series(marked, flags.index, dtype=object)
