"""How a table says by which convention its rates are counted, and marks those above the device's peak."""

import pandas as pd

from lmsweep.trials.analytic.flop_conventions import MEANING
from lmsweep.trials.results.outcome import Flag

ABOVE_PEAK = "above_peak"
"""Marks a rate above the datasheet's peak whose time is possible."""

ADVICE = {
    ABOVE_PEAK: "The rate is above the peak of the device's datasheet, but the time is possible: this convention "
    "counts products that the kernel does not compute. The model convention counts the masked half of causal "
    "attention; the hardware convention counts scores computed again, which only fused kernels do. Choose the "
    "other with --flops."
}
"""Marks that no row stores, and what they mean."""


def how_counted(rows: pd.DataFrame) -> str:
    """Return the convention of rows from `lmsweep.analysis.load`, as a title says it."""
    used = set(rows["flops_convention"])
    if len(used) == 1:
        return MEANING[used.pop()]
    return f"{MEANING['hardware']}; models of your own by the model convention"


def with_above_peak(flags: pd.Series, mfu: pd.Series) -> pd.Series:
    """Return the tuples of flags, with ABOVE_PEAK where the MFU exceeds 1 and `physics_violation` does not say so."""
    marked = [
        (*words, ABOVE_PEAK) if share > 1 and Flag.PHYSICS_VIOLATION not in words else words
        for words, share in zip(flags, mfu, strict=True)
    ]
    return pd.Series(marked, flags.index, dtype=object)
