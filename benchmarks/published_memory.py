"""Compare the published memory peaks of the 2.7b model with measured ones.

python -m benchmarks.published_memory STORE

STORE holds the trials of `lmsweep run benchmarks/published-memory.yaml`, or of the sweep cs336-2025. Prints a line for
each of the twelve cells of the two published tables; two of them are blank, because they did not fit the card. Exits
with 1 if a cell differs by more than 0.3 GB (full steps, published in whole GB: 0.5 GB) or is not in the store.
"""

import sys

import pandas as pd
from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.analysis.reference import published

MOST = {"train_forward": 0.3e9, "train_step": 0.5e9}
"""Bytes by which a peak may differ."""

PRECISIONS = {"fp32": "fp32", "mixed": "bf16"}
MODES = {"forward": "train_forward", "step": "train_step"}
"""Words of the published tables -> our words."""
KEYS = ["context_length", "precision", "mode"]


def published_peaks() -> pd.DataFrame:
    """One row for each cell, with the columns KEYS and `published` (bytes)."""
    rows = published()
    rows = rows[rows["table"].isin(["memory_full", "memory_mixed"])]
    words = {"precision": rows["precision"].map(PRECISIONS), "mode": rows["phase"].map(MODES)}
    return rows.assign(**words, published=rows["value"])[[*KEYS, "published"]]


def measured_peaks(store: str) -> pd.DataFrame:
    """The same cells, with the columns KEYS, `device_name` and `measured` (bytes)."""
    rows = load(store)
    peak = (rows["workload"] == "memory") & (rows["phase"] == "step") & (rows["metric"] == "peak_allocated")
    ours = (rows["model"] == "2.7b") & (rows["batch_size"] == 4) & (rows["attention"] == "naive")
    kept = (rows["mode"] == "train_forward") | (rows["zero_grad"] == "before_backward")
    rows = rows[peak & ours & kept & (rows["compile"] == "none")]
    return rows.assign(measured=rows["max"])[[*KEYS, "device_name", "measured"]]


def main() -> None:
    cells = published_peaks().merge(measured_peaks(sys.argv[1]), how="left", on=KEYS)
    cells = cells.assign(difference=cells["measured"] - cells["published"])
    for name in ("published", "measured", "difference"):
        cells[f"{name} (GB)"] = (cells[name] / 1e9).map("{:.2f}".format).replace("nan", "-")
    print(tabulate(cells[[*KEYS, *(name for name in cells if str(name).endswith("(GB)"))]], "keys", showindex=False))
    missing = int(cells["measured"].isna().sum())
    apart = cells["difference"].abs()
    print(f"\nat most {apart.max() / 1e9:.2f} GB apart; {missing} of {len(cells)} cells not measured")
    sys.exit(missing > 0 or bool((apart > cells["mode"].map(MOST)).any()))


if __name__ == "__main__":
    main()
