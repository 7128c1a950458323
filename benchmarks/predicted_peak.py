"""Holds the memory that was measured against what is predicted for the same trials.

python benchmarks/predicted_peak.py STORE

STORE has trials with the workload memory or attention, for example of `lmsweep run benchmarks/predicted-peak.yaml`. A
line for each trial, and the largest deviations in all. Exits with 1 where a peak deviates by more than 2 %.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd
from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.trial_graph import UnpredictableError
from lmsweep.trials.spec.config import CONFIG_FIELDS, TrialConfig
from lmsweep.trials.spec.workloads import Subject

MOST = 0.02
"""Deviation of a peak that is too much."""

SUBJECTS: dict[str, Subject] = {"memory": "model", "attention": "attention"}
PHASES = ("forward", "backward", "optimizer")
KINDS = ("allocated", "tensors")
"""What CUDA's allocator has handed out; elsewhere, the bytes of all tensors."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Bytes of one trial, predicted and measured, where both are known."""

    config: TrialConfig
    at: str
    """The phase that is predicted to have the peak."""
    peak: tuple[int, int]
    """Of the blocks of CUDA's allocator; elsewhere of all tensors."""
    requested: tuple[int, int] | None
    """What CUDA's allocator was asked for at most."""
    before_backward: tuple[int, int] | None
    """What it had been asked for between forward and backward."""
    reserved: tuple[int, int] | None
    """What it had of the device."""


def compare(rows: pd.DataFrame) -> Compared | str:
    """The rows of one trial that have bytes; or why nothing is predicted."""
    first = rows.iloc[0]
    config = config_of(first)
    try:
        found = predict(config, SUBJECTS[first["workload"]]).on(first["device_name"])
    except UnpredictableError as reason:
        return str(reason)
    held = {(row["phase"], row["metric"]): int(row["median"]) for _, row in rows.iterrows() if row["median"] >= 0}
    kind = next(kind for kind in KINDS if any(metric == f"peak_{kind}" for _, metric in held))
    before = held.get(("before_backward", "requested"), held.get(("before_backward", kind)))
    requested = held.get(("step", "peak_requested"))
    reserved = held.get(("step", "peak_reserved"))
    return Compared(
        config=config,
        at=found.at,
        peak=(found.peak, max(held[phase, f"peak_{kind}"] for phase in PHASES if (phase, f"peak_{kind}") in held)),
        requested=(found.requested, requested) if requested else None,
        before_backward=(found.before_backward, before) if before else None,
        reserved=(found.reserved, reserved) if reserved else None,
    )


def config_of(row: "pd.Series[Any]") -> TrialConfig:
    """The configuration of a stored row."""
    given = {name: row[name] for name in CONFIG_FIELDS if name in row and not pd.isna(row[name])}
    return TrialConfig(**{name: value.item() if hasattr(value, "item") else value for name, value in given.items()})


def deviation(pair: tuple[int, int]) -> float:
    predicted, measured = pair
    return predicted / measured - 1


def shown(pair: tuple[int, int] | None) -> str:
    return f"{deviation(pair):+.3%}" if pair else ""


def worst(pairs: Sequence[tuple[int, int] | None]) -> str:
    """The median and the largest deviation of all, and how many are within MOST."""
    found = [abs(deviation(pair)) for pair in pairs if pair]
    within = f"{sum(one <= MOST for one in found)} of {len(found)} within {MOST:.0%}"
    return f"median {median(found):.3%}, at most {max(found):.3%}; {within}"


def main() -> None:
    frame = load(sys.argv[1])
    measured = frame[frame["workload"].isin(SUBJECTS) & (frame["unit"] == "B") & frame["median"].notna()]
    if measured.empty:
        sys.exit(f"{sys.argv[1]} has no trials with the workload memory or attention that measured bytes")
    found = [compare(rows) for _, rows in measured.groupby("measurement_id", sort=False)]
    compared = [one for one in found if isinstance(one, Compared)]
    varying = [name for name in CONFIG_FIELDS if len({getattr(one.config, name) for one in compared}) > 1]
    lines = [
        [
            *(getattr(one.config, name) for name in varying),
            one.at,
            *(f"{count / 1e9:.4g}" for count in one.peak),
            shown(one.peak),
            shown(one.requested),
            shown(one.before_backward),
            shown(one.reserved),
        ]
        for one in compared
    ]
    headers = [*varying, "peak in", "predicted GB", "measured GB", "peak", "requested", "before backward", "reserved"]
    print(tabulate(lines, headers=headers, disable_numparse=True))
    for reason in dict.fromkeys(one for one in found if isinstance(one, str)):
        print(f"\n{found.count(reason)} not predicted: {reason}")
    print(f"\n{len(compared)} trials, deviation of the prediction from what was measured:")
    eager, compiled = ([one for one in compared if one.config.compiles is answer] for answer in (False, True))
    columns = {
        "peak": [one.peak for one in compared],
        "peak as it was requested": [one.requested for one in compared],
        "before backward, as it was requested": [one.before_backward for one in compared],
        "reserved, eager": [one.reserved for one in eager],
        "reserved, compiled": [one.reserved for one in compiled],
    }
    for title, pairs in columns.items():
        if any(pairs):
            print(f"  {title}: {worst(pairs)}")
    sys.exit(any(abs(deviation(one.peak)) > MOST for one in compared))


if __name__ == "__main__":
    main()
