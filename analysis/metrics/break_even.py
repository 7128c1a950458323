"""How many steps it takes until the time that the compiler took has been saved."""

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS
from lmsweep.trials.results.outcome import Status

_OF_COMPILATION = ("compile", "compile_mode", "dynamic_shapes")
_SAME = [name for name in DISTINGUISHING_COLUMNS if name not in _OF_COMPILATION]
_TRIAL = ["measurement_id", "environment_id"]


def break_even(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the compiled steps of the workload `timing` that have an eager counterpart, one row each.

    Added columns, in seconds: `eager_step` and `compiled_step`, medians; `compile_time`, the first iteration less one
    step, in the process where it took longest; `saved` of each step. `steps` is compile_time / saved, NaN if no time is
    saved.
    """
    timed = frame[(frame["status"] == Status.OK) & (frame["workload"] == "timing")]
    steps = timed[(timed["phase"] == "step") & (timed["metric"] == "time")]
    eager = steps[steps["compile"] == "none"].drop_duplicates(_SAME, keep="last")
    eager = eager[[*_SAME, "median"]].rename(columns={"median": "eager_step"})
    first = timed[timed["metric"] == "compile_time"]
    longest = pd.DataFrame(
        {
            "compile_time": first["max"].groupby([first[name] for name in _TRIAL]).sum(),
            "compile_flags": first["flags"].groupby([first[name] for name in _TRIAL]).first(),
        }
    ).reset_index()
    found = steps[steps["compile"] != "none"].merge(eager, on=_SAME).merge(longest, on=_TRIAL)
    saved = found["eager_step"] - found["median"]
    compiling = (found["compile_time"] - found["median"]).clip(lower=0)
    return found.assign(
        compiled_step=found["median"],
        compile_time=compiling,
        saved=saved,
        steps=np.where(saved > 0, np.ceil(compiling / saved), np.nan),
    )
