"""The JSON Schema of what `--format json` prints, verb by verb: from records, and from models of tables."""

from pkgutil import resolve_name
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from lmsweep.analysis.comparison.compare import VERDICTS
from lmsweep.orchestrator.feature import registered
from lmsweep.trials.results.outcome import Flag

Scalar = str | int | float | bool | None
Verdict = Literal[VERDICTS]  # type: ignore[valid-type]  # a tuple of words


class Line(BaseModel):
    """A line of a table. Its extra fields are its keys: fields of the configuration and environment."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)
    __pydantic_extra__: dict[str, Scalar] = Field(init=False)


class Cell(Line):
    value: str
    """PHASE.METRIC"""
    unit: str | None
    status: str
    median: float | None
    low: float | None
    high: float | None
    flags: list[str]
    reason: str


class Printed(BaseModel):  # what all tables have
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    title: str
    conditions: dict[str, str]
    """What has the same value in all lines."""
    flags: dict[Flag, str]
    """What each flag in the results means."""
    notes: list[str]


class Pivot(Printed):
    differing: dict[str, Any]
    """What differs in some cells only."""
    results: list[Cell]


class ListingOutput(Printed):
    """A preset, `compare --with` and `compare --environment`: one line per item."""

    units: dict[str, str]
    results: list[dict[str, Scalar | list[str]]]


class ComparedCell(Line):
    value: str
    """PHASE.METRIC"""
    baseline: float | None
    baseline_low: float | None
    baseline_high: float | None
    contrast: float | None
    contrast_low: float | None
    contrast_high: float | None
    ratio: float | None
    """contrast / baseline"""
    ratio_low: float | None
    ratio_high: float | None
    p: float | None
    """Adjusted for the number of cells."""
    flags: list[str]
    verdict: Verdict


class Compared(Printed):
    units: dict[str, str]
    results: list[ComparedCell]


class Cause(Line):
    cause: str
    baseline: float | None
    contrast: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    share: float | None
    """Of the difference of the step."""
    change: str


class Explained(Printed):
    """`compare --explain`"""

    units: dict[str, str]
    results: list[Cause]


_CORE: dict[str, Any] = {"table": Pivot | ListingOutput, "compare": Compared | Explained | ListingOutput}
"""Verb -> the record or model of its output, without those of features."""


def _output_of(verb: str) -> Any:
    named = registered("outputs", _CORE)
    output = _CORE[verb] if verb in _CORE else resolve_name(named[verb])
    for name in named:
        if name.startswith(f"{verb} "):  # of an option that another feature adds, such as `plan --explain`
            output |= resolve_name(named[name])
    return output


class _RecordSchema(GenerateJsonSchema):
    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> dict[str, Any]:
        """Describe what is printed of a dataclass: all of its fields, and no others. Its docstring is left out, because
        it is for readers of the code, unless it begins with a command, as in `plan --explain`."""
        described = super().dataclass_schema(schema)
        described |= {
            "additionalProperties": False,
            "required": [*described["properties"]],
            "description": schema["cls"].__doc__,
        }
        for one in described["properties"].values():
            for key in ("default", "readOnly"):
                one.pop(key, None)
        if not described["description"].startswith("`"):
            del described["description"]
        return described


def schema_of(verb: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of what a verb prints."""
    described = TypeAdapter(_output_of(verb)).json_schema(mode="serialization", schema_generator=_RecordSchema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | described
