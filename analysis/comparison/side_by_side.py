"""Lists a store's times side by side with published ones, or with those of a reference or any other store.

Each line names every condition under which its two numbers were measured differently.
"""

import pandas as pd

from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS, label
from lmsweep.analysis.data.load import load
from lmsweep.analysis.presets.layout import in_order, ok_rows
from lmsweep.analysis.presets.timing import parts_of_step
from lmsweep.analysis.reference import CAVEATS, published, stores
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.suggestions import choices
from lmsweep.trials.store.store import Store

PUBLISHED = "published"

_SAME = ["workload", "part", "model", "d_model", "context_length"]
"""Columns in which two numbers must agree to share a line; d_model if there is no whole model."""

_TOLD = ("device_name", "device", "device_memory", "d_ff", "num_layers", "num_heads", "workload", "mode", *_SAME)
"""Columns that a line shows, or that these determine."""

_OTHER_KERNELS = (
    "kernels: these reports measured the model of the 2025 course, which computes the same function with different "
    "kernels: its linear layers are einsums (285 operations in a forward pass of two layers, 225 here), and each "
    "weight gradient is copied once more"
)

_LEFT_OUT = ("repeated", "derived")
"""Rows with these caveats are left out."""


def reference_names() -> list[str]:
    """Return the names that `beside` accepts: `published`, and the stores of `lmsweep.analysis.reference`."""
    return [PUBLISHED, *stores()]


def beside(frame: pd.DataFrame, name: str) -> Listing:
    """Return the times of the parts of a training step, and of attention alone, that have a counterpart elsewhere.

    frame: rows of `lmsweep.load`. name: one of `reference_names`, or the location of a store. There is a line for each
    pair with the same part of the same model, or the same attention, at the same context length. Columns: the keys of
    this store; `mine` (seconds); `source` and `hardware` of the other result; `theirs` (seconds); `ratio`, theirs /
    mine; `differs`, every other condition that differs or that the other source does not state; `caveats`, words of
    `lmsweep.analysis.reference.CAVEATS`.

    Raises RequestError if there is no such store, and if no result has a counterpart.
    """
    mine = _times(frame)
    theirs = _published() if name == PUBLISHED else _of_store(name)
    pairs = mine.merge(theirs, on=["workload", "part", "place"], suffixes=("", "_there"))
    pairs = pairs[_compatible(pairs)]
    if pairs.empty:
        raise RequestError(
            f"{name} has no time with the model, context length, precision, compilation and attention of a time in the "
            f"store, which has {', '.join(sorted(mine['place'].str.replace('/', ' at ').unique()))}"
        )
    pairs["differs"] = [_differences(line, published=name == PUBLISHED) for _, line in pairs.iterrows()]
    pairs["ratio"] = pairs["theirs"] / pairs["median"]
    keys = varying_keys(pairs, ["model" if pairs["model"].notna().any() else "d_model", "context_length", "part"], [])
    pairs = in_order(pairs, [*keys, "source"])
    pairs = pairs.rename(columns={"median": "mine", "low": "mine_low", "high": "mine_high"})
    shown = ["mine", "mine_low", "mine_high", "source", "hardware", "theirs", "theirs_low", "theirs_high", "ratio"]
    notes = [f"{word}: {text}" for word, text in CAVEATS.items() if pairs["caveats"].str.contains(word).any()]
    if name == PUBLISHED and (pairs["workload"] == "timing").any():
        notes.append(_OTHER_KERNELS)
    return Listing(
        title=f"Times side by side with {name}; ratio: theirs / mine",
        frame=pairs[[*keys, *shown, "differs", "caveats"]],
        keys=keys,
        units={"mine": "s", "theirs": "s", "ratio": "1"},
        together=("mine", "theirs"),
        conditions=common_conditions(pairs, keys),
        notes=notes,
    )


def _times(frame: pd.DataFrame) -> pd.DataFrame:
    """Successful times of the parts of steps and of attention alone; `place` is the model and the context length."""
    alone = frame[(frame["workload"] == "attention") & (frame["metric"] == "time")]
    parts = parts_of_step(frame).drop_duplicates([*DISTINGUISHING_COLUMNS, "phase"], keep="last")
    both = ok_rows(pd.concat([parts, alone], ignore_index=True))
    both = both[both["median"].notna()]
    if both.empty:
        raise RequestError("the store has no times of the workloads timing or attention")
    return both.assign(part=both["phase"], place=_place(both))


def _place(rows: pd.DataFrame) -> pd.Series:
    size = rows["model"].astype(object).where(rows["workload"] == "timing", "d_model " + rows["d_model"].map(label))
    return size.astype(str) + "/" + rows["context_length"].map(label)


def _of_store(name: str) -> pd.DataFrame:
    location = stores().get(name, name)
    if location == name and not Store(name).exists():
        raise RequestError(
            f"--with {name}: there is neither a store nor a reference of this name{choices(name, reference_names())}"
        )
    rows = _times(load(location))
    rows = rows.assign(source=name, hardware=rows["device_name"], caveats="")
    return rows.rename(columns={"median": "theirs", "low": "theirs_low", "high": "theirs_high"})


def _published() -> pd.DataFrame:
    rows = published()
    rows = rows[(rows["metric"] == "time") & (rows["unit"] == "s") & (rows["status"] == "ok")]
    rows = rows[~rows[list(_LEFT_OUT)].any(axis="columns") & rows["workload"].isin(["timing", "attention"])]
    rows = rows[~rows["table"].str.endswith("prose")]  # totals of all iterations, times of some kernels, and the like
    rows = rows.assign(part=rows["phase"], place=_place(rows), theirs=rows["value"])
    rows = rows.assign(theirs_low=float("nan"), theirs_high=float("nan"))
    words = [", ".join(word for word in CAVEATS if getattr(row, word)) for row in rows.itertuples()]
    return rows.assign(
        source=rows["source"] + " " + rows["table"],
        hardware=rows["hardware"].fillna("not stated") + (", " + rows["device"]).fillna(""),
        caveats=words,
        attention=rows["workload"].map({"timing": "naive", "attention": "naive_softmax"}),
    )


def _compatible(pairs: pd.DataFrame) -> pd.Series:
    """Whether precision, compilation and attention may be equal; unstated ones are taken to be those of a plain run."""
    there = {name: pairs[f"{name}_there"] for name in ("precision", "compile", "attention")}
    full = pairs["precision"].isin(["fp32", "tf32"])
    same = (there["precision"].isna() & full) | (there["precision"] == pairs["precision"])
    same |= (there["precision"] == "mixed") & pairs["precision"].isin(["bf16", "fp16"])
    if "suspected_tf32" in pairs:
        same |= pairs["suspected_tf32"] & (pairs["precision"] == "tf32")
    same &= (there["compile"] == pairs["compile"]) | (there["compile"].isna() & (pairs["compile"] == "none"))
    written_out = ("naive", "naive_softmax")
    both_plain = there["attention"].isin(written_out) & pairs["attention"].isin(written_out)
    return same & (both_plain | (there["attention"] == pairs["attention"]))


def _differences(line: pd.Series, *, published: bool) -> str:
    """The conditions that differ, with their value in the other source, and those that it does not state."""
    stated = ("batch_size", "precision", "compile", "attention", "warmup_steps", "measure_steps")
    names = stated if published else [name for name in DISTINGUISHING_COLUMNS if name not in _TOLD]
    there = {name: line[f"{name}_there"] for name in names}
    silent = [name for name in names if published and pd.isna(there[name])] + ["software"] * published
    words = [f"{name} {label(there[name])}" for name in names if name not in silent and _differs(line, name)]
    if silent:
        words.append(f"not stated: {', '.join(silent)}")
    return "; ".join(words) or ("nothing" if line["hardware"] == line["device_name"] else "only the device")


def _differs(line: pd.Series, name: str) -> bool:
    return label(line[f"{name}_there"]) != label(line[name])
