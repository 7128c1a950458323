"""Check stored profiles against limits; exits with 1 if one exceeds them.

lmsweep run benchmarks/profile.yaml --store STORE && python benchmarks/profile_checks.py STORE
"""

import sys

import pandas as pd

from lmsweep.analysis import load
from lmsweep.trials.profiling.attribution import UNATTRIBUTED

MOST_UNATTRIBUTED = 0.01
"""Share of the time of all kernels."""
MOST_BESIDE_BUSY = 0.03
"""Largest relative difference between the kernel time of a forward and its GPU-busy time without operator events."""
MOST_SECONDS = 30.0
"""Duration of a profile, from its request to its last row."""

CASE = ["model", "mode", "precision", "compile", "attention", "checkpointing"]


def main() -> None:
    frame = load(sys.argv[1])
    failed = frame[frame["status"] != "ok"]
    for row in failed.itertuples():
        print(f"{row.workload} of {[getattr(row, name) for name in CASE]}: {row.status}: {row.error}")
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
        if busy == busy:  # not NaN: it was measured
            words = f"kernels {kernels * 1e3:.3f} ms, busy {busy * 1e3:.3f} ms ({beside:+.2%})"
            held[words] = case[1] != "forward" or abs(beside) <= MOST_BESIDE_BUSY
        wrong += sum(not holds for holds in held.values())
        print(" ".join(case), *(f"{'' if holds else 'NOT '}{words}" for words, holds in held.items()), sep="; ")
    print(f"{wrong} checks failed" if wrong else "all checks passed")
    sys.exit(1 if wrong else 0)


def median(rows: pd.DataFrame, phase: str, metric: str) -> float:
    """The median of one value; NaN if there is none."""
    found = rows[(rows["phase"] == phase) & (rows["metric"] == metric)]["median"]
    return float(found.iloc[0]) if len(found) else float("nan")


if __name__ == "__main__":
    main()
