"""Device times of the steps in the reference sets, beside what their operators in closed form let expect."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lmsweep.analysis import load
from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.model_operators.model_parts import Part, has_known_work, model_parts
from lmsweep.trials.analytic.rates.intervals import spread_for
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.analytic.rates.step_time import step_time
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.losses import HIDDEN_LOSSES

STEPS = (
    "h200-devices",
    "h100-devices",
    "h200-x2-end-to-end",
    "h200-x2-sharded",
    "h100-best-grid",
    "h100-published-steps",
    "h100-fp8",
    "h100-losses",
    "h100-packing",
)
"""Sets with device times of whole steps."""


def operators_of(parts: Sequence[Part]) -> Operators:
    return tuple(replace(one, count=times * one.count) for times, make, arguments in parts for one in make(*arguments))


def measured_steps(name: str, **values: Sequence[str]) -> Iterator[tuple[float, float]]:
    """Yield the seconds of forward and backward, and those of the update, of each step of a set: predicted by the
    operators in closed form, and measured. values: those of fields to which the steps are limited."""
    rows = load(name)
    for field, kept in values.items():
        rows = rows[rows[field].isin(list(kept))]
    rows = rows[(rows["workload"] == "timing") & (rows["metric"] == "device_time") & rows["median"].notna()]
    for _, phases in rows.groupby("measurement_id"):
        config, device = trial_of(phases.iloc[0])
        took = phases.set_index("phase")["median"]
        if config.loss in HIDDEN_LOSSES or not has_known_work(config):
            continue
        rates = rates_of(device)
        time = step_time(operators_of(model_parts(config)), rates)
        factor = spread_for(device.name, rates.level()).factor
        yield factor * (time.computing - time.updating), took["forward"] + took.get("backward", 0.0)
        if "optimizer" in took:
            yield factor * time.updating, took["optimizer"]


def trial_of(row: "pd.Series[Any]") -> tuple[TrialConfig, Device]:
    device = find_device(str(row["device_name"]), row["device_memory"])
    assert device is not None, "the reference sets are of devices with a datasheet"
    return config_of(row.to_dict()), device
