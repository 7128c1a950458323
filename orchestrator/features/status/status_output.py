"""What `status --format json` prints."""

from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from lmsweep.analysis.metrics.status import counts, flag_counts
from lmsweep.trials.results.outcome import Flag, Status


@dataclass(frozen=True, kw_only=True)
class Counts:
    sweep: str
    device_name: str
    statuses: dict[Status, int]


@dataclass(frozen=True, kw_only=True)
class StatusOutput:
    __pydantic_config__: ClassVar = {"use_attribute_docstrings": True}
    results: list[Counts]
    flags: dict[Flag, int]
    """Number of results with each."""


def status_output(frame: pd.DataFrame) -> StatusOutput:
    """Return the counts by sweep and device, and the number of results with each flag."""
    found = counts(frame)
    met = [status for status in Status if status in found]
    results = [
        Counts(sweep=line["sweep"], device_name=line["device_name"], statuses={one: int(line[one]) for one in met})
        for line in found.to_dict("records")
    ]
    return StatusOutput(results=results, flags=flag_counts(frame))
