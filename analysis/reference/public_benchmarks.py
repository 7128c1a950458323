"""Numbers of public benchmarks (FlashAttention and others) of configurations that lmsweep can measure."""

from importlib.resources import files

import pandas as pd

CONDITIONS: dict[str, str] = {
    "from_rate": "computed from a published rate; for attention by the FLOPs that the source counts (causal attention "
    "as half, backward as 2.5 x forward), for a whole step by lmsweep's model convention",
    "read_off_figure": "read off the labels of a figure, in whole TFLOP/s",
    "shape_inferred": "the batch size or the model's dimensions do not stand beside the number: they are those of the "
    "benchmark that the source names, or of the paper",
    "layer_alone": "one layer alone; lmsweep's has a norm and a loss behind it, and an embedding and a head of the "
    "vocabulary around it, which should be small",
    "other_kernel": "measured with kernels that lmsweep does not have, or another way to scale float8",
}
"""Boolean columns of `public_benchmarks`, and what true means."""


def public_benchmarks() -> pd.DataFrame:
    """One row for each number, in seconds; columns as in SOURCES.md. Null: the source does not state it."""
    with files("lmsweep.analysis.reference").joinpath("public-benchmarks.parquet").open("rb") as file:
        return pd.read_parquet(file)
