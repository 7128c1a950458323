"""What is asked of results: the fields and values that are compared, the measure, and the baseline.

All frames are rows of `lmsweep.load(..., pooled=False)`: a value of a workload in one process each, with the fields of
its trial and environment, `median`, and `code`, the state of the user's code.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pandas as pd
from pydantic import TypeAdapter, ValidationError

from lmsweep.analysis.data.code_states import LATEST, PREVIOUS
from lmsweep.analysis.data.columns import NO_VALUE, in_order, label, labels
from lmsweep.analysis.data.process_variation import Known
from lmsweep.analysis.data.selection import select
from lmsweep.trials.results.roles import AXES, FIELDS, Role, fields_with
from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError

DEVICE = "device_name"
STORE = "store"
"""The column with the name of the store that a row is from, where several are read together."""

MOST_OPTIONS = 40
"""Maximum number of options. Of more, those with the most results are compared."""

MOST_VALUES = 8
"""Maximum number of values of a field that is compared; one with more is an axis of a chart."""

MOST_NAMED_FIELDS = 2
"""If options differ in more fields, each is named by its difference from the baseline, which is named BASELINE."""
BASELINE = "the baseline"

WAYS = (*(name for name in AXES if name not in fields_with(Role.EXTENT)), "torch_version")
"""Fields whose values can be compared, and those of their arguments. None is of an extent, such as batch_size."""

_SELF_EXPLANATORY = ("model", "precision", "attention", "optimizer", "loss", "ddp", "bucket_bytes", "code", DEVICE)
"""Fields whose values are named alone: `bf16`, not `precision bf16`."""


class Measure(NamedTuple):
    name: str
    workload: str
    values: list[str] | None
    """The values that are compared; None: the values that tables show by default."""


MEASURES = (
    Measure("training step", "timing", None),
    Measure("data-parallel step", "ddp", None),
    Measure("attention", "attention", None),
    Measure("loss", "loss", None),
    Measure("energy", "energy", ["step.energy"]),
    Measure("peak memory", "memory", ["step.peak_allocated"]),
)
"""The quantities by which options are compared, the most important first."""

STEP = "step"
PASSES = {
    "forward": "forward pass", "train_forward": "forward pass", "forward_backward": "forward and backward"
}  # fmt: skip
"""Mode -> what a step without an optimizer is called."""


class Option(NamedTuple):
    """One configuration that is compared, with its rows of `lmsweep.load(..., pooled=False)`."""

    name: str
    values: Mapping[str, str]
    rows: pd.DataFrame


@dataclass(frozen=True, kw_only=True)
class Question:
    """A comparison of options. A sweep's own question has `text`; the others are made from the fields that vary."""

    fields: tuple[str, ...]
    measure: Measure
    options: Sequence[Option]
    """The baseline first."""
    text: str = ""
    across: tuple[str, ...] = ()
    """Keys that may differ between options, in addition to `fields`."""
    over: str = ""
    """The name of the axis if the options are ordered, such as dates."""
    variation: Known | None = None
    """Variation between processes, estimated from the whole store."""

    @property
    def title(self) -> str:
        if self.fields == (DEVICE,):
            return f"Devices: {self.measure.name}"
        return f"{', '.join(self.fields[:3])}{' ...' if self.fields[3:] else ''}: {self.measure.name}"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The question of a sweep file, as its rows store it in JSON."""

    ask: str
    compare: tuple[str, ...] = ()
    baseline: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_about_numbers(self) -> bool:
        """Whether it asks how much, not which is better."""
        return not self.compare


def asked_in(frame: pd.DataFrame) -> Asked | None:
    """Return the question that the newest row with one stores; None if no row has a question, or it is malformed."""
    known = frame[frame["question"].notna()]
    if known.empty:
        return None
    try:  # a foreign row may hold anything
        asked = TypeAdapter(Asked).validate_json(known.sort_values("started_at")["question"].iloc[-1], strict=True)
    except ValidationError:
        return None
    return asked if {*asked.compare} <= {DEVICE, "workload", *WAYS, *CONFIG_FIELDS} else None


def questions(
    frame: pd.DataFrame, asked: Asked | None, across: Sequence[str], free: Sequence[str]
) -> Iterator[Question]:
    """Yield the questions that the rows of all attempts can answer, the most important first: that of the sweep,
    devices, states of the user's code, and for each measure all fields that vary together, then each leading one: a
    field of the configuration that is no argument of another.

    across: keys in which the user lets compared devices differ. free: those in which devices may differ anyway.
    """
    latest = frame[frame["code"].isna() | (frame["code"] == LATEST)]
    own = list(_asked_questions(latest, asked)) if asked and asked.compare else []
    yield from own
    if latest[DEVICE].nunique() > 1:
        for measure in measures_of(latest):
            yield from _of_fields(latest, (DEVICE,), measure, across=(*free, *across))
    states = [Option(state, {"code": state}, frame[frame["code"] == state]) for state in (PREVIOUS, LATEST)]
    if all(len(state.rows) for state in states):
        for measure in measures_of(frame):
            options = [one._replace(rows=_measured(one.rows, measure)) for one in states]
            yield Question(fields=("code",), measure=measure, options=options)
    for measure in measures_of(latest):
        rows = _measured(latest, measure)
        fields = tuple(name for name in WAYS if rows[name].nunique(dropna=False) > 1)
        if fields:
            yield from (one for one in _of_fields(latest, fields, measure) if not _repeats(one, own))
        leading = [name for name in fields if name in CONFIG_FIELDS and FIELDS[name].role is not Role.ARGUMENT]
        if len(leading) > 1:
            for name in leading:
                if rows[name].nunique(dropna=False) <= MOST_VALUES:
                    yield from _of_fields(latest, (name,), measure)


def measures_of(frame: pd.DataFrame) -> list[Measure]:
    """Return the measures that have a number in these rows. Without the optimizer, a step is no training step."""
    known = frame[frame["median"].notna()]
    found = [one for one in MEASURES if one.workload in set(known["workload"])]
    return [one._replace(name=_name_of(one, _measured(known, one))) for one in found]


def _name_of(measure: Measure, rows: pd.DataFrame) -> str:
    passes = {PASSES.get(mode, "") for mode in rows["mode"].unique()}
    if not measure.name.endswith(STEP) or passes == {""}:
        return measure.name
    # `training step` becomes `forward pass`, `data-parallel step` becomes `data-parallel forward pass`.
    kind = measure.name.removesuffix(STEP).removesuffix("training ")
    return kind + (passes.pop() if len(passes) == 1 else STEP)


def option_name(values: Mapping[str, str]) -> str:
    """Return `bf16, compile block`."""
    known = {name: _value_text(text) for name, text in values.items() if text != NO_VALUE}
    return ", ".join(text if name in _SELF_EXPLANATORY else f"{name} {text}" for name, text in known.items()) or "none"


def _value_text(text: str) -> str:
    """Return `25 MB` for the number of bytes of a bucket or a message."""
    return f"{int(text) // 1_000_000} MB" if re.fullmatch(r"\d+000000", text) else text


def _repeats(question: Question, earlier: Sequence[Question]) -> bool:
    """Whether an earlier question compares the same rows by the same fields, against any baseline. The rows of an
    asked question are a part of those of the other, so they are the same if they are as many."""
    return any(
        set(one.fields) == set(question.fields)
        and one.measure.workload == question.measure.workload
        and sum(len(option.rows) for option in one.options) == sum(len(option.rows) for option in question.options)
        for one in earlier
    )


def _asked_questions(frame: pd.DataFrame, asked: Asked) -> Iterator[Question]:
    try:
        rows = select(frame, dict(asked.where))
    except RequestError:  # these trials have not run yet
        return
    across = ("driver_version",) if DEVICE in asked.compare else ()
    for measure in measures_of(rows):
        for one in _of_fields(rows, asked.compare, measure, across=across, baseline=asked.baseline):
            yield replace(one, text=asked.ask)


def _measured(frame: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    return frame[frame["workload"] == measure.workload]


def _of_fields(
    frame: pd.DataFrame,
    fields: tuple[str, ...],
    measure: Measure,
    *,
    across: tuple[str, ...] = (),
    baseline: Mapping[str, str] | None = None,
) -> Iterator[Question]:
    """Yield the question about these fields, if they have two options or more."""
    options = _options_of(_measured(frame, measure), fields)
    if len(options) < 2:
        return
    first = options[0]  # the baseline: the plainest option or, of devices without a named baseline, the first in order
    if fields != (DEVICE,) or baseline:
        first = max(options, key=lambda one: _plainness(one, baseline))
    others = [one for one in options if one is not first]
    if len(others) >= MOST_OPTIONS:
        others = sorted(others, key=lambda one: -one.rows["measurement_id"].nunique())[: MOST_OPTIONS - 1]
    if len(fields) > MOST_NAMED_FIELDS:
        others = [one._replace(name=option_name(_differing(one.values, first.values))) for one in others]
        first = first._replace(name=BASELINE)
    yield Question(fields=fields, measure=measure, options=[first, *others], across=across)


def _options_of(rows: pd.DataFrame, fields: tuple[str, ...]) -> list[Option]:
    """Return an option for each combination of these fields' values, in natural order."""
    first_rows = in_order(rows.drop_duplicates(list(fields)), list(fields))
    if fields == (DEVICE,) and STORE in rows:  # the devices of the page's own store come first
        stores = list(rows[STORE].unique())
        first_rows = first_rows.sort_values(STORE, key=lambda names: names.map(stores.index), kind="stable")
    texts, short = {name: labels(rows[name]) for name in fields}, _short_devices(rows)
    lacked_by_some = {name for name in fields if NO_VALUE in set(texts[name])}
    options = []
    for combination in first_rows[list(fields)].itertuples(index=False, name=None):
        values = dict(zip(fields, map(label, combination), strict=True))
        chosen = pd.concat([texts[name] == text for name, text in values.items()], axis=1).all(axis=1)
        # `bf16`                beside `bf16, compile block`: the value none is left out
        # `compile none`        if there is no other value
        # `bf16, compile none`  beside `bf16`, an option of rows that lack a value of the field
        named = {name: text for name, text in values.items() if text != "none" or name in lacked_by_some} or values
        if DEVICE in values:
            named = {**named, DEVICE: short[values[DEVICE]]}
        options.append(Option(option_name(named), values, rows[chosen]))
    return options


def _differing(values: Mapping[str, str], baseline: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in values.items() if text != baseline[name]}


def _plainness(option: Option, baseline: Mapping[str, str] | None) -> tuple[bool, int, int]:
    """Rank an option as baseline: the larger, the better.

    First, unless the sweep names a baseline, whether it ran to its end: nothing can be compared with one that ran out
    of memory, say. Then how many fields have the values of the named baseline or, without one, their defaults. Then the
    number of results; if no field has such a value it counts as 0, and the first option in natural order is chosen.
    """
    wanted = baseline or {name: label(CONFIG_FIELDS[name].default) for name in option.values if name in CONFIG_FIELDS}
    same = sum(option.values.get(name) == text for name, text in wanted.items())
    ran = baseline is not None or bool(option.rows["median"].notna().any())
    return ran, same, option.rows["measurement_id"].nunique() if same else 0


def _short_devices(rows: pd.DataFrame) -> dict[str, str]:
    """Device name -> its accelerator type, or the name itself if several devices have that type."""
    kinds = rows.drop_duplicates(DEVICE).set_index(DEVICE)["accelerator_type"]
    counts = kinds.value_counts()
    return {str(name): str(kind) if pd.notna(kind) and counts[kind] == 1 else str(name) for name, kind in kinds.items()}
