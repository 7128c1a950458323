"""How far a store has come: how the workloads of its trials ended, by sweep and device."""

import pandas as pd

from analysis.load import newest_rows
from trials.spec import Status


def counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Workloads of trials by how their newest attempt ended: columns sweep, device_name and one per status met.

    The frame is that of `analysis.load`; loaded with newest=False it counts what `lmsweep plan` goes by, where a
    failure after an ok result counts as the failure. A workload of a trial counts once per environment.
    """
    newest = newest_rows(frame, prefer_ok=False)
    results = newest.drop_duplicates(["measurement_id", "environment_id", "workload"])
    table = pd.crosstab([results["sweep"], results["device_name"]], results["status"])
    met = [status.value for status in Status if status in table.columns]
    return table[met].rename_axis(columns=None).reset_index()
