"""What a million tokens cost: in dollars, where a price is known, and in joules, where energy was measured."""

import re

import numpy as np
import pandas as pd

from trials.spec import RequestError, Status

MILLION = 1e6
HOUR = 3600.0


def parse_prices(texts: list[str]) -> dict[str, float]:
    """`H200=3.5` as {"H200": 3.5}, dollars per hour of one device. Raises RequestError for what is no price."""
    prices = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            prices[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name.strip() or not prices[name.strip()] >= 0:
            raise RequestError(f"--price {text}: write DEVICE=DOLLARS_PER_HOUR, such as H200=3.5")
    return prices


def cost(frame: pd.DataFrame, prices: dict[str, float] | None = None) -> pd.DataFrame:
    """The steps of the workload `timing` of `analysis.load` that ended ok, with what a million tokens cost.

    prices: dollars per hour by a word of the device's name or its accelerator type. Added columns:
    `tokens_per_second`; `dollars`, NaN without a price; `joules`, of the workload `energy` on the same trial, mode and
    environment, NaN where it was not measured; each with `_low` and `_high` where the time's interval is known.

    Raises RequestError for a price of a device that the frame does not have, or two for one.
    """
    ok = frame["status"] == Status.OK
    step = frame[ok & (frame["workload"] == "timing") & (frame["phase"] == "step") & (frame["metric"] == "time")]
    hourly = _prices_of(step, prices or {})
    tokens = step["tokens_per_second"].to_numpy()
    found = {}
    for end, seconds in (("", "median"), ("_low", "low"), ("_high", "high")):
        per_token = step[seconds].to_numpy() / (tokens * step["median"].to_numpy())
        found[f"dollars{end}"] = hourly / HOUR * per_token * MILLION
        other = {"": "", "_low": "_high", "_high": "_low"}[end]
        found[f"tokens_per_second{other}"] = 1 / per_token
    energy = frame[ok & (frame["workload"] == "energy") & (frame["metric"] == "energy")]
    of_trial = ["trial_id", "environment_id", "mode"]
    joules = energy.drop_duplicates(of_trial, keep="last").set_index(of_trial)["energy_per_token"]
    found["joules"] = MILLION * joules.reindex(pd.MultiIndex.from_frame(step[of_trial])).to_numpy()
    return step.drop(columns="tokens_per_second").assign(**found)


def _prices_of(step: pd.DataFrame, prices: dict[str, float]) -> np.ndarray:
    hourly = np.full(len(step), np.nan)
    named = step["device_name"].astype(str) + " " + step["accelerator_type"].astype(object).fillna("").astype(str)
    for word, price in prices.items():
        meant = named.str.contains(rf"(?<!\w){re.escape(word)}(?!\w)", case=False, regex=True).to_numpy()
        if not meant.any():
            known = ", ".join(step["device_name"].unique())
            raise RequestError(f"--price {word}: no result is of such a device; there are: {known}")
        if np.isfinite(hourly[meant]).any():
            raise RequestError(f"--price {word}: another price names the same device")
        hourly[meant] = price
    return hourly
