"""Defines what a sweep file may contain, and the error messages for anything else.

Fields and types come from TrialConfig: a field added there is an axis here.
"""

import re
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any, Self, TypeVar, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler  # a name of pydantic itself since 2.12 only

from lmsweep.orchestrator.sweep.hints import instead, instead_of_an_axis
from lmsweep.orchestrator.sweep.located_yaml import Document, KeyPath, Problem, shown
from lmsweep.orchestrator.sweep.own_code import ALL_DIMENSIONS, DIMENSIONS, Fields, argument_of, read_code, size_fields
from lmsweep.orchestrator.sweep.ranges import seconds_of
from lmsweep.orchestrator.sweep.software_axis import read_software
from lmsweep.trials.spec.config import (
    ARGUMENTS,
    AUTO_FIELDS,
    CONFIG_FIELDS,
    WORDS,
    WORDS_OR_NUMBERS,
    TrialConfig,
    word_or_number,
)
from lmsweep.trials.spec.model_sizes import SHAPE_FIELDS, SIZES
from lmsweep.trials.spec.quantities import bytes_of
from lmsweep.trials.spec.reference import canonical, is_reference
from lmsweep.trials.spec.suggestions import choices, known_elsewhere, nearest
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

SIZE_FIELDS = ("memory_budget",)
"""Amounts of memory, for which a unit may be written."""

_DEVICE = re.compile(r"cpu|mps|xpu|cuda(:(\*|[A-Za-z0-9-]+))?")
_SETTING = re.compile(r"\w+ ?[:=] ?\S")
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_HINTS = get_type_hints(TrialConfig)


def is_not(value: object, noun: str, words: Iterable[str]) -> str:
    """Return `'bf61' is not a precision; did you mean bf16? (one of: fp32, bf16)`."""
    article = "an" if noun[0] in "aeiou" else "a"
    return f"{shown(value)} is not {article} {noun}{choices(value, words)}"


def _device(value: str) -> str:
    if re.fullmatch(r"cuda:\d+", value):
        raise ValueError(
            f"{value} is PyTorch's name of a single GPU; write cuda (each trial gets a GPU of its own; "
            "CUDA_VISIBLE_DEVICES limits which)"
        )
    if type_ := re.fullmatch(r"([A-Za-z]{1,3} ?\d{1,4}[A-Za-z]{0,2})(?:[- ].*)?", value):
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


def _auto_or_number(value: object, number: ValidatorFunctionWrapHandler) -> object:
    return value if value == "auto" else number(value)


def _size(value: object, number: ValidatorFunctionWrapHandler) -> object:
    """Bytes, which a text such as `40GB` also says."""
    if not isinstance(value, str):
        return number(value)
    size = bytes_of(value)
    if size is None:
        raise ValueError(f"{shown(value)} is not a size; write one such as 40GB or 24GiB, or a whole number of bytes")
    return number(size)


def _word_or_number(name: str, value: object) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    written = str(value).lower() if isinstance(value, bool) else str(value)
    if is_number or written.isdecimal() or written in WORDS_OR_NUMBERS[name]:
        return word_or_number(name, value)
    raise ValueError(is_not(value, name, WORDS_OR_NUMBERS[name]) + "; a whole number is possible too")


def _one_line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError(f"{shown(value)} is not a name; give one line of text")
    return value


def _duration(value: str) -> str:
    seconds_of(value)
    return value


def _within_limits(name: str) -> AfterValidator:
    """Return a validator that applies TrialConfig's own checks to one field, with valid values in the others."""

    def check(value: Any) -> Any:
        if isinstance(value, int) and value >= 2**63:
            raise ValueError(f"{name} is {value}; it must be less than 2**63")
        width = 2 * max(1, value or 1) if name == "num_heads" else 2
        divided = {"nodes": "world_size", "tp": "world_size", "accumulate": "batch_size"}.get(name)
        whole = {divided: max(1, value)} if divided else {}
        experts = value if name == "active_experts" else None
        TrialConfig(**{"d_model": width, "num_layers": 1, "num_experts": experts, **whole, name: value})
        return value

    return AfterValidator(check)


def _model(value: object) -> object:
    """Return a mapping of dimensions, to be validated, or the Fields of the user's own model."""
    if isinstance(value, dict) and not {"call", "hf"} & set(value):
        return value
    if isinstance(value, str) and value in SIZES:
        return size_fields(value)
    return read_code("model", value)


def _size_or_code(value: Any, size: ValidatorFunctionWrapHandler) -> Fields:
    found = _model(value)
    if isinstance(found, Fields):
        return found
    assert isinstance(found, dict)
    of_name = {"vocab_size": found.pop("vocab_size")} if isinstance(value, str) and "vocab_size" in found else {}
    dimensions = size(found).model_dump() | of_name
    TrialConfig(**dimensions)
    return Fields(values={"model": None, "model_code": None} | dimensions)


_dimension_types: dict[str, Any] = {name: (Annotated[int, _within_limits(name)], ...) for name in DIMENSIONS}
_dimension_types |= {name: (_HINTS[name], CONFIG_FIELDS[name].default) for name in SHAPE_FIELDS}
_Dimensions = create_model("_Dimensions", __config__=_STRICT, **_dimension_types)


def _type_of(name: str) -> Any:
    if name == "model":
        return Annotated[_Dimensions, WrapValidator(_size_or_code)]
    if name == "software":
        return Annotated[Any, BeforeValidator(read_software)]
    if name in WORDS_OR_NUMBERS:
        return Annotated[Any, BeforeValidator(partial(_word_or_number, name))]
    if name in WORDS or name == "step":
        return Annotated[Any, BeforeValidator(partial(read_code, name))]
    if name == "device":
        return Annotated[str, AfterValidator(_device)]
    if name in AUTO_FIELDS:
        return Annotated[int, _within_limits(name), WrapValidator(_auto_or_number)]
    if name in SIZE_FIELDS:
        return Annotated[_HINTS[name], _within_limits(name), WrapValidator(_size)]
    return Annotated[_HINTS[name], _within_limits(name)]


class _WithArguments(BaseModel):
    """Fields, and arguments of the user's own code under keys such as `model_args.theta`."""

    model_config = _STRICT
    _arguments: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _take_arguments(cls, data: Any, fields: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, dict):
            return fields(data)
        found = fields({name: value for name, value in data.items() if not argument_of(str(name))})
        found._arguments = {name: value for name, value in data.items() if argument_of(str(name))}
        return found


FIELDS = [name for name in CONFIG_FIELDS if name not in ("model_code", *ARGUMENTS.values())]
"""The fields that a sweep file gives directly. The others are parts of a model, an attention, ..."""

_row_types: dict[str, Any] = {name: (_type_of(name), None) for name in FIELDS}
_axis_types: dict[str, Any] = {
    name: (Annotated[list[_type_of(name)], Field(min_length=1)], None)  # type: ignore[misc]
    for name in FIELDS
}
Row = create_model("Row", __base__=_WithArguments, **_row_types)
"""Fields with one value each; read it with `given`."""
Axes = create_model("Axes", __base__=_WithArguments, **_axis_types)
"""Fields with a list of values each; read it with `given`."""


class GridFile(BaseModel):
    """One grid as written in the file."""

    model_config = _STRICT
    name: Annotated[str, AfterValidator(_one_line)] = None  # type: ignore[assignment]
    workloads: Annotated[list[Annotated[str, BeforeValidator(_workload)]], Field(min_length=1)]
    axes: Axes = None  # type: ignore[valid-type]
    zip: Axes = None  # type: ignore[valid-type]
    fixed: Row = None  # type: ignore[valid-type]
    exclude: list[Row] = []  # type: ignore[valid-type]
    include: list[Row] = []  # type: ignore[valid-type]


class SweepFile(BaseModel):
    """A sweep file as written; its grids are validated one by one."""

    model_config = _STRICT
    name: Annotated[str, AfterValidator(_one_line)]
    description: str = ""
    budget: Annotated[str, AfterValidator(_duration)] = None  # type: ignore[assignment]
    code: str = None  # type: ignore[assignment]
    grids: Annotated[list[Any], Field(min_length=1)]


def given(row: BaseModel | None, written: dict[str, Any] | None) -> dict[str, Any]:
    """Return the fields that were given, with their validated values, in the order of the file."""
    return {
        name: row._arguments[name] if isinstance(row, _WithArguments) and name in row._arguments else getattr(row, name)
        for name in written or {}
    }


Validated = TypeVar("Validated", bound=BaseModel)


def validate(
    kind: type[Validated], data: object, path: KeyPath = (), document: Document | None = None
) -> tuple[Validated | None, list[Problem]]:
    """Return the data as an object of this class, or None and everything that is wrong with it."""
    try:
        return kind.model_validate(data), []
    except ValidationError as error:
        found = error.errors(include_url=False)
    problems = []
    for item in found:
        loc: KeyPath = (*path, *item["loc"])
        line = document.line(loc) if document else None
        problems.append(Problem(line=line, path=_where(item["type"], loc), message=_message(item, loc)))
    return None, problems


def _where(kind: str, path: KeyPath) -> KeyPath:
    if kind == "missing":
        return path[:-1]
    # The message quotes a value in a list of values; its index would tell the reader nothing.
    if len(path) > 1 and isinstance(path[-1], int) and path[-2] not in ("grids", "exclude", "include"):
        return path[:-1]
    return path


def _legal_keys(path: KeyPath) -> tuple[str, Iterable[str]]:
    """Return what a key of the mapping at this place is called, and the legal keys."""
    names = [step for step in path if isinstance(step, str)]
    if not names:
        return "key", SweepFile.model_fields
    if names[-1] == "grids":
        return "key", GridFile.model_fields
    if names[-1] == "model":
        return "dimension", ALL_DIMENSIONS
    return ("axis" if names[-1] in VARYING else "field"), FIELDS


def _is_of_a_grid(key: object) -> bool:
    return key in GridFile.model_fields or key in CONFIG_FIELDS or bool(known_elsewhere(key, CONFIG_FIELDS))


def unknown(noun: str, key: object, words: Iterable[str]) -> str:
    """Return `unknown field; did you mean model?`, or what the key is called here."""
    ours = known_elsewhere(key, words)
    return f"unknown {noun}; it is called {ours} here" if ours else f"unknown {noun}{choices(key, words)}"


def is_field(key: object) -> bool:
    """Return whether a key of a grid is a field, or probably means one."""
    return _field_of(key) is not None


def _field_of(key: object) -> str | None:
    """Return the field that a key names or probably means; None if it rather means a key of a grid."""
    if key in FIELDS:
        return str(key)
    return None if nearest(key, GridFile.model_fields) else nearest(key, FIELDS)


def _beside_the_workloads(field: str, written: object, value: object) -> str:
    named = "" if written == field else f", {field} here"
    if isinstance(value, list):
        return f"is an axis{named}; move it below axes"
    return f"is a field{named}; move it below fixed, or with several values below axes"


def names_values(path: KeyPath) -> bool:
    """Whether a key below axes is a further value of the axis before it, as 2 in `{batch_size: 1, 2}`."""
    return len(path) > 2 and path[-2] in VARYING and bool(re.fullmatch(r"[\d.]+|.*\)", str(path[-1])))


def _message(error: Any, path: KeyPath) -> str:
    kind, value = error["type"], error["input"]
    name = next(step for step in reversed(path) if isinstance(step, str)) if path else ""
    if kind == "extra_forbidden":
        noun, words = _legal_keys(path[:-1])
        if len(path) == 1 and _is_of_a_grid(path[-1]):
            return "belongs in a grid"
        if len(path) == 3 and path[0] == "grids" and (field := _field_of(path[-1])):
            return _beside_the_workloads(field, path[-1], value)
        if names_values(path):
            return "is not an axis; several values go in brackets, as in batch_size: [1, 2, 4]"
        if len(path) == 1 and isinstance(value, (dict, list)) and not nearest(path[-1], words):
            return f"unknown {noun}; begin its name with x- if it only holds anchors{choices(path[-1], words)}"
        return unknown(noun, path[-1], words)
    if kind == "missing":
        return f"{name} is missing"
    if isinstance(value, list) and name in CONFIG_FIELDS and not set(VARYING) & set(path):
        return "is a list; give a single value here, or move it to axes"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "literal_error":
        return is_not(value, name, get_args(_HINTS[name]))
    if kind == "too_short" or (kind == "list_type" and value is None):
        return "is empty; give at least one"
    if kind == "list_type" and isinstance(value, dict) and {"value", "values"} & set(value):
        return "is a mapping; write just the list of values, in brackets"
    if kind == "list_type" and name in CONFIG_FIELDS:
        return f"{shown(value)} is a single value; {instead_of_an_axis(value)}"
    if kind == "list_type" and name == "workloads" and isinstance(value, str):
        return f"{shown(value)} is not a list; write [{value}]"
    expected = {
        "list_type": "a list",
        "model_type": "a mapping of keys to values"
        + ("; write a colon and a space after each key, as in model: tiny" if _SETTING.match(str(value)) else ""),
        "string_type": "a time; write one such as 30m or 2h" if path == ("budget",) else "text",
        "int_type": "a whole number or auto" if name in AUTO_FIELDS else "a whole number",
        "float_type": "a number",
        "bool_type": "true or false",
        "finite_number": "a number",
    }
    taken = {"int_type": "int", "float_type": "float", "bool_type": "bool", "finite_number": "float"}.get(kind)
    return f"{shown(value)} is not {expected[kind]}" + (instead(value, kind=taken, field=name) if taken else "")
