"""Compare measured memory with the prediction for the same trials.

python benchmarks/predicted_peak.py STORE [--code FOLDER]

STORE has trials of the workload memory, attention or ddp, for example of `lmsweep run benchmarks/predicted-peak.yaml`.
--code is the folder that references in the store lead to, as for `lmsweep run benchmarks/own-models.yaml`.
Prints a line for each trial, and the median and largest deviation. Exits with 1 if a peak deviates by more than 2 %.
"""

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pandas as pd
from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.results.roles import varying_fields
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.workloads import Subject

MOST = 0.02
"""Largest relative deviation of a peak that is accepted."""

SUBJECTS: dict[str, Subject] = {"memory": "model", "attention": "attention", "ddp": "model"}
PHASES = re.compile(r"forward|backward|optimizer|rank\d+")
KINDS = ("allocated", "tensors", "memory")
"""Metrics of memory: blocks of CUDA's allocator or, on other devices, bytes of all tensors; the last of ranks."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """(predicted, measured) bytes of one trial; None where one is unknown."""

    config: TrialConfig
    at: str
    """The phase of the predicted peak."""
    peak: tuple[int, int]
    """Peak of the blocks of CUDA's allocator; on other devices, of all tensors."""
    requested: tuple[int, int] | None
    """Peak of the bytes requested from CUDA's allocator."""
    before_backward: tuple[int, int] | None
    """Bytes requested between forward and backward."""
    reserved: tuple[int, int] | None
    """Peak of the bytes that CUDA's allocator reserved on the device."""
    seconds: float
    """Time that the prediction took."""


@dataclass(frozen=True, kw_only=True)
class NotPredicted:
    """Memory of a trial is not predicted."""

    reason: str


def compare(rows: pd.DataFrame) -> Compared | NotPredicted:
    """Compare one trial. `rows` are its rows in bytes."""
    first = rows.iloc[0]
    config = config_of(first.to_dict())
    began = time.monotonic()
    try:
        prediction = predict(config, SUBJECTS[first["workload"]]).on(first["device_name"])
    except UnpredictableError as reason:
        return NotPredicted(reason=str(reason))
    seconds = time.monotonic() - began
    held = {(row["phase"], row["metric"]): int(row["median"]) for _, row in rows.iterrows() if row["median"] >= 0}
    kind = next(kind for kind in KINDS if any(metric == f"peak_{kind}" for _, metric in held))
    before = held.get(("before_backward", "requested"), held.get(("before_backward", kind)))
    requested = held.get(("step", "peak_requested"))
    reserved = held.get(("step", "peak_reserved"))
    return Compared(
        config=config,
        at=prediction.at,
        peak=(prediction.peak, max(held[key] for key in held if key[1] == f"peak_{kind}" and PHASES.fullmatch(key[0]))),
        requested=(prediction.requested, requested) if requested else None,
        before_backward=(prediction.before_backward, before) if before else None,
        reserved=(prediction.reserved, reserved) if reserved else None,
        seconds=seconds,
    )


def deviation(pair: tuple[int, int]) -> float:
    """Relative deviation of the prediction."""
    predicted, measured = pair
    return predicted / measured - 1


def shown(pair: tuple[int, int] | None) -> str:
    return f"{deviation(pair):+.3%}" if pair else ""


def worst(pairs: Sequence[tuple[int, int] | None]) -> str:
    """The median and the largest deviation, and how many are within MOST."""
    deviations = [abs(deviation(pair)) for pair in pairs if pair]
    within = f"{sum(one <= MOST for one in deviations)} of {len(deviations)} within {MOST:.0%}"
    return f"median {median(deviations):.3%}, at most {max(deviations):.3%}; {within}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("--code", type=Path)
    given = parser.parse_args()
    if given.code:
        use_code(code_folder(given.code))
    frame = load(given.store)
    measured = frame[frame["workload"].isin(SUBJECTS) & (frame["unit"] == "B") & frame["median"].notna()]
    if measured.empty:
        sys.exit(f"{given.store} has no trials of these workloads that measured bytes")
    outcomes = [compare(rows) for _, rows in measured.groupby("measurement_id", sort=False)]
    compared = [one for one in outcomes if isinstance(one, Compared)]
    varying = varying_fields(one.config for one in compared)
    lines = [
        [
            *(getattr(one.config, name) for name in varying),
            one.at,
            *(f"{count / 1e9:.4g}" for count in one.peak),
            shown(one.peak),
            shown(one.requested),
            shown(one.before_backward),
            shown(one.reserved),
            f"{one.seconds:.1f}",
        ]
        for one in compared
    ]
    headers = [
        *varying,
        "peak in",
        "predicted GB",
        "measured GB",
        "peak",
        "requested",
        "before backward",
        "reserved",
        "s",
    ]
    print(tabulate(lines, headers=headers, disable_numparse=True))
    reasons = Counter(one.reason for one in outcomes if isinstance(one, NotPredicted))
    for reason, count in reasons.items():
        print(f"\n{count} not predicted: {reason}")
    print(f"\n{len(compared)} trials, deviation of the prediction from the measurement:")
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
