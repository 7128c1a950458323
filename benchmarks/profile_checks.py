"""Holds stored profiles against what they must reach; exits with 1 where one does not.

lmsweep run benchmarks/profile.yaml --store STORE && python benchmarks/profile_checks.py STORE
"""

import sys

import pandas as pd

from lmsweep.analysis import load
from lmsweep.trials.profiling.attribution import UNATTRIBUTED

MOST_UNATTRIBUTED = 0.01
"""Of the time of all kernels."""
MOST_BESIDE_BUSY = 0.03
"""How far the kernels' time of a forward may be from the GPU-busy time of one that the profiler looked at alone."""
MOST_SECONDS = 30.0
"""A profile, from the request for it to its last row."""

CASE = ["model", "mode", "precision", "compile", "attention", "checkpointing"]


def main() -> None:
    frame = load(sys.argv[1])
    failed = frame[frame["status"] != "ok"]
    for row in failed.itertuples():
        print(f"{row.workload} of {[getattr(row, name) for name in CASE]} ended {row.status}: {row.error}")
    wrong = len(failed)
    for case, rows in frame[frame["status"] == "ok"].groupby(CASE, sort=False):
        profile = rows[rows["workload"] == "profile"]
        if profile.empty:
            continue
        unknown = median(profile, UNATTRIBUTED, "kernel_share")
        kernels, busy = median(profile, "step", "kernel_time"), median(rows, "step", "device_time")
        seconds = profile[profile["phase"] == "trial"]["median"].sum()
        megabytes = median(profile, "step", "trace") / 1e6
        beside = kernels / busy - 1
        held = {
            f"unattributed {unknown:.4%}": unknown <= MOST_UNATTRIBUTED,
            f"profile took {seconds:.1f} s": seconds <= MOST_SECONDS,
            f"trace {megabytes:.1f} MB": True,
        }
        if busy == busy:  # where it was measured
            words = f"kernels {kernels * 1e3:.3f} ms, busy {busy * 1e3:.3f} ms ({beside:+.2%})"
            held[words] = case[1] != "forward" or abs(beside) <= MOST_BESIDE_BUSY
        wrong += sum(not holds for holds in held.values())
        print(" ".join(case), *(f"{'' if holds else 'NOT '}{words}" for words, holds in held.items()), sep="; ")
    print(f"{wrong} of these do not hold" if wrong else "all hold")
    sys.exit(1 if wrong else 0)


def median(rows: pd.DataFrame, phase: str, metric: str) -> float:
    """The median of one value; NaN where there is none."""
    found = rows[(rows["phase"] == phase) & (rows["metric"] == metric)]["median"]
    return float(found.iloc[0]) if len(found) else float("nan")


if __name__ == "__main__":
    main()
