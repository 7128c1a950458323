"""What training costs: dollars and joules per million tokens, and the steps until compiling has saved its time."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS
from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.trials.analytic.prices import MILLION, Price, dollars_per_million, hourly_dollars
from lmsweep.trials.results.outcome import Status


def cost(frame: pd.DataFrame, prices: Sequence[Price] = ()) -> pd.DataFrame:
    """Return the successful steps of the workload `timing` with their cost per million tokens.

    frame: rows of `lmsweep.load`.
    Added columns: `tokens_per_second` and `dollars`, each with `_low` and `_high`, by wall time; `device_dollars`, by
    device time, as if the device never waited; `joules`, of the workload `energy` on the same trial, mode and
    environment. NaN if unknown. Raises RequestError for a price of a device that the frame does not contain, and for
    two prices of one device.
    """
    ok = frame["status"] == Status.OK
    step = frame[ok & (frame["workload"] == "timing") & (frame["phase"] == "step") & (frame["metric"] == "time")]
    hourly = _hourly(step, prices)
    tokens_of_step = step["tokens_per_second"].to_numpy() * step["median"].to_numpy()
    added = {}
    # The lowest time is the highest speed.
    for time, end, end_of_speed in (("median", "", ""), ("low", "_low", "_high"), ("high", "_high", "_low")):
        seconds_per_token = step[time].to_numpy() / tokens_of_step
        added[f"dollars{end}"] = dollars_per_million(seconds_per_token, np.ones(len(step)), hourly)
        added[f"tokens_per_second{end_of_speed}"] = 1 / seconds_per_token
    busy = frame[ok & (frame["workload"] == "timing") & (frame["phase"] == "step") & (frame["metric"] == "device_time")]
    busy_seconds = busy.drop_duplicates(RESULT, keep="last").set_index(RESULT)["median"]
    busy_share = _of_each(step, busy_seconds) / step["median"].to_numpy()
    added["device_dollars"] = added["dollars"] * busy_share
    energy = frame[ok & (frame["workload"] == "energy") & (frame["metric"] == "energy")]
    of_trial = ["trial_id", "environment_id", "mode"]
    joules = energy.drop_duplicates(of_trial, keep="last").set_index(of_trial)["energy_per_token"]
    added["joules"] = MILLION * _of_each(step, joules)
    return step.drop(columns="tokens_per_second").assign(**added)


def _of_each(step: pd.DataFrame, values: pd.Series) -> np.ndarray:
    """Return the value of each row, by the columns that the index of `values` names; NaN if there is none."""
    return values.reindex(pd.MultiIndex.from_frame(step[list(values.index.names)])).to_numpy()


def _hourly(step: pd.DataFrame, prices: Sequence[Price]) -> np.ndarray:
    types = step["accelerator_type"].astype(object).where(step["accelerator_type"].notna(), None)
    devices = list(zip(step["device_name"], types, strict=True))
    known = hourly_dollars(prices, devices)
    return np.array([known.get(device, np.nan) for device in devices], dtype=np.float64)


_OF_COMPILATION = ("compile", "compile_mode", "dynamic_shapes")
_SAME = [name for name in DISTINGUISHING_COLUMNS if name not in _OF_COMPILATION]
"""Columns in which a compiled step and its eager counterpart agree."""


def break_even(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the compiled steps of the workload `timing` that have an eager counterpart, one row each.

    frame: rows of `lmsweep.load`. Added columns, in seconds: `eager_step` and `compiled_step`, medians; `compile_time`,
    the sum over phases of the longest first call in any process, less one step; `saved` of each step. `steps` is
    compile_time / saved, NaN if no time is saved. `compile_flags`: flags of the first phase.
    """
    timed = frame[(frame["status"] == Status.OK) & (frame["workload"] == "timing")]
    steps = timed[(timed["phase"] == "step") & (timed["metric"] == "time")]
    eager = steps[steps["compile"] == "none"].drop_duplicates(_SAME, keep="last")
    eager = eager[[*_SAME, "median"]].rename(columns={"median": "eager_step"})
    first = timed[timed["metric"] == "compile_time"]
    longest = first.groupby(RESULT).agg(compile_time=("max", "sum"), compile_flags=("flags", "first")).reset_index()
    compiled = steps[steps["compile"] != "none"].merge(eager, on=_SAME).merge(longest, on=RESULT)
    saved = compiled["eager_step"] - compiled["median"]
    compiling = (compiled["compile_time"] - compiled["median"]).clip(lower=0)
    return compiled.assign(
        compiled_step=compiled["median"],
        compile_time=compiling,
        saved=saved,
        steps=np.where(saved > 0, np.ceil(compiling / saved), np.nan),
    )
