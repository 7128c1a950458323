"""What `--format json` prints, verb by verb: the models that `lmsweep schema VERB` writes as JSON Schema."""

from dataclasses import fields
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from lmsweep.analysis.acceptance.accept_page import AcceptOutput
from lmsweep.analysis.comparison.compare import VERDICTS
from lmsweep.analysis.metrics.status import StatusOutput
from lmsweep.orchestrator.fitting.fit import FitsOutput
from lmsweep.orchestrator.planning.plan import Action
from lmsweep.trials.analytic.memory_prediction import Dimension
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig

Scalar = str | int | float | bool | None
Interval = tuple[float, float] | None
Verdict = Literal[VERDICTS]  # type: ignore[valid-type]  # a tuple of words


class Closed(BaseModel):
    """An object without other fields."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Line(BaseModel):
    """An object whose other fields are what distinguishes the lines: fields of the configuration and environment."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)
    __pydantic_extra__: dict[str, Scalar] = Field(init=False)


def _closed(record: type, **more: Any) -> type[BaseModel]:
    """Return the fields of a dataclass, all of them required, as a model."""
    hints = get_type_hints(record)
    found: dict[str, Any] = {one.name: (hints[one.name], ...) for one in fields(record)} | more
    return create_model(record.__name__, __config__=ConfigDict(extra="forbid"), **found)


Config = _closed(TrialConfig)


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


class Printed(Closed):
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
    """A preset, `compare --with` and `diff`: one line per item."""

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


class PlannedTrial(Closed):
    trial_id: str
    config: Config  # type: ignore[valid-type]
    workloads: list[str]
    action: Action
    reason: str | None
    process: int | None
    device_name: str
    predicted_peak_bytes: int | None
    predicted_peak_reason: str | None
    expected_seconds: float | None
    expected_seconds_reason: str | None
    expected_step_seconds: float | None = None
    """This field and the next: only of trials whose workloads measure steps of a GPU."""
    expected_step_seconds_between: Interval = None
    expected_exposed_seconds: float | None = None
    expected_step_source: str | None = None
    expected_step_reason: str | None = None
    expected_exposed_parts: dict[str, float] | None = None
    """This field and the next: only of several nodes."""
    expected_tokens_per_second: float | None = None
    expected_dollars_per_billion_tokens: float | None = None
    worth_up_to_gpus: int | None = None


class PlanOutput(Closed):
    sweep: str
    trials: list[PlannedTrial]
    counts: dict[Action, int]
    expected_seconds: float | None
    expected_seconds_between: Interval
    expected_seconds_reason: str | None
    expected_dollars: float | None
    expected_dollars_reason: str | None


class Frontier(Closed):
    config: Config  # type: ignore[valid-type]
    dimension: Dimension
    largest: int | None
    """What certainly fits."""
    possible: int | None
    """What may fit."""
    reason: str | None
    device_name: str
    budget_bytes: int


class FrontierOutput(Closed):
    """`plan --max-batch` and `--max-context`"""

    frontier: list[Frontier]


class ClassOfOperators(Closed):
    seconds: float
    source: str


class StepOutput(Closed):
    """`plan --explain`"""

    trial_id: str
    device_name: str
    expected_step_seconds: float
    expected_step_seconds_between: tuple[float, float]
    measured_per_predicted: float
    host_seconds: float
    device_seconds: float
    collectives_seconds: float
    exposed_seconds: float
    launches: int
    flops: float
    parts: dict[str, dict[str, float]]
    """Part of the model -> class of operators -> seconds."""
    classes: dict[str, ClassOfOperators]


OUTPUTS: dict[str, Any] = {
    "accept": AcceptOutput,
    "status": StatusOutput,
    "table": Pivot | ListingOutput,
    "compare": Compared | Explained | ListingOutput,
    "diff": ListingOutput,
    "plan": PlanOutput | FrontierOutput | StepOutput,
    "fits": FitsOutput,
}
"""Verb -> the record or model of its output."""
DESCRIBED = {AcceptOutput: "`accept`, and the file beside its page"}
"""Records that are printed by some options of a verb -> these."""


class _RecordSchema(GenerateJsonSchema):
    """The schema of what is printed of records: all fields of a dataclass, and no others."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)

    def dataclass_field_schema(self, schema: core_schema.DataclassField) -> dict[str, Any]:
        inner: Any = schema["schema"]
        return self.generate_inner(inner["schema"] if inner["type"] == "default" else inner)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> dict[str, Any]:
        found = super().dataclass_schema(schema) | {"additionalProperties": False}
        found.pop("description", None)  # releases of pydantic differ about the docstring
        for one in found["properties"].values():
            one.pop("readOnly", None)
        words = DESCRIBED.get(schema["cls"])
        return found | ({"description": words} if words else {})


def schema_of(verb: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of what a verb prints."""
    found = TypeAdapter(OUTPUTS[verb]).json_schema(mode="serialization", schema_generator=_RecordSchema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | found
