"""The numbers of five published reports of people who measured these models by hand, and what is wrong with them."""

from importlib.resources import files

import pandas as pd

CAVEATS: dict[str, str] = {
    "suspected_tf32": "called float32, but some of this report's times on this device would need more than the float32 "
    "peak of its datasheet: the products were probably TF32",
    "backward_by_subtraction": "not measured: forward and backward, less forward; the standard deviation is the root "
    "of the sum of both squares",
    "unit_unknown": "the document gives no unit; where `unit` is null none could be found and the value is as printed",
    "forward_keeps_graph": "forward alone, with the autograd graphs of earlier iterations still in memory",
    "not_synchronized": "probably timed without waiting for the device, so that forward's time is partly in backward's",
    "each_or_total_unknown": "whether one iteration or the sum of several is not stated",
    "includes_optimizer": "called forward and backward, but the optimizer is probably in it",
    "wide_spread": "the standard deviation is at least half of the mean: one slow iteration among a few",
    "compiled_while_timed": "torch.compile was at work in a timed iteration",
    "host_bound": "twice the context takes the same time within 5 %: the host was the limit",
    "fell_back_to_eager": "called compiled, but memory and time are those of the eager row",
    "zero_for_unknown": "printed as 0 where nothing was measured",
    "axes_swapped": "d_model and context_length stand as printed and are probably each other's",
    "repeated": "printed a second time; do not count it twice",
    "derived": "computed from other numbers of the document",
}
"""Columns of `published` that hold true or false: what true means of a row."""


def published() -> pd.DataFrame:
    """One row for each number of the reports; columns as in SOURCES.md, values in SI units.

    source, table: which report, and which table of it. A field that the document does not state is null. value is null
    where status is not ok, and for metric dtype, whose answer is the column dtype. The caveats are those of CAVEATS.
    """
    with files("lmsweep.analysis.reference").joinpath("published.parquet").open("rb") as file:
        return pd.read_parquet(file)
