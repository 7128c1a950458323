"""Times of a training step's parts, as the published reports print them."""

from dataclasses import replace

import pandas as pd

from analysis.presets.results import Results, nothing
from analysis.tables import Table, default_layout, pivot
from trials.spec import Status

_PARTS: dict[str, tuple[tuple[str, str], ...]] = {
    "inference": (("forward", "forward"),),
    "forward": (("train_forward", "forward"), ("forward_backward", "forward"), ("train_step", "forward")),
    "backward": (("forward_backward", "backward"), ("train_step", "backward")),
    "forward_backward": (("forward_backward", "step"),),
    "optimizer": (("train_step", "optimizer"),),
    "step": (("train_step", "step"),),
}
"""Column of a report -> modes and phases that measure it, the best first."""

_SAME_BUT_FOR_MODE = ["trial_id", "environment_id", "warmup_steps", "measure_steps"]


def parts_of_step(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of `analysis.load` as `forward.time`, `backward.time`, ... of a training step, whatever the mode.

    The reports' forward is that of training, alone; where only longer modes were measured, it is theirs. The column
    `mode` is null: it no longer tells rows apart. A mode that failed fills the parts that no other mode has measured.
    """
    timed = frame[(frame["workload"] == "timing") & ((frame["metric"] == "time") | (frame["status"] != Status.OK))]
    taken = []
    for part, sources in _PARTS.items():
        for rank, (mode, phase) in enumerate(sources):
            rows = timed[(timed["mode"] == mode) & (timed["phase"].isna() | (timed["phase"] == phase))]
            taken.append(rows.assign(phase=part, metric="time", rank=rank))
    rows = pd.concat(taken, ignore_index=True)
    rows["failed"] = rows["status"] != Status.OK
    best = rows.sort_values(["failed", "rank"], kind="stable").drop_duplicates([*_SAME_BUT_FOR_MODE, "phase"])
    return best.assign(mode=None).drop(columns=["rank", "failed"]).reset_index(drop=True)


def end_to_end(results: Results) -> Table:
    parts = parts_of_step(results.of("timing"))
    values = [f"{part}.time" for part in _PARTS if (ok_rows(parts)["phase"] == part).any()]
    if not values:
        raise nothing("timing")
    return layout(parts, values=values, cols=devices(parts), title="Times of a training step and of its parts")


def ok_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["status"] == Status.OK]


def devices(frame: pd.DataFrame) -> list[str]:
    """The keys that tell this frame's devices apart, if there are several."""
    return ["device", "device_name"] if frame["device_name"].nunique() > 1 else []


def layout(frame: pd.DataFrame, *, values: list[str], cols: list[str], title: str) -> Table:
    """A pivot whose rows are the model, the context and whatever else varies."""
    rows, cols, values = default_layout(frame, cols=cols, values=values)
    return replace(pivot(frame, rows=rows, cols=cols, values=values, where={}), title=title)
