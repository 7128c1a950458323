"""The numbers of five published reports whose authors measured these models by hand, and the caveats of each number."""

from importlib.resources import files

import pandas as pd

CAVEATS: dict[str, str] = {
    "suspected_tf32": "labelled float32, but some of this report's times on this device imply a rate above the "
    "datasheet's float32 peak: the matrix products probably ran in TF32",
    "backward_by_subtraction": "not measured, but computed as forward and backward minus forward; the standard "
    "deviation is the root of the sum of both squares",
    "unit_unknown": "the document gives no unit; if `unit` is null, none could be inferred and the value is as printed",
    "forward_keeps_graph": "forward alone, with the autograd graphs of earlier iterations still in memory",
    "not_synchronized": "probably timed without synchronizing, so that part of forward's time is counted in backward",
    "each_or_total_unknown": "the document does not state whether this is one iteration or the sum of several",
    "includes_optimizer": "labelled forward and backward, but probably includes the optimizer",
    "wide_spread": "the standard deviation is at least half of the mean: one slow iteration among a few",
    "compiled_while_timed": "torch.compile compiled during a timed iteration",
    "host_bound": "twice the context length takes the same time within 5 %: the host was the bottleneck",
    "fell_back_to_eager": "labelled compiled, but memory and time are those of the eager row",
    "zero_for_unknown": "printed as 0 although nothing was measured",
    "axes_swapped": "d_model and context_length are as printed, but probably interchanged",
    "repeated": "repeats a number printed elsewhere in the document; do not count it twice",
    "derived": "computed from other numbers of the document",
}
"""Boolean columns of `published`, and what true means."""


def published() -> pd.DataFrame:
    """One row for each number of the reports, in SI units; columns as in SOURCES.md. Null: not stated.

    A value is null unless status is ok, and for the metric dtype, whose answer is the column dtype.
    """
    with files("lmsweep.analysis.reference").joinpath("published.parquet").open("rb") as file:
        return pd.read_parquet(file)
