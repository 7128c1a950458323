"""Scaling of times with context length and parameters, and the largest sizes that fit in memory."""

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import size_terms
from lmsweep.analysis.tables.pivot import varying_keys
from lmsweep.trials.analytic.formulas import parameter_count
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.model_sizes import DIMENSIONS
from lmsweep.trials.statistics.variation import reach

ALONG = ("context_length", "parameters")

_DIMENSIONS = ["model", *DIMENSIONS]


def scaling(times: pd.DataFrame) -> pd.DataFrame:
    """Return the exponents of time ~ along^exponent for each series of at least three points that differ only in along.

    times: rows of `lmsweep.load` of one value. Columns: the keys that distinguish the series; `along`, one of ALONG;
    its `least` and `most` value and the number of `points`; `exponent` with its 95 % interval, by least squares on
    logarithms; `flops_exponent`, of the FLOPs of matrix products over the same points.
    """
    ok = times[(times["status"] == Status.OK) & (times["median"] > 0)]
    ok = ok.assign(parameters=parameter_count(**size_terms(ok)))  # NaN without a whole model
    lines = []
    for along in ALONG:
        varied = ["context_length"] if along == "context_length" else _DIMENSIONS
        keys = [name for name in varying_keys(ok, ["model", "context_length"], []) if name not in varied]
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
    fits = results["status"] == Status.OK
    fails = results["status"].isin([Status.OOM, Status.PREDICTED_OOM])
    trials = results[fits | fails].assign(fits=fits[fits | fails]).drop_duplicates(["measurement_id", "environment_id"])
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
        several = (series["size"].nunique() >= 2) | ~series["fits"].all()
        ends.insert(0, "along", along)
        found.append(ends[several].reset_index())
    # Without any series, an empty frame that has the columns.
    frame = pd.concat([one for one in found if len(one)] or found[:1], ignore_index=True)
    numbers = [name for name in ("largest_ok", "smallest_oom") if name in frame]
    return frame.astype(dict.fromkeys(numbers, "Int64"))


def _slope(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope of the least-squares line through the points, and the half width of its 95 % interval."""
    (slope, _), covariance = np.polyfit(x, y, 1, cov=True)
    return float(slope), float(reach(np.array(len(x) - 2))) * float(np.sqrt(covariance[0, 0]))
