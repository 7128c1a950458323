"""Cost of a million tokens: in dollars if a price is given, in joules if energy was measured."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lmsweep.trials.analytic.prices import Price, hourly_dollars
from lmsweep.trials.results.outcome import Status

MILLION = 1e6
HOUR = 3600.0


def cost(frame: pd.DataFrame, prices: Sequence[Price] = ()) -> pd.DataFrame:
    """Return the successful steps of the workload `timing` with their cost per million tokens.

    Added columns: `tokens_per_second` and `dollars`, each with `_low` and `_high`; `device_dollars`, for the time in
    which the device was busy; `joules`, of the workload `energy` on the same trial, mode and environment. NaN if
    unknown. Raises RequestError for a price of a device that the frame does not contain, and for two prices of one
    device.
    """
    ok = frame["status"] == Status.OK
    step = frame[ok & (frame["workload"] == "timing") & (frame["phase"] == "step") & (frame["metric"] == "time")]
    hourly = _hourly(step, prices)
    tokens = step["tokens_per_second"].to_numpy()
    found = {}
    for end, seconds in (("", "median"), ("_low", "low"), ("_high", "high")):
        per_token = step[seconds].to_numpy() / (tokens * step["median"].to_numpy())
        found[f"dollars{end}"] = hourly / HOUR * per_token * MILLION
        other = {"": "", "_low": "_high", "_high": "_low"}[end]
        found[f"tokens_per_second{other}"] = 1 / per_token
    same = ["measurement_id", "environment_id"]
    busy = frame[ok & (frame["workload"] == "timing") & (frame["phase"] == "step") & (frame["metric"] == "device_time")]
    busy_seconds = busy.drop_duplicates(same, keep="last").set_index(same)["median"]
    share = busy_seconds.reindex(pd.MultiIndex.from_frame(step[same])).to_numpy() / step["median"].to_numpy()
    found["device_dollars"] = found["dollars"] * share
    energy = frame[ok & (frame["workload"] == "energy") & (frame["metric"] == "energy")]
    of_trial = ["trial_id", "environment_id", "mode"]
    joules = energy.drop_duplicates(of_trial, keep="last").set_index(of_trial)["energy_per_token"]
    found["joules"] = MILLION * joules.reindex(pd.MultiIndex.from_frame(step[of_trial])).to_numpy()
    return step.drop(columns="tokens_per_second").assign(**found)


def _hourly(step: pd.DataFrame, prices: Sequence[Price]) -> np.ndarray:
    types = step["accelerator_type"].astype(object).where(step["accelerator_type"].notna(), None)
    devices = list(zip(step["device_name"], types, strict=True))
    known = hourly_dollars(prices, devices)
    return np.array([known.get(device, np.nan) for device in devices], dtype=np.float64)
