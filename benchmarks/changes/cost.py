"""What a profile costs, from stores of cost.yaml: ``python -m benchmarks.changes.cost STORE ...``."""

import sys

import pandas as pd

import lmsweep

PARTS = ["setup_time", "compile_time", "warmup_time", "measured_time", "profiled_time"]


def trials(store: str) -> pd.DataFrame:
    """Return each trial's seconds, other than the first compiled one's, which may compile: of `timing`, of `profile`,
    and `wall`, until the next trial starts, if that has the same `compile`."""
    rows = lmsweep.load(store, pooled=False)
    about = rows.groupby("attempt_id").agg(
        started_at=("started_at", "min"),
        compile=("compile", "first"),
        context_length=("context_length", "first"),
        profiled=("workload", lambda names: "profile" in set(names)),
    )
    about = about.sort_values("started_at")
    is_followed = about["compile"] == about["compile"].shift(-1)
    about["wall"] = -about["started_at"].diff(-1).dt.total_seconds().where(is_followed)
    times = rows[(rows["phase"] == "trial") & rows["metric"].isin(PARTS)]
    parts = times.pivot_table(index="attempt_id", columns="workload", values="median", aggfunc="sum")
    is_first = ~about["compile"].duplicated() & (about["compile"] != "none")
    return about.join(parts)[~is_first].drop(columns="started_at")


def main() -> None:
    each = pd.concat([trials(store) for store in sys.argv[1:]])
    each["share"] = each["profile"] / each["timing"]
    found = each.groupby(["compile", "context_length", "profiled"]).agg(["count", "min", "median", "max"])
    print(found.T.to_string(float_format="{:.3f}".format))
    wall = found["wall", "median"].unstack("profiled")
    print((wall[True] / wall[False] - 1).map("{:+.1%}".format).rename("a profile costs, by wall").to_string())


if __name__ == "__main__":
    main()
