"""Reference results that ship: measured stores, and the numbers that reports and public benchmarks published.

SOURCES.md says how each was made.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path

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
"""Flags of the numbers of the reports, and columns of `published`: what they mean."""


INFERENCE = "inferred"

ITERATIONS = 100
"""How many iterations a time without a unit is read to cover."""


def published() -> pd.DataFrame:
    """One row for each number of the reports, in SI units; columns as in SOURCES.md. Null: not stated.

    A value is null unless status is ok, and for the metric dtype, whose answer is the column dtype. The index is the
    place of a number among all.
    """
    return _published().copy()


@cache  # the course's tables ask for it many times
def _published() -> pd.DataFrame:
    stored = pd.read_parquet(f"{shipped()[PUBLISHED]}/measurements", dtype_backend="numpy_nullable")
    caveats = {name: [name in words for words in stored["flags"]] for name in CAVEATS}
    # A time without a unit is stored for one iteration, and printed for all.
    is_total = pd.Series(caveats["unit_unknown"], stored.index) & (stored["workload"] == "attention")
    values = stored["samples"].str[0]
    named, printed = stored["sweep"].str.split(" ", n=1), stored["printed"].str.partition(".")
    facts = stored.assign(
        source=named.str[0],
        table=named.str[1],
        hardware=stored["device_name"].mask(stored["device_name"] == "not stated"),
        phase=printed[0].replace("", None),
        metric=printed[2],
        value=values.where(~is_total, (values * ITERATIONS).round(6)),
        unit=stored["unit"].mask(is_total),
        status=stored["status"].replace("error", "failed"),
        dtype=None,
        **caveats,
    )
    inferred = facts["inferred"].str.split(",")
    for name in ("hardware", "device", "model", "d_model", "context_length", "batch_size", "precision"):
        facts[name] = facts[name].mask(inferred.map(lambda names, name=name: name in names))
    rest = in_no_store().set_index("number")
    everything = pd.concat([rest, facts.set_index("number")[rest.columns].astype(rest.dtypes)])
    return everything.sort_index().reset_index(drop=True)


def in_no_store() -> pd.DataFrame:
    """What the reports state that is no result of a store: sums, dtypes, parameter counts, kernels, what other numbers
    of a report repeat or follow from, and cells without a number; `number` is the place among all."""
    with files(__name__).joinpath("published.parquet").open("rb") as file:
        return pd.read_parquet(file)


CONDITIONS: dict[str, str] = {
    INFERENCE: "a condition does not stand beside the number, but follows from elsewhere in its document",
    "from_rate": "computed from a published rate; for attention by the FLOPs that the source counts (causal attention "
    "as half, backward as 2.5 x forward), for a whole step by lmsweep's model convention",
    "read_off_figure": "read off the labels of a figure, in whole TFLOP/s",
    "shape_inferred": "the batch size or the model's dimensions do not stand beside the number: they are those of the "
    "benchmark that the source names, or of the paper",
    "layer_alone": "one layer alone; lmsweep's has a norm and a loss behind it, and an embedding and a head of the "
    "vocabulary around it, which should be small",
    "other_kernel": "measured with kernels that lmsweep does not have, or another way to scale float8",
}
"""Flags that question no published number, and what they mean."""


PUBLISHED = "published"
PUBLISHED_STORES = (PUBLISHED, "public-benchmarks")
"""The stores of numbers that others measured: five reports, and public benchmarks."""


def stores() -> dict[str, str]:
    """Return the measured stores that ship: name -> folder."""
    return {name: folder for name, folder in shipped().items() if name not in PUBLISHED_STORES}


def shipped() -> dict[str, str]:
    """Return `stores`, and those of published numbers."""
    folder = Path(str(files(__name__)))
    return {path.parent.name: str(path.parent) for path in sorted(folder.glob("*/measurements"))}
