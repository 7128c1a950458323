"""Shows the environments of two stores side by side: what differs between the machines that measured them."""

from dataclasses import fields

import numpy as np
import pandas as pd

from lmsweep.analysis.api import free_between
from lmsweep.analysis.data.columns import first_names, label
from lmsweep.analysis.tables.listing import Listing
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS, Fingerprint
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.quantities import gib

BYTES = ("device_memory", "host_memory", "host_memory_for_a_trial")
"""Fields that are shown in GiB."""

MOST = 3
"""Maximum number of values of a field that are named for one store."""


def environment_diff(one: pd.DataFrame, other: pd.DataFrame, names: tuple[str, str]) -> Listing:
    """Return the fields of the fingerprint whose values differ between two frames of `lmsweep.load`.

    Columns: `field`, one for each store, and `comparable`: no if `lmsweep compare` refuses to pair results that differ
    in the field. Raises RequestError if a store is empty.
    """
    for frame, name in ((one, names[0]), (other, names[1])):
        if frame.empty:
            raise RequestError(f"{name} holds no results")
    headings = names if names[0] != names[1] else (f"{names[0]} (1)", f"{names[1]} (2)")
    refused = {*ENVIRONMENT_FIELDS} - {*free_between(one, other)}  # free: fields in which a pair may differ
    lines = []
    shown = [field.name for field in fields(Fingerprint) if field.name != "host_load"]  # it differs in every trial
    for field in shown:
        left, right = ({_written(field, value) for value in frame[field].unique()} for frame in (one, other))
        if left != right:
            comparable = "no" if field in refused else "yes"
            lines.append((field, first_names(sorted(left), MOST), first_names(sorted(right), MOST), comparable))
    same = len(shown) - len(lines)
    frame = pd.DataFrame(lines, columns=["field", *headings, "comparable"])
    note = f"{len(lines)} {'field differs' if len(lines) == 1 else 'fields differ'}, {same} are the same. "
    if "no" in frame["comparable"].to_numpy():
        note += (
            "comparable: no means that `lmsweep compare` refuses these stores until `--where FIELD=VALUE` selects one "
            "value of the field, or `--across FIELD` accepts several."
        )
    elif lines:
        note += "`lmsweep compare` pairs their results."
    return Listing(
        title="Environments that differ",
        frame=frame,
        keys=["field"],
        units={},
        notes=[note if lines else f"All {same} fields are the same."],
    )


def _written(field: str, value: object) -> str:
    return gib(float(value)) if field in BYTES and isinstance(value, (int, float, np.number)) else label(value)
