"""Reads a store into a table of results: every stored row, its statistics and its derived speeds."""

import warnings
from collections.abc import Callable, Collection
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from lmsweep.analysis.data.code_states import with_code_states
from lmsweep.analysis.data.columns import for_each_kind, numbers_of, size_terms
from lmsweep.analysis.data.open_store import open_store, why_no_store
from lmsweep.analysis.data.pooled_rows import as_lists, pool
from lmsweep.analysis.data.process_variation import KIND, kinds
from lmsweep.trials.analytic.datasheets import find_device, peak_flops
from lmsweep.trials.analytic.flop_conventions import FlopConvention, counted_flops, share_of_scores
from lmsweep.trials.analytic.formulas import PASSES, attention_flops, forward_flops, recomputed_flops
from lmsweep.trials.analytic.packed_scores import share_of_packed_scores
from lmsweep.trials.results.environment import NOT_OURS, is_absent
from lmsweep.trials.results.roles import OF_STEP
from lmsweep.trials.spec.config import AUTO_FIELDS, CONFIG_FIELDS, STORED_FIELDS, RequestError
from lmsweep.trials.spec.ways.checkpointings import Recomputed, checkpointing_of
from lmsweep.trials.spec.ways.compilations import BY_BLOCK
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS, Precision
from lmsweep.trials.statistics.median_interval import Floats
from lmsweep.trials.statistics.sample_stats import describe
from lmsweep.trials.store.store import Store

# The precision whose peak FLOP/s apply to a matrix product: by its dtype, and for float32 by how it was computed.
_PRECISION_OF_TYPE: dict[str | None, Precision] = {"bfloat16": "bf16", "float16": "fp16"}
_PRECISION_OF_FLOAT32: dict[str | None, Precision] = {"ieee": "fp32", "tf32": "tf32", "bf16": "bf16"}

_DEFAULTS: dict[str, Any] = {
    name: CONFIG_FIELDS[name].default
    for name in STORED_FIELDS
    if CONFIG_FIELDS[name].default is not None and name not in (*AUTO_FIELDS, "vocab_size")
}
"""The value of a field in rows stored before the field existed. A vocabulary that is null is unknown."""

_SET_ASIDE = (
    "The next `lmsweep run` into this store sets the file aside and measures its trials again; you can also delete it."
)
_STAYS = "It stays where it is: lmsweep moves and deletes only files that it has named and can read, and no links."


def load(store: str | PathLike[str] | Store, *, pooled: bool = True, flops: FlopConvention = "model") -> pd.DataFrame:
    """Return the measurements of a store, one row for each value, with statistics and derived columns.

    Stored columns are those of `lmsweep.trials.results.record.Record`. Added are:

    - `n`, `median`, `low`, `high` (its 95 % interval), `mean`, `std`, `min`, `max`, `outliers` of `samples`, in its
    unit.
    - `processes`, `spread` (range of their medians as a share of the median), `process_lengths` (samples of each).
    - For the metric `time` of forward, backward and step: `tokens_per_second`; `flops` of matrix products in one
    iteration, by `flops_convention`; `tflops`; `mfu`, the share of the datasheet's peak; `hfu`, with the FLOPs that
    checkpointing repeats. NaN if unknown.
    - `variation_kind`: how the value varies between processes (`lmsweep.trials.statistics.variation.Kind`).
    - `code`: the state of the user's code (`lmsweep.analysis.data.code_states`).
    - For the metric `energy`: `energy_per_token`, in joules.

    store: its location, or the name of a reference store: `h200-devices`. pooled: combine the processes that measured
    the same configuration into one row; False keeps the rows of every attempt. flops: how attention's FLOPs are counted
    (`lmsweep.trials.analytic.flop_conventions`); a model of the user's own, and one with adapters, always by the model
    convention.

    Lists stay in Arrow, text is of type object, integers are nullable, and the columns of AUTO_FIELDS hold numbers and
    the word "auto". Files that are unreadable or of a newer lmsweep, and rows that are none of ours, are left out, each
    file with a warning. Raises RequestError if there is no store.
    """
    return of_stored_rows(stored_rows(open_store(store)), pooled=pooled, flops=flops)


def of_stored_rows(frame: pd.DataFrame, *, pooled: bool, flops: FlopConvention) -> pd.DataFrame:
    """Return the rows of `stored_rows` with statistics and derived columns, as `load` does."""
    return _with_speed(pool(frame) if pooled else frame, flops).copy()  # a copy joins columns of one type


def stored_rows(store: Store) -> pd.DataFrame:
    """Return the rows of every attempt and the statistics of their samples. Raises RequestError without a store."""
    if not store.exists():
        raise RequestError(why_no_store(store.location))
    table, damage = store.read()
    for item in damage:
        left_out = "cannot be read and its results are left out" if item.rows is None else "is read in part"
        advice = "" if item.is_newer else f". {_STAYS if item.stays else _SET_ASIDE}"
        warnings.warn(f"{item.path} in the store {store.location} {left_out} ({item.error}){advice}", stacklevel=2)
    return described(table)


def described(table: pa.Table) -> pd.DataFrame:
    """Return rows of the table `measurements`, with the statistics of their samples."""
    frame = frame_of(table, _column_type)
    # Null becomes the default: the row may be older than the field. It stays, as unknown, in published rows, for what
    # their source does not state, and in trials of the user's code for the fields of OF_STEP.
    is_published = frame["measuring_version"].eq(NOT_OURS).fillna(False)
    has_users_code = frame["model_code"].notna() | frame["step"].notna()
    for name, default in _DEFAULTS.items():
        unknown = (has_users_code | is_published) if name in OF_STEP else is_published
        frame[name] = frame[name].mask(frame[name].isna() & ~unknown, default)
    for name in AUTO_FIELDS:
        frame[name] = frame[name].astype(object).where(frame[name].notna() | is_published, "auto")
    frame["vocab_size"] = frame["vocab_size"].replace(0, pd.NA)  # what older versions stored for an unknown one
    lengths = pc.fill_null(pc.list_value_length(table["samples"]), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    values = pc.list_flatten(table["samples"]).to_numpy()
    frame = with_code_states(frame)
    frame = pd.concat([frame, pd.DataFrame(describe(values, offsets))], axis=1)
    frame = frame.assign(processes=(frame["n"] > 0).astype(np.int64), spread=np.nan, process_lengths=as_lists(lengths))
    return frame.assign(**{KIND: kinds(frame)})


def of_present_devices(frame: pd.DataFrame, where: Collection[str] = ()) -> pd.DataFrame:
    """Return the rows without those whose device was missing, with a warning; all if `device_name` is in `where`.

    Raises RequestError if no other rows remain.
    """
    absent = frame["device_name"].map(is_absent).to_numpy(dtype=bool)
    if "device_name" in where or not absent.any():
        return frame
    left_out = frame[absent].drop_duplicates(["measurement_id", "environment_id"])
    names = ", ".join(left_out["device_name"].unique())
    words = f"{len(left_out)} results are for a device that was missing ({names})"
    if absent.all():
        raise RequestError(f"{words}, and the store has no others; `lmsweep doctor` lists what can run here")
    warnings.warn(f"{words}; they are left out. --where device_name=NAME shows them.", stacklevel=2)
    return frame[~absent].reset_index(drop=True)


def frame_of(table: pa.Table, types: Callable[[pa.DataType], object] | None = None) -> pd.DataFrame:
    """Return a stored table, its text as objects: pandas copies columns of objects at once, of text one by one."""
    texts = [column.name for column in table.schema if pa.types.is_string(column.type)]
    others: pd.DataFrame = table.drop_columns(texts).to_pandas(types_mapper=types)
    objects = pd.DataFrame({name: table[name].to_numpy() for name in texts}, others.index, dtype=object)
    return others.join(objects).reindex(columns=table.column_names)


def _column_type(column: pa.DataType) -> pd.api.extensions.ExtensionDtype | None:
    if pa.types.is_list(column):
        return pd.ArrowDtype(column)
    return pd.Int64Dtype() if pa.types.is_integer(column) else None


def _with_speed(frame: pd.DataFrame, convention: FlopConvention) -> pd.DataFrame:
    """Add the columns of speed. The first line that fits a row counts:

    | row of the time of a phase | `flops` | what `hfu` adds to it | `tokens_per_second` |
    |---|---|---|---|
    | its batches differ in lengths | null | null | as its trial stored it |
    | attention by itself | closed form of one layer | 0 | tokens / time, if `flops` is known |
    | a model of the user's, or with adapters | as its trial stored it | 0; null with checkpointing | tokens / time |
    | any other model | closed form | closed form | tokens / time, if `flops` is known |
    """
    # The closed form covers no user's model and no frozen weights, so trials store theirs: see `has_counted_flops`.
    adapts = frame["adapter"].fillna("none").ne("none")
    by_trial = ((frame["model_code"].notna() | adapts) & frame["workload"].ne("attention")).to_numpy(dtype=bool)
    varies = frame["lengths"].notna().to_numpy() & ~(_document_lengths(frame) > 0)
    forwards, backwards = _passes(frame)
    flops, recomputed = _closed_form(frame, convention, forwards, backwards)
    flops = np.where(varies, np.nan, np.where(by_trial, _of_trials(frame, "flops"), flops))
    recomputed = np.where(by_trial, np.where(frame["checkpointing"] == "none", 0, np.nan), recomputed)
    tokens = _tokens(**_batch(frame))
    is_time = ~np.isnan(forwards)
    has_tokens = ~np.isnan(flops) | (by_trial & is_time)
    seconds_or_joules = frame["median"].to_numpy()  # joules in rows of the metric `energy`, whose FLOPs are NaN
    speed = np.where(has_tokens, tokens, np.nan) / seconds_or_joules
    flops_per_second = flops / seconds_or_joules
    peaks = _peaks(frame)
    return frame.assign(
        tokens_per_second=np.where(varies, _of_trials(frame, "real_tokens_per_second"), speed),
        flops=flops,
        flops_convention=np.where(by_trial, "model", convention),  # what trials count
        tflops=flops_per_second / 1e12,
        mfu=flops_per_second / peaks,
        hfu=(flops + recomputed) / seconds_or_joules / peaks,
        energy_per_token=np.where(frame["metric"] == "energy", seconds_or_joules / tokens, np.nan),
    )


def _batch(frame: pd.DataFrame) -> dict[str, Floats]:
    return {name: numbers_of(frame[name]) for name in ("context_length", "batch_size")}


def _tokens(context_length: Floats, batch_size: Floats) -> Floats:
    return context_length * batch_size


def _closed_form(
    frame: pd.DataFrame, convention: FlopConvention, forwards: Floats, backwards: Floats
) -> tuple[Floats, Floats]:
    """Return the FLOPs of each row, and those that checkpointing adds."""
    is_attention = (frame["workload"] == "attention").to_numpy(dtype=bool)  # by itself, not a whole model
    terms, batch = size_terms(frame), _batch(frame)
    one_layer = attention_flops(phase="forward", d_model=terms["query_width"], **batch)
    attention = np.where(is_attention, one_layer, terms["num_layers"] * one_layer)
    other = np.where(is_attention, 0, forward_flops(**terms, **batch) - attention)
    share = _share_of_scores(frame, convention)
    flops = counted_flops(
        convention, other=other, attention=attention, forward=forwards, backward=backwards, share=share
    )
    # Checkpointing computes blocks again, and never the output head.
    head = 2 * _tokens(**batch) * terms["d_model"] * terms["vocab_size"]
    blocks_without_scores = other - head
    of_block = (blocks_without_scores + attention * share) / terms["num_layers"]
    return flops, np.where(is_attention, 0, backwards * _recomputed(frame, of_block, terms))


def _passes(frame: pd.DataFrame) -> tuple[Floats, Floats]:
    """Return how many forward and backward passes the time of each row covers; NaN in rows whose FLOPs do not count."""
    counts = (frame["metric"] == "time") & frame["workload"].isin(["attention", "timing"])
    phase = frame["phase"].where(counts)
    forwards = phase.map({"forward": 1, "backward": 0, "step": 1})
    of_step = (frame["mode"].map(PASSES) > 1).astype(np.float64)  # a step has a backward pass if its mode has
    backwards = phase.map({"forward": 0, "backward": 1}).mask(phase == "step", of_step)
    return numbers_of(forwards), numbers_of(backwards)


def _share_of_scores(frame: pd.DataFrame, convention: FlopConvention) -> Floats:
    context, documents = numbers_of(frame["context_length"]), _document_lengths(frame)
    window = np.fmin(numbers_of(frame["window"]), context)  # without one, the whole context
    causal = frame["causal"].to_numpy(dtype=np.float64)
    window_share = np.nan_to_num(window / context, nan=1.0)  # of an unknown context
    share: Floats = share_of_scores(convention, causal=causal, window=window_share) * np.ones(len(frame))

    def of_mask(length: int, document: int, is_causal: int, window: int) -> float:
        sizes = {"context_length": length, "document_length": document, "window": window}
        return share_of_packed_scores(convention, causal=bool(is_causal), **sizes)

    packed = documents > 0
    share[packed] = for_each_kind(
        of_mask, *(column[packed].astype(int) for column in (context, documents, causal, window))
    )
    return share


def _recomputed(frame: pd.DataFrame, block: Floats, terms: dict[str, Floats]) -> Floats:
    """Return the FLOPs that the backward pass of each row computes again. block: those of one block's forward pass."""
    layers = np.nan_to_num(terms["num_layers"], nan=1).astype(np.int64).tolist()
    words = frame["checkpointing"].fillna("none")
    of_rows = for_each_kind(lambda word, layers: checkpointing_of(word).recomputed(layers), words, layers)
    again = Recomputed(*np.array(of_rows, dtype=np.float64).reshape(-1, 2).T)  # each field an array over the rows
    flops: Floats = recomputed_flops(
        again,
        terms,
        block=block,
        tokens=_tokens(**_batch(frame)),
        compiled=frame["compile"].isin(BY_BLOCK).to_numpy(dtype=np.float64),
    )
    return np.where(again.blocks == 0, 0, flops)  # 0 also where the sizes of a block are unknown


def _document_lengths(frame: pd.DataFrame) -> Floats:
    """Return `lengths` where it is a number, the mean tokens of a document: then all batches are packed alike. NaN
    where it names a file or a distribution, which give each batch other documents, and where it is null."""
    return np.asarray(pd.to_numeric(frame["lengths"], errors="coerce"), dtype=np.float64)


def _of_trials(frame: pd.DataFrame, metric: str) -> Floats:
    """Return for each row of times what its trial has stored of the same phase under another metric; NaN elsewhere."""
    keys = ["measurement_id", "environment_id", "phase"]
    stored = frame[frame["metric"] == metric].drop_duplicates(keys, keep="last").set_index(keys)["median"]
    if stored.empty:
        return np.full(len(frame), np.nan)
    of_rows = stored.reindex(pd.MultiIndex.from_frame(frame[keys])).to_numpy(dtype=np.float64)
    return np.where(frame["metric"] == "time", of_rows, np.nan)


def _peaks(frame: pd.DataFrame) -> Floats:
    """Return the peak FLOP/s of each row's device in the arithmetic that was used; NaN if either is unknown."""
    evidence = ["device_name", "device_memory", "float32_matmul", "autocast_dtype", "parameter_dtype", "precision"]
    known = frame[evidence].astype(object)
    columns = known.where(known.notna(), None)
    return np.array(for_each_kind(_peak, *(columns[name] for name in evidence)), dtype=np.float64)


def _peak(
    device_name: str,
    memory: int | None,
    float32_matmul: str | None,
    autocast: str | None,
    parameters: str | None,
    asked_for: Precision,
) -> float:
    device = find_device(device_name, memory)
    precision = _PRECISION_OF_TYPE.get(autocast or parameters) or _PRECISION_OF_FLOAT32.get(float32_matmul)
    if asked_for in FLOAT8_PRECISIONS:  # a trial whose device lacks float8 has no times
        precision = asked_for
    peak = peak_flops(device, precision) if device and precision else None
    return np.nan if peak is None else peak
