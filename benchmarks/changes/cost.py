"""What a profile costs, from stores of cost.yaml: ``python -m benchmarks.changes.cost STORE ...``."""

import sys

import pandas as pd

import lmsweep

PARTS = ["setup_time", "compile_time", "warmup_time", "measured_time", "profiled_time"]


def trials(store: str) -> pd.DataFrame:
    """Return each trial's seconds: `whole`, until the start of the next one with the same `compile`, and its parts,
    with `timing` and `profile` apart."""
    rows = lmsweep.load(store, pooled=False)
    about = rows.groupby("attempt_id").agg(
        started_at=("started_at", "min"),
        compile=("compile", "first"),
        context_length=("context_length", "first"),
        profiled=("workload", lambda names: "profile" in set(names)),
    )
    about = about.sort_values("started_at")
    about["whole"] = -about.groupby("compile")["started_at"].diff(-1).dt.total_seconds()
    times = rows[(rows["phase"] == "trial") & rows["metric"].isin(PARTS)]
    parts = times.pivot_table(index="attempt_id", columns=["workload", "metric"], values="median", aggfunc="sum")
    parts.columns = [" ".join(names).removesuffix("_time") for names in parts.columns]
    return about.join(parts).drop(columns="started_at")


def main() -> None:
    each = pd.concat([trials(store) for store in sys.argv[1:]])
    found = each.groupby(["compile", "context_length", "profiled"]).median()
    print(found.T.to_string(float_format="{:.3f}".format))
    apart = found["whole"].unstack("profiled")
    print((apart[True] / apart[False] - 1).map("{:+.1%}".format).rename("a profile costs").to_string())


if __name__ == "__main__":
    main()
