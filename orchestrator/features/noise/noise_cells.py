"""The noise of a machine: how far several processes of the same cell differ, as `lmsweep noise` measured it.

`compare` and the tables take the variation between processes from these cells and from all others that were repeated
(`lmsweep.analysis.data.process_variation`).
"""

from collections.abc import Mapping

import pandas as pd

from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS, in_order
from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.selection import flag_tuples
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.number_format import percent
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys
from lmsweep.trials.results.metrics import DEVICE_TIME, WALL_TIME
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.spec.config import RequestError

SWEEPS = ("noise", "noise-cpu")

Machines = Mapping[tuple[str, str], float]
"""(device_name, WALL_TIME or DEVICE_TIME) -> how far two processes of one cell differ at most, as a share."""


def largest_difference(medians: pd.Series) -> float:
    """Return the largest median over the smallest, less 1; NaN for a single process."""
    return float(medians.max() / medians.min() - 1) if len(medians) > 1 else float("nan")


def noise_cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each time of each cell that `lmsweep noise` measured, without processes on a busy host.

    frame: rows of `lmsweep.load(..., pooled=False)`. Columns: the keys of a result; `value`; `processes`; `median`,
    `lowest` and `highest` of their medians (seconds); `spread`, highest less lowest as a share of the median;
    `largest_difference`.
    """
    rows = _measured(frame)
    rows = rows[~rows["attempt_id"].isin(_busy(rows))]
    groups = rows.groupby([*RESULT, "value"], sort=False)["median"]
    numbers = groups.agg(processes="size", median="median", lowest="min", highest="max", largest=largest_difference)
    numbers["spread"] = (numbers["highest"] - numbers["lowest"]) / numbers["median"]
    keys = rows.drop_duplicates([*RESULT, "value"])[list(dict.fromkeys([*RESULT, "value", *DISTINGUISHING_COLUMNS]))]
    return keys.merge(numbers.reset_index(), on=[*RESULT, "value"])


def _measured(frame: pd.DataFrame) -> pd.DataFrame:
    """The times that processes of `lmsweep noise` measured, with their `value`."""
    value = frame["phase"].astype(object) + "." + frame["metric"].astype(object)
    wanted = frame["measurement_id"].isin(frame["measurement_id"][frame["sweep"].isin(SWEEPS)])
    rows = frame.assign(value=value)[wanted & value.isin([WALL_TIME, DEVICE_TIME]) & (frame["status"] == Status.OK)]
    return rows[rows["median"].gt(0)]


def _busy(rows: pd.DataFrame) -> set[str]:
    return set(rows["attempt_id"][[Flag.BUSY_HOST in flags for flags in flag_tuples(rows["flags"])]])


def machines(*frames: pd.DataFrame) -> Machines:
    """Return the noise of each machine that was measured in any of these stores."""
    cells = noise_cells(pd.concat(frames, ignore_index=True))
    known = cells[cells["largest"].notna()].groupby(["device_name", "value"])["largest"].max().reset_index()
    names = zip(known["device_name"].astype(str), known["value"].astype(str), strict=True)
    return dict(zip(names, known["largest"].to_list(), strict=True))


def noise_table(frame: pd.DataFrame) -> Listing:
    """Return how far the processes of each cell of `lmsweep noise` differ, and one sentence about each machine.

    Raises RequestError if the store has no such results.
    """
    rows = _measured(frame)
    if rows.empty:
        raise RequestError("the store has no results of `lmsweep noise`")
    if (busy := len(_busy(rows))) == rows["attempt_id"].nunique():
        raise RequestError("all processes of `lmsweep noise` ran on a busy host; run it with --fresh on a quiet one")
    cells = noise_cells(frame)
    keys = varying_keys(cells, ["model", "context_length"], [])
    cells = in_order(cells, keys)
    keys = [*keys, "value"]
    shown = ["processes", "median", "lowest", "highest", "spread", "largest"]
    shares = cells.assign(spread=100 * cells["spread"], largest=100 * cells["largest"])
    known = machines(frame)
    names = list(dict.fromkeys(device for device, _ in known))
    notes = [_sentence(name, known, alone=len(names) == 1) for name in names]
    notes = notes or ["Each cell has one process: how far two differ is not known."]
    if busy:
        notes.append(f"Left out: {busy} of {rows['attempt_id'].nunique()} processes, which ran on a busy host.")
    return Listing(
        title="Processes of the same cell: medians, their spread (%) and the largest difference between two (%)",
        frame=shares[[*keys, *shown]].rename(columns={"spread": "spread (%)", "largest": "largest (%)"}),
        keys=keys,
        units={"median": "s", "lowest": "s", "highest": "s", "spread (%)": "1", "largest (%)": "1"},
        together=("median", "lowest", "highest"),
        conditions=common_conditions(cells, keys),
        notes=notes,
    )


def _sentence(device_name: str, known: Machines, *, alone: bool) -> str:
    shares = {clock: known[device_name, clock] for clock in (WALL_TIME, DEVICE_TIME) if (device_name, clock) in known}
    words = " and ".join(f"{percent(share)} ({clock})" for clock, share in shares.items())
    machine = "this machine" if alone else device_name
    return f"On {machine} two processes of the same cell differ by up to {words}; differences below that mean nothing."
