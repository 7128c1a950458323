"""Lists a store's times side by side with published ones, or with those of a reference or any other store.

Each line names every condition under which its two numbers were measured differently.
"""

from typing import Any

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.cell_verdicts import Table, judge
from lmsweep.analysis.comparison.claim import claim_of, words
from lmsweep.analysis.comparison.compare import DIFFERENT_BY_DEVICE, SAME_ON_GPU, axes_of, places_of
from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS, in_order, label, labels
from lmsweep.analysis.data.load import load
from lmsweep.analysis.data.open_store import open_store
from lmsweep.analysis.data.pooled_rows import pool
from lmsweep.analysis.data.process_variation import known_variation
from lmsweep.analysis.data.selection import flag_tuples, ok_rows
from lmsweep.analysis.data.step_parts import parts_of_step
from lmsweep.analysis.reference import CAVEATS, CONDITIONS, public_benchmarks, published, stores
from lmsweep.analysis.tables.listing import HIGH, LOW, Listing
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.suggestions import choices
from lmsweep.trials.statistics.median_interval import ratio_interval
from lmsweep.trials.statistics.significance import Sizes

PUBLISHED = "published"

_SHOWN = (
    *("device_name", "device", "device_memory", "d_ff", "num_layers", "num_heads", "workload", "mode", "part", "model"),
    *("d_model", "context_length"),
)
"""Columns that a line shows, or that the shown columns determine. Lines are joined by workload, part and `place`."""

ALONE = ("attention", "loss")
"""Workloads that measure a part of a model by itself."""

_OTHER_KERNELS = (
    "kernels: these reports measured the model of the 2025 course, which computes the same function with different "
    "kernels: its linear layers are einsums (285 operations in a forward pass of two layers, 225 here), and each "
    "weight gradient is copied once more"
)

_OF_PHASE = ["measurement_id", "environment_id", "workload", "phase"]
"""Identifies the times of one phase of one result."""
_DEVICE = {"median": "device_median", "low": "device_low", "high": "device_high"}
"""Column of a device time -> its name beside the wall time of the same phase."""
_THERE = (("median", ""), ("low", LOW), ("high", HIGH))
"""Column of this store -> suffix of the other store's: `median` becomes `theirs`, `low` becomes `theirs_low`."""

WALL_FLAGS = frozenset({Flag.HOST_BOUND, Flag.BUSY_HOST, Flag.OUTLIERS, Flag.UNSTEADY, Flag.NOT_CONVERGED})
"""Flags of the samples of wall time and of the host, which say nothing about device time."""

_SHAPE = ("num_heads", "causal")
"""Columns that public benchmarks state and a report does not; if stated, they must agree."""

_SAME_VOCABULARY = 0.01
"""Maximum relative difference of vocabularies that differ only in padding."""

_LEFT_OUT = ("repeated", "derived")
"""Rows with these caveats are left out."""


class NoCounterpartError(RequestError):
    """No result has a counterpart in the other source."""


def reference_names() -> list[str]:
    """Return the names that `beside` accepts: `published`, and the stores of `lmsweep.analysis.reference`."""
    return [PUBLISHED, *stores()]


def beside(frame: pd.DataFrame, name: str, attempts: pd.DataFrame | None = None) -> Listing:
    """Return the times with a counterpart: steps, their parts, and attention or the loss alone.

    frame: rows of `lmsweep.load`. name: one of `reference_names`, or the location of a store. attempts: all rows of
    `lmsweep.load(..., pooled=False)` of the store, for the claim; without, the frame's. There is a line for each
    pair with the same part of the same model, or the same attention, at the same context length. Beside a store that
    has steps, only steps and attention are shown. Columns:

    - the keys of this store, and `time`: device, if both sides have device time, else wall;
    - `mine`, `theirs` (seconds) and `ratio`, theirs / mine, with their 95 % intervals; NaN if the batch sizes differ;
    - `wall_ratio`, the ratio of wall times, if a line is about device time;
    - `mine_flags`, `theirs_flags` with caveats of published numbers, and `wall_flags` of wall times beside device
    times;
    - `source` and `hardware` of the other result; `differs`, every other condition that differs or that it does not
    state; `note`, both in one sentence.

    Raises RequestError if there is no such store, and NoCounterpartError if no result has a counterpart.
    """
    mine = _times(frame)
    is_published = name == PUBLISHED
    every = None if is_published else _attempts_of(name)
    theirs = _all_published() if every is None else _of_store(every, name)
    mine, theirs = (rows.assign(line=range(len(rows))) for rows in (mine, theirs))
    pairs = mine.merge(theirs, on=["workload", "part", "place"], suffixes=("", "_there"))
    pairs = pairs[_compatible(pairs)].copy()  # joins columns of one type
    if pairs.empty:
        raise NoCounterpartError(
            f"{name} has no time with the model, context length, precision, compilation and attention of a time in the "
            f"store, which has {', '.join(sorted(mine['place'].str.replace('/', ' at ').unique()))}"
        )
    if not is_published and (pairs["part"] == "step").any():
        pairs, mine, theirs = (rows[_whole(rows)] for rows in (pairs, mine, theirs))
    alone = [len(mine) - pairs["line"].nunique(), len(theirs) - pairs["line_there"].nunique()]
    differs = [_differences(line, published=is_published) for _, line in pairs.iterrows()]
    note = [f"{source}: {words}" for source, words in zip(pairs["source"], differs, strict=True)]
    pairs = _with_ratios(pairs.assign(differs=differs, note=note if is_published else differs))
    size = "model" if pairs["model"].notna().any() else "d_model"
    keys = [*varying_keys(pairs, [size, "context_length"], ["part", "time"]), "part", "time"]
    keys = [key for key in keys if pairs[key].nunique(dropna=False) > 1] or [size]
    pairs = in_order(pairs, [*keys, "source"])
    hardware = pairs["hardware"].nunique() > 1
    shown = [f"{column}{end}" for column in ("mine", "theirs", "ratio") for end in ("", LOW, HIGH)]
    if pairs["wall_ratio"].notna().any():
        shown.append("wall_ratio")
    said = "" if every is None else _claim_words(pairs, frame if attempts is None else attempts, every, keys)
    lines = f"{len(pairs)} line{'s' if len(pairs) > 1 else ''}{said}"
    return Listing(
        title=f"{_title(pairs, name, keys)}\n{lines}. Without a counterpart: {alone[0]} of mine, {alone[1]} of {name}.",
        frame=pairs[
            [*keys, "source", "hardware", *shown, "mine_flags", "theirs_flags", "wall_flags", "note", "differs"]
        ],
        keys=keys,
        units={"mine": "s", "theirs": "s", "ratio": "1", **({"wall_ratio": "1"} if "wall_ratio" in shown else {})},
        together=("mine", "theirs"),
        footnotes={"mine": ("mine_flags",), "theirs": ("theirs_flags", "note")}
        | ({"wall_ratio": ("wall_flags",)} if "wall_ratio" in shown else {}),
        advice={_caveat(word): text for word, text in (CAVEATS | CONDITIONS).items()} if is_published else {},
        only_in_csv=("source", "differs", "wall_flags") + (() if hardware else ("hardware",)),
        conditions=common_conditions(pairs, keys),
        notes=_notes(pairs, published=is_published),
    )


def _whole(rows: pd.DataFrame) -> pd.Series:
    return (rows["part"] == "step") | rows["workload"].isin(ALONE)


def _with_ratios(pairs: pd.DataFrame) -> pd.DataFrame:
    # Where both sides have device times, those replace the wall times, whose ratio is kept in wall_ratio.
    wall = ratio_interval(*(pairs[name].to_numpy(float) for name in _ends("theirs", "median")))
    by_device = pairs["device_median"].notna() & pairs["device_theirs"].notna()
    for name in _ends("theirs", "median"):
        pairs = pairs.assign(**{name: pairs[f"device_{name}"].where(by_device, pairs[name])})
    ratio = ratio_interval(*(pairs[name].to_numpy(float) for name in _ends("theirs", "median")))
    # Different batch sizes are different work.
    there = pairs["batch_size_there"]
    comparable = (there.isna() | (there == pairs["batch_size"]).fillna(False)).to_numpy(bool)
    flags = zip(pairs["mine_flags"].to_list(), pairs["theirs_flags"].to_list(), by_device, strict=True)
    names = ("mine_flags", "theirs_flags", "wall_flags")
    divided = [_flags_by_time(mine, theirs, device) for mine, theirs, device in flags]
    columns: dict[str, Any] = {name: [of_line[name] for of_line in divided] for name in names}
    return pairs.assign(
        ratio=np.where(comparable, ratio.ratio, np.nan),
        ratio_low=ratio.low,
        ratio_high=ratio.high,
        wall_ratio=np.where(by_device & comparable, wall.ratio, np.nan),
        **columns,
        time=np.where(by_device, "device", "wall"),
    ).rename(columns={"median": "mine", "low": "mine_low", "high": "mine_high"})


def _flags_by_time(mine: tuple[str, ...], theirs: tuple[str, ...], by_device: bool) -> dict[str, tuple[str, ...]]:
    """The flags of each number of a line: a slow host questions wall times alone."""
    if not by_device:
        return {"mine_flags": mine, "theirs_flags": theirs, "wall_flags": ()}
    kept = {
        name: tuple(word for word in words if word not in WALL_FLAGS)
        for name, words in (("mine_flags", mine), ("theirs_flags", theirs))
    }
    return kept | {"wall_flags": tuple(word for word in dict.fromkeys(mine + theirs) if word in WALL_FLAGS)}


def _ends(theirs: str, mine: str) -> list[str]:
    """The columns that `ratio_interval` takes for theirs / mine: each time with its two ends."""
    return [theirs, f"{theirs}{LOW}", f"{theirs}{HIGH}", mine, "low", "high"]


def _title(pairs: pd.DataFrame, name: str, keys: list[str]) -> str:
    mine = ", ".join(pairs["device_name"].unique())
    theirs = f" ({pairs['hardware'].iloc[0]})" if pairs["hardware"].nunique() == 1 else ""
    what = " ".join(
        [*(pairs[key].iloc[0] for key in ("part", "time") if key not in keys), *["time"] * ("time" not in keys)]
    )
    return f"mine ({mine}) beside {name}{theirs}{', ' if what else ''}{what}; ratio: theirs / mine"


def _claim_words(pairs: pd.DataFrame, mine: pd.DataFrame, theirs: pd.DataFrame, keys: list[str]) -> str:
    """What `compare` says of the lines with device times; empty without any. mine, theirs: rows of all attempts."""
    lines = pairs[(pairs["time"] == "device") & pairs["ratio"].notna()]
    if lines.empty:
        return ""
    sides = []
    for side, (frame, end) in enumerate(((mine, ""), (theirs, "_there"))):
        of_line = {name: lines[name if name == "workload" else f"{name}{end}"] for name in _OF_PHASE}
        times = frame[(frame["metric"] == "device_time") & frame["median"].notna()]
        sides.append(times.merge(pd.DataFrame({**of_line, "cell": lines.index, "side": side}), on=_OF_PHASE))
    cells, order = pd.concat(sides, ignore_index=True), lines.index.to_numpy()
    levels = [name for name in keys if name not in ("part", "time")]
    sizes = Sizes(*(np.full(len(order), share) for share in (DIFFERENT_BY_DEVICE, SAME_ON_GPU)))
    judged = judge(cells, "s", Table(order, axes_of(lines, levels), sizes, known_variation(mine, theirs)))
    cells_of_claim = judged.assign(
        **{name: lines[name].to_numpy() for name in ("wall_ratio", *keys)},
        value="step.device_time", places=places_of(cells, order, stored_together=False), least=SAME_ON_GPU,
    )  # fmt: skip
    said = words(claim_of(cells_of_claim, "theirs", "mine", timed=True), "clocks")
    return f"; theirs against mine: {said}"


def _notes(pairs: pd.DataFrame, *, published: bool) -> list[str]:
    notes = []
    if published and pairs["of_course"].any():
        notes.append(_OTHER_KERNELS)
    if not published and _whole(pairs).all() and (pairs["part"] == "step").any():
        notes.append("Parts of a step: lmsweep compare MINE THEIRS --value forward.time --value backward.time")
    if pairs["wall_ratio"].notna().any():
        notes.append(
            "wall_ratio: of the wall times, which include waiting for the host; it has the flags of both of them"
        )
    if pairs["ratio"].isna().any():
        notes.append("-: no ratio, since the batch sizes differ")
    if pairs["theirs_low"].isna().any():
        notes.append("Numbers without an interval are as the source states them.")
    return notes


def _caveat(word: str) -> str:
    """The word that marks a caveat; a flag of a measured time may have the same name."""
    return f"published_{word}" if word in set(Flag) else word


def _times(frame: pd.DataFrame) -> pd.DataFrame:
    """Successful times of the parts of steps and of parts of models alone, with the device times of the same phase."""
    alone = frame[frame["workload"].isin(ALONE) & (frame["metric"] == "time")]
    parts = parts_of_step(frame).drop_duplicates([*DISTINGUISHING_COLUMNS, "phase"], keep="last")
    both = ok_rows(pd.concat([parts, alone], ignore_index=True))
    both = both[both["median"].notna()]
    if both.empty:
        raise RequestError("the store has no times of the workloads timing, attention or loss")
    busy = frame[(frame["metric"] == "device_time") & (frame["workload"] == "timing")]
    busy = busy[[*_OF_PHASE, "median", "low", "high"]].rename(columns=lambda name: _DEVICE.get(name, name))
    both = both.merge(busy.drop_duplicates(_OF_PHASE), on=_OF_PHASE, how="left")
    return both.assign(part=both["phase"], place=_place(both), mine_flags=flag_tuples(both["flags"]))


def _place(rows: pd.DataFrame) -> pd.Series:
    size = rows["model"].astype(object).where(rows["workload"] == "timing", "d_model " + labels(rows["d_model"]))
    return size.astype(str) + "/" + labels(rows["context_length"])


def _attempts_of(name: str) -> pd.DataFrame:
    if not open_store(name).exists():
        raise RequestError(
            f"--with {name}: there is neither a store nor a reference of this name{choices(name, reference_names())}"
        )
    return load(name, pooled=False)


def _of_store(attempts: pd.DataFrame, name: str) -> pd.DataFrame:
    """`_times` of the other store, renamed to `theirs` and `device_theirs`, each with its two ends."""
    rows = _times(pool(attempts))
    rows = rows.assign(source=name, hardware=rows["device_name"]).rename(columns={"mine_flags": "theirs_flags"})
    return rows.rename(columns={f"{of}{here}": f"{of}theirs{end}" for of in ("", "device_") for here, end in _THERE})


def _all_published() -> pd.DataFrame:
    unknown = ["theirs_low", "theirs_high", "device_theirs", "device_theirs_low", "device_theirs_high"]
    rows = pd.concat([_published(), _public_benchmarks()], ignore_index=True)
    return rows.assign(**dict.fromkeys(unknown, float("nan")))


def _published() -> pd.DataFrame:
    rows = published()
    rows = rows[(rows["metric"] == "time") & (rows["unit"] == "s") & (rows["status"] == "ok")]
    rows = rows[~rows[list(_LEFT_OUT)].any(axis="columns") & rows["workload"].isin(["timing", "attention"])]
    rows = rows[~rows["table"].str.endswith("prose")]  # totals of all iterations, times of some kernels, and the like
    rows = rows.assign(part=rows["phase"], place=_place(rows), theirs=rows["value"])
    words = [tuple(_caveat(word) for word in CAVEATS if getattr(row, word)) for row in rows.itertuples()]
    return rows.assign(
        source=rows["source"] + " " + rows["table"],
        hardware=rows["hardware"].fillna("not stated") + (", " + rows["device"]).fillna(""),
        theirs_flags=pd.Series(words, rows.index, dtype=object),
        attention=rows["workload"].map({"timing": "naive", "attention": "naive_softmax"}),
        of_course=rows["workload"] == "timing",
    )


def _public_benchmarks() -> pd.DataFrame:
    rows = public_benchmarks()
    words = [tuple(word for word in CONDITIONS if getattr(row, word)) for row in rows.itertuples()]
    return rows.assign(
        part=rows["phase"],
        place=_place(rows),
        theirs=rows["value"],
        source=rows["source"] + ", " + rows["implementation"],
        theirs_flags=pd.Series(words, rows.index, dtype=object),
        suspected_tf32=False,
        of_course=False,
    )


def _compatible(pairs: pd.DataFrame) -> pd.Series:
    """Whether precision, compilation and attention may be equal; unstated ones are taken to be those of a plain run."""
    there = {name: pairs[f"{name}_there"] for name in ("precision", "compile", "attention")}
    full = pairs["precision"].isin(["fp32", "tf32"])
    same = (there["precision"].isna() & full) | (there["precision"] == pairs["precision"])
    same |= there["precision"].isin(["mixed", "fp16 or bf16"]) & pairs["precision"].isin(["bf16", "fp16"])
    same |= (there["precision"] == "fp16_pure") & (pairs["precision"] == "bf16_pure")  # the same products, as fast
    if "suspected_tf32" in pairs:
        same |= pairs["suspected_tf32"] & (pairs["precision"] == "tf32")
    same &= (there["compile"] == pairs["compile"]) | (there["compile"].isna() & (pairs["compile"] == "none"))
    written_out = ("naive", "naive_softmax")
    both_plain = there["attention"].isin(written_out) & pairs["attention"].isin(written_out)
    alike = both_plain | (there["attention"] == pairs["attention"])
    if "loss_there" in pairs:
        alike = alike.where(pairs["workload"] != "loss", pairs["loss_there"] == pairs["loss"])
    if "other_kernel" in pairs:
        # The user's own attention is compared with kernels that lmsweep lacks, and with all others of the same figures.
        own = np.array([is_reference(name) for name in pairs["attention"]], dtype=bool)
        alike |= own & pairs["workload"].eq("attention") & pairs["other_kernel"].notna()
    return same & alike & _same_shape(pairs)


def _same_shape(pairs: pd.DataFrame) -> pd.Series:
    same = pd.Series(True, pairs.index)
    for name in _SHAPE:
        if f"{name}_there" in pairs:
            there = pairs[f"{name}_there"]
            determined = (pairs["workload"] != "attention") & (name == "num_heads")  # by the model
            same &= there.isna() | determined | (there == pairs[name]).fillna(False)
    if "vocab_size_there" in pairs:
        there, mine = (pairs[name].astype("Float64") for name in ("vocab_size_there", "vocab_size"))
        same &= ((there - mine).abs() / mine < _SAME_VOCABULARY).fillna(True)
    return same.astype(bool)


def _differences(line: pd.Series, *, published: bool) -> str:
    """The conditions that differ, with their value in the other source, and those that it does not state."""
    stated = ("batch_size", "precision", "compile", "attention", "warmup_steps", "measure_steps")
    names = stated if published else [name for name in DISTINGUISHING_COLUMNS if name not in _SHOWN]
    there = {name: line[f"{name}_there"] for name in names}
    silent = [name for name in names if published and pd.isna(there[name])] + ["software"] * published
    words = [f"{name} {label(there[name])}" for name in names if name not in silent and _differs(line, name)]
    if silent:
        words.append(f"not stated: {', '.join(silent)}")
    return "; ".join(words)


def _differs(line: pd.Series, name: str) -> bool:
    return label(line[f"{name}_there"]) != label(line[name])
