"""The tables of attention alone."""

import pandas as pd

from lmsweep.analysis.data.selection import ERRORS_OF_OWN
from lmsweep.analysis.presets import Preset
from lmsweep.analysis.presets.layout import Pivot


def _of_compiled(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the implementations that were compiled; all if none was."""
    compiled = frame.loc[frame["compile"] != "none", "attention"].unique()
    return frame[frame["attention"].isin(compiled)] if len(compiled) else frame


_MEMORY = ("before_backward.allocated", "forward.peak_allocated", "backward.peak_allocated")
_TIMES = ("forward.time", "backward.time")

attention_grid = Pivot("attention", (*_TIMES, *_MEMORY, *ERRORS_OF_OWN), "Attention alone")
attention_compiled = Pivot(
    "attention",
    _TIMES,
    "Attention alone, eager vs compiled",
    parts=True,
    cols=("compile",),
    against=("none",),
    of=_of_compiled,
)

GROUPS = {
    "How fast is attention alone?": {
        "attention": Preset(attention_grid, "How much time and memory does attention alone need?"),
        "attention-compile": Preset(attention_compiled, "How much faster is attention alone when compiled?"),
    },
}
