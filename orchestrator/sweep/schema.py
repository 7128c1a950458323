"""Defines what a sweep file may contain. A field added to TrialConfig is an axis here."""

import json
import re
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    model_validator,
)

from lmsweep.orchestrator.software import read_software
from lmsweep.orchestrator.sweep.located_yaml import shown
from lmsweep.orchestrator.sweep.ranges import seconds_of
from lmsweep.orchestrator.sweep.users_code import Fields, argument_of, read_code, size_fields
from lmsweep.trials.lengths.length_forms import read_lengths
from lmsweep.trials.spec.config import (
    ARGUMENTS,
    AUTO_FIELDS,
    CONFIG_FIELDS,
    DIVIDES,
    WORDS,
    WORDS_OR_NUMBERS,
    TrialConfig,
    word_or_number,
)
from lmsweep.trials.spec.model_sizes import PLAIN_DIMENSIONS, SHAPE_FIELDS
from lmsweep.trials.spec.quantities import bytes_of
from lmsweep.trials.spec.reference import canonical, is_reference
from lmsweep.trials.spec.suggestions import choices
from lmsweep.trials.spec.workloads import workloads

VARYING = ("axes", "zip")
"""The keys of a grid under which fields have lists of values."""

DEVICES = ("cpu", "mps", "xpu", "cuda", "cuda:*", "cuda:TYPE")
"""How a device may be written; TYPE is an accelerator type as Ray names it (H200, A100, ...)."""

SKELETON = """\
name: my-sweep
grids:
  - workloads: [timing]
    axes: {model: [small, medium], context_length: [256, 512], precision: [fp32, bf16]}
    fixed: {device: cuda, batch_size: 4}"""
"""The example in error messages."""

_DEVICE = re.compile(r"cpu|mps|xpu|cuda(:(\*|[A-Za-z0-9-]+))?")
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
HINTS = get_type_hints(TrialConfig)


def is_not(value: object, noun: str, words: Iterable[str]) -> str:
    """Return `'bf61' is not a precision; did you mean bf16? (one of: fp32, bf16)`."""
    return f"{shown(value)} is not {'an' if noun[0] in 'aeiou' else 'a'} {noun}{choices(value, words)}"


def _device(value: str) -> str:
    if re.fullmatch(r"cuda:\d+", value):
        raise ValueError(
            f"{value} is PyTorch's name of a single GPU; write cuda (each trial gets a GPU of its own; "
            "CUDA_VISIBLE_DEVICES limits which)"
        )
    if type_ := re.fullmatch(r"([A-Za-z]{1,3} ?\d{1,4}[A-Za-z]{0,2})(?:[- ].*)?", value):  # H100, A100-80GB
        ours = type_[1].replace(" ", "").upper()
        raise ValueError(
            f"{shown(value)} is not a device; write cuda for the GPU of this machine, or cuda:{ours} on a cluster with "
            "several types"
        )
    if not _DEVICE.fullmatch(value):
        raise ValueError(is_not(value, "device", DEVICES))
    return value


def _workload(value: object) -> object:
    if is_reference(value):
        return canonical(str(value))
    if not isinstance(value, str) or value not in workloads():
        raise ValueError(f"{is_not(value, 'workload', workloads())}, or your own as package.module:measure")
    return value


def _size(value: object, validated: ValidatorFunctionWrapHandler) -> object:
    if not isinstance(value, str):
        return validated(value)
    size = bytes_of(value)
    if size is None:
        raise ValueError(f"{shown(value)} is not a size; write one such as 40GB or 24GiB, or a whole number of bytes")
    return validated(size)


def _word_or_number(name: str, value: object) -> str:
    written = str(value).lower() if isinstance(value, bool) else str(value)  # YAML reads some words as booleans
    if type(value) is int or written.isdecimal() or written in WORDS_OR_NUMBERS[name]:
        return word_or_number(name, value)
    raise ValueError(is_not(value, name, WORDS_OR_NUMBERS[name]) + "; a whole number is possible too")


def _lengths(value: object) -> str:
    text = str(value)
    if not (type(value) in (int, str) and text.isdecimal() and int(text) > 0):
        read_lengths(text)  # raises RequestError if it is none
    return text


def _one_line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError(f"{shown(value)} is not a name; give one line of text")
    return value


def _duration(value: str) -> str:
    seconds_of(value)
    return value


def _within_limits(name: str) -> AfterValidator:
    """Return a validator that applies TrialConfig's checks to one field, with valid values in the others."""

    def check(value: Any) -> Any:
        if isinstance(value, int) and value >= 2**63:  # the store's columns are int64
            raise ValueError(f"{name} is {value}; it must be less than 2**63")
        others: dict[str, Any] = {"d_model": 2, "num_layers": 1}  # the least model: a head has an even width
        if name == "num_heads":
            others["d_model"] = 2 * max(1, value or 1)  # heads divide the width, into even parts
        elif name == "active_experts":
            others["num_experts"] = value  # no more are active than there are
        elif name in DIVIDES:
            others[DIVIDES[name]] = max(1, value)  # the field divides itself; 0 is refused as such, not as a divisor
        TrialConfig(**(others | {name: value}))
        return value

    return AfterValidator(check)


def _size_or_code(value: Any, validated: ValidatorFunctionWrapHandler) -> object:
    """Return the fields of the name of a size, of a mapping of dimensions, or of the user's model."""
    ours = {"model": None, "model_code": None}  # of a model that is lmsweep's
    if isinstance(value, str) and (named := size_fields(value)):
        return Fields(values=ours | named)
    if isinstance(value, dict) and not {"call", "hf"} & set(value):
        dimensions = validated(value).model_dump()
        TrialConfig(**dimensions)  # raises RequestError if they contradict one another
        return Fields(values=ours | dimensions)
    return read_code("model", value)


_dimension_types: dict[str, Any] = {name: (Annotated[int, _within_limits(name)], ...) for name in PLAIN_DIMENSIONS}
_dimension_types |= {name: (HINTS[name], CONFIG_FIELDS[name].default) for name in SHAPE_FIELDS}
_Dimensions = create_model("_Dimensions", __config__=_STRICT, **_dimension_types)


def _type_of(name: str) -> Any:
    if name == "model":
        return Annotated[_Dimensions, WrapValidator(_size_or_code)]
    if name == "lengths":
        return Annotated[Any, BeforeValidator(_lengths)]
    if name == "software":
        return Annotated[Any, BeforeValidator(read_software)]
    if name in WORDS_OR_NUMBERS:
        return Annotated[Any, BeforeValidator(partial(_word_or_number, name))]
    if name in WORDS or name == "step":
        return Annotated[Any, BeforeValidator(partial(read_code, name))]
    if name == "device":
        return Annotated[str, AfterValidator(_device)]
    if name in AUTO_FIELDS:
        auto_or_number = WrapValidator(lambda value, validated: value if value == "auto" else validated(value))
        return Annotated[int, _within_limits(name), auto_or_number]  # the last one is asked first, and lets auto pass
    if name == "memory_budget":  # an amount of memory, for which a unit may be written
        return Annotated[HINTS[name], _within_limits(name), WrapValidator(_size)]
    return Annotated[HINTS[name], _within_limits(name)]


class _Fields(BaseModel):
    """Fields, without the arguments of the user's code under keys such as `model_args.theta`."""

    model_config = _STRICT

    @model_validator(mode="before")
    @classmethod
    def _without_arguments(cls, data: Any) -> Any:
        is_mapping = isinstance(data, dict)
        return {name: data[name] for name in data if not argument_of(str(name))} if is_mapping else data


FIELDS = [name for name in CONFIG_FIELDS if name not in ("model_code", *ARGUMENTS.values())]
"""The fields that a sweep file gives directly. The others are parts of a model, an attention, ..."""

_row_types: dict[str, Any] = {name: (_type_of(name), None) for name in FIELDS}
_axis_types: dict[str, Any] = {
    name: (Annotated[list[_type_of(name)], Field(min_length=1)], None)  # type: ignore[misc]
    for name in FIELDS
}
Row = create_model("Row", __base__=_Fields, **_row_types)
"""Fields with one value each; read it with `given`."""
Axes = create_model("Axes", __base__=_Fields, **_axis_types)
"""Fields with a list of values each; read it with `given`."""


class GridFile(BaseModel):
    """One grid as written in the file. A key that is left out is None; its type refuses a `null` in the file."""

    model_config = _STRICT
    name: Annotated[str, AfterValidator(_one_line)] = None  # type: ignore[assignment]
    workloads: Annotated[list[Annotated[str, BeforeValidator(_workload)]], Field(min_length=1)]
    axes: Axes = None  # type: ignore[valid-type]
    zip: Axes = None  # type: ignore[valid-type]
    fixed: Row = None  # type: ignore[valid-type]
    exclude: list[Row] = []  # type: ignore[valid-type]
    include: list[Row] = []  # type: ignore[valid-type]


_Scalar = str | int | float | bool


def _key(value: str) -> str:
    known = (*FIELDS, *ARGUMENTS.values(), "device_name", "torch_version", "workload")
    if value not in known:
        raise ValueError(is_not(value, "field", known))
    return value


Key = Annotated[str, AfterValidator(_key)]


class QuestionFile(BaseModel):
    """What a sweep asks: its report begins with the answer."""

    model_config = _STRICT
    ask: Annotated[str, AfterValidator(_one_line)]
    compare: list[Key] = []
    baseline: dict[Key, _Scalar] = {}
    """The values of the fields that the others are compared with; without it, their defaults or their first values."""
    where: dict[Key, _Scalar] = {}
    """Conditions on the results that answer it."""

    def stored(self) -> str:
        """Return the JSON that rows store, with values as tables show them."""
        parts: dict[str, object] = {"ask": self.ask, "compare": self.compare}
        for name in ("baseline", "where"):
            values = getattr(self, name).items()
            parts[name] = {key: str(one).lower() if isinstance(one, bool) else str(one) for key, one in values}
        return json.dumps({name: part for name, part in parts.items() if part}, sort_keys=True)


class SweepFile(BaseModel):
    """A sweep file as written; its grids are validated one by one."""

    model_config = _STRICT
    name: Annotated[str, AfterValidator(_one_line)]
    description: str = ""
    question: QuestionFile = None  # type: ignore[assignment]
    budget: Annotated[str, AfterValidator(_duration)] = None  # type: ignore[assignment]
    code: str = None  # type: ignore[assignment]
    grids: Annotated[list[Any], Field(min_length=1)]


def given(row: BaseModel | None, written: dict[str, Any] | None) -> dict[str, Any]:
    """Return the fields that were given, with their validated values, and arguments as written, in the file's order."""
    return {name: value if argument_of(name) else getattr(row, name) for name, value in (written or {}).items()}
