"""The cost that a search learns from the rows of a trial."""

from collections.abc import Sequence
from math import log
from typing import cast

import numpy as np
import pandas as pd

from lmsweep.analysis.best.cell_processes import Processes
from lmsweep.analysis.best.goal import Aim
from lmsweep.analysis.data.process_variation import kinds
from lmsweep.trials.results.metrics import PEAKS
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.statistics.sample_stats import describe_samples
from lmsweep.trials.statistics.variation import Kind, reach

NORMAL = float(reach(np.array(0.0)))
"""Half the width of a 95 % interval of a normal distribution, in standard errors."""


def cost_of_rows(aim: Aim, config: TrialConfig, records: Sequence[Record]) -> Processes | None:
    """Return the cost that a process measured; None if it failed or exceeds the limit."""
    values = {f"{row.phase}.{row.metric}": row for row in records if row.status == Status.OK and row.samples}
    described = {name: describe_samples(row.samples or ()) for name, row in values.items()}
    name = aim.goal.first_of(values)
    peak = next((described[one].median for one in PEAKS if one in described), None)
    if name is None or (aim.peak is not None and peak is not None and peak >= aim.peak):
        return None
    row, (median, low, high) = values[name], described[name]
    samples = row.samples or ()
    hourly = aim.hourly(row.fingerprint.device_name, row.fingerprint.accelerator_type)
    shown = {"metric": row.metric, "unit": row.unit, "device": config.device_type, "flags": [*row.flags]}
    return Processes(
        logs=(log(aim.goal.cost(median, config, hourly)),),
        within=log(high / low) / 2 / NORMAL
        if low > 0
        else log(max(samples) / min(samples)) / 2
        if samples[0] > 0
        else 0,
        kind=cast(Kind, str(kinds(pd.DataFrame([shown]))[0])),
    )
