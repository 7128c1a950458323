"""Scaling of times with context length and parameters, and the largest sizes that fit in memory."""

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import size_terms
from lmsweep.analysis.tables.pivot import varying_keys
from lmsweep.trials.analytic.formulas import parameter_count
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.model_sizes import DIMENSIONS
from lmsweep.trials.statistics.variation import reach

VARIED_ALONG = {"context_length": ["context_length"], "parameters": ["model", *DIMENSIONS]}
"""What a series varies -> the keys that vary within it."""


def scaling(times: pd.DataFrame) -> pd.DataFrame:
    """Return the exponents of time ~ along^exponent for each series of at least three points that differ only in along.

    times: rows of `lmsweep.load` of one value. Columns: the keys that distinguish the series; `along`, a key of
    VARIED_ALONG; its `least` and `most` value and the number of `points`; `exponent` with its 95 % interval, by least
    squares on logarithms; `flops_exponent`, of the FLOPs of matrix products over the same points.
    """
    ok = times[(times["status"] == Status.OK) & (times["median"] > 0)]
    ok = ok.assign(parameters=parameter_count(**size_terms(ok)))  # NaN without a whole model
    lines = []
    distinguishing = varying_keys(ok, ["model", "context_length"], [])  # these two and all that varies
    for along, varied in VARIED_ALONG.items():
        keys = [name for name in distinguishing if name not in varied]
        for key, series in ok.dropna(subset=[along]).groupby(keys, dropna=False, sort=False):
            if series[along].nunique() < 3:
                continue  # two points leave no error
            x, y = (np.log(series[name].to_numpy(dtype=np.float64)) for name in (along, "median"))
            exponent, half = _slope(x, y)
            work = series["flops"].to_numpy(dtype=np.float64)
            lines.append(
                dict(zip(keys, key, strict=True))
                | {
                    "along": along,
                    "least": series[along].min(),
                    "most": series[along].max(),
                    "points": len(series),
                    "exponent": exponent,
                    "exponent_low": exponent - half,
                    "exponent_high": exponent + half,
                    "flops_exponent": _slope(x, np.log(work))[0] if np.isfinite(work).all() else np.nan,
                }
            )
    return pd.DataFrame(lines)


def frontier(results: pd.DataFrame) -> pd.DataFrame:
    """Return the largest size that fitted in memory and the smallest that did not, for each series of one workload.

    A series differs in context_length or batch_size only. Columns: the keys that distinguish the series; `along`;
    `largest_ok`; `smallest_oom` (status oom or predicted_oom). Series with a single size that fitted are left out.
    """
    known = results[results["status"].isin([Status.OK, Status.OOM, Status.PREDICTED_OOM])]
    trials = known.assign(fits=known["status"] == Status.OK).drop_duplicates(["measurement_id", "environment_id"])
    found = []
    for along in ("context_length", "batch_size"):
        keys = [name for name in varying_keys(trials, ["model", "context_length", "batch_size"], []) if name != along]
        sizes = trials[[*keys, "fits"]].assign(
            size=trials[along],
            largest_ok=trials[along].where(trials["fits"]),
            smallest_oom=trials[along].mask(trials["fits"]),
        )
        series = sizes.groupby(keys, dropna=False, sort=False)
        ends = series.agg({"largest_ok": "max", "smallest_oom": "min"})
        says_a_limit = (series["size"].nunique() >= 2) | ~series["fits"].all()
        ends.insert(0, "along", along)
        found.append(ends[says_a_limit].reset_index())
    # Without any series, an empty frame that has the columns.
    frame = pd.concat([one for one in found if len(one)] or found[:1], ignore_index=True)
    numbers = [name for name in ("largest_ok", "smallest_oom") if name in frame]
    return frame.astype(dict.fromkeys(numbers, "Int64"))


def _slope(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope of the least-squares line through the points, and the half width of its 95 % interval."""
    (slope, _), covariance = np.polyfit(x, y, 1, cov=True)
    degrees_of_freedom = np.array(len(x) - 2)
    return float(slope), float(reach(degrees_of_freedom)) * float(np.sqrt(covariance[0, 0]))
