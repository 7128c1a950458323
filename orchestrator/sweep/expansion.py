"""Combines values of configuration fields into configurations."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from operator import attrgetter
from typing import Any

from lmsweep.orchestrator.sweep.located_yaml import KeyPath, Problem
from lmsweep.orchestrator.sweep.own_code import ALL_DIMENSIONS, DIMENSIONS, Fields, in_json
from lmsweep.orchestrator.terminal import counting
from lmsweep.trials.spec.config import COMBINATION_FIELDS, CONFIG_FIELDS, RequestError, TrialConfig
from lmsweep.trials.spec.model_sizes import SHAPE_FIELDS, SIZES, ModelSize, size_name
from lmsweep.trials.spec.reference import HUGGING_FACE
from lmsweep.trials.spec.workloads import workload_named

_OFFERED = ("vocab_size", "context_length", *DIMENSIONS)
_DEFAULTS = {name: f.default for name, f in CONFIG_FIELDS.items()}


@dataclass(frozen=True, kw_only=True)
class Block:
    """Values of some fields, of which all combinations are formed: a grid's axes, or one of its include rows."""

    path: KeyPath
    """The keys that lead to it in the file."""
    line: int
    """Its line in the file."""
    workloads: list[str]
    """Names from `lmsweep.trials.spec.workloads`."""
    name: str | None = None
    """The name of its grid."""
    values: dict[str, list[object]]
    """Field -> its values; a fixed field has one."""
    together: list[dict[str, Any]] = field(default_factory=list)
    """Rows of values for fields that vary together (`zip`). Each row is combined with all of `values`."""
    exclude: list[dict[str, Any]] = field(default_factory=list)
    """Combinations to leave out, as fields and values; a model is given by its dimensions."""

    @property
    def count(self) -> int:
        """The number of combinations, including the excluded ones."""
        return math.prod(len(values) for values in self.values.values()) * max(1, len(self.together))

    @property
    def devices(self) -> list[str]:
        """The values of `device`."""
        together = [row["device"] for row in self.together if "device" in row]
        return [str(device) for device in together or self.values.get("device") or [_DEFAULTS["device"]]]

    @property
    def has_arguments(self) -> bool:
        """Whether any value comes with arguments of the user's own code, or is one."""
        listed = [*self.values.items(), *((name, [row[name]]) for row in self.together for name in row)]
        return any("." in name for name, _ in listed) or any(
            "." in name
            for _, values in listed
            for value in values
            if isinstance(value, Fields)
            for name in value.values
        )

    def problem(self, message: str) -> Problem:
        """Return a Problem, at its place in the file, about one or all of its combinations."""
        return Problem(line=self.line, path=self.path, message=message)


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """The configurations of a sweep."""

    wanted: dict[TrialConfig, list[str]]
    """Configuration -> its workloads, without those that another configuration measures: the one with the most
    processes, or the earliest of these."""
    problems: list[Problem]
    """What is wrong with combinations."""
    idle: list[KeyPath]
    """The rows of `exclude` that exclude nothing."""


def expand(blocks: list[Block]) -> Expansion:
    """Return the configurations of all blocks, and what is wrong with them."""
    wanted: dict[TrialConfig, list[str]] = {}
    problems: dict[Problem, None] = {}
    asked: dict[Any, TrialConfig] = {}
    idle: list[KeyPath] = []
    for block in blocks:
        everything_excluded = True
        matched = [False] * len(block.exclude)
        for arguments in counting(_combinations(block, matched), "read {} combinations"):
            everything_excluded = False
            lacking = _lacking(block.workloads, arguments)
            if lacking:
                problems[block.problem(lacking)] = None
                continue
            try:
                config = TrialConfig(**arguments)
            except RequestError as error:
                problems[block.problem(str(error))] = None
                continue
            for workload in block.workloads:
                question = (workload, _fields_of(workload)(config))
                before = asked.get(question)
                if before is None or config.processes > before.processes:
                    asked[question] = config
                    wanted.setdefault(config, []).append(workload)
                    if before:
                        wanted[before].remove(workload)
        if everything_excluded:
            problems[block.problem("every combination is excluded")] = None
        idle += [(*block.path, "exclude", index) for index, one in enumerate(matched) if not one]
    wanted = {config: names for config, names in wanted.items() if names}
    return Expansion(wanted=wanted, problems=list(problems), idle=idle)


def _combinations(block: Block, matched: list[bool]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of each TrialConfig that is not excluded. Mark in `matched` the rows that exclude any."""
    names = list(block.values)
    rows = block.together or [{}]
    has_arguments = block.has_arguments
    for values, row in ((values, row) for values in product(*block.values.values()) for row in rows):
        arguments = spread(dict(zip(names, values, strict=True)) | row)
        excluded = False
        for index, unwanted in enumerate(block.exclude):
            if all(arguments.get(name, _DEFAULTS.get(name)) == value for name, value in unwanted.items()):
                excluded = matched[index] = True
        if excluded:
            continue
        for name in _OFFERED:  # an argument of the user's model that lmsweep has a field for
            if f"model_args.{name}" in arguments and not _is_hugging_face(arguments):
                arguments[name] = arguments[f"model_args.{name}"]
        dimensions = [arguments.get(name) for name in DIMENSIONS]
        if None not in dimensions and arguments.get("model_code") is None:
            shape = (arguments.get(name, _DEFAULTS[name]) for name in SHAPE_FIELDS)
            arguments["model"] = _label(tuple(dimensions), tuple(shape))
        yield in_json(arguments) if has_arguments else arguments


def on_top(values: dict[str, list[object]], more: dict[str, list[object]]) -> dict[str, list[object]]:
    """Return `values` updated by `more`. A model in `more` replaces the dimensions in `values`."""
    replaced = ALL_DIMENSIONS if "model" in more else ()
    return {name: listed for name, listed in values.items() if name not in replaced} | more


def spread(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with each value that stands for several fields, such as a model, replaced by those.

    A field in the row itself takes precedence.
    """
    several = [name for name, value in row.items() if isinstance(value, Fields)]
    if not several:
        return row
    found: dict[str, Any] = {}
    for name in several:
        found |= row.pop(name).values
    return found | row


@cache
def _fields_of(workload: str) -> Callable[[TrialConfig], Any]:
    """Return a getter of the fields that distinguish two measurements of a workload.

    They are the fields that measurement_id hashes, and the device as requested: cuda:A100 and cuda:H200 are two
    requests. Comparing values is faster than hashing them.
    """
    return attrgetter(*COMBINATION_FIELDS, *workload_named(workload).protocol)


@cache
def _label(dimensions: tuple[Any, ...], shape: tuple[Any, ...]) -> str:
    return size_name(ModelSize(**dict(zip((*DIMENSIONS, *SHAPE_FIELDS), (*dimensions, *shape), strict=True))))


def _is_hugging_face(arguments: dict[str, Any]) -> bool:
    return str(arguments.get("model_code")).startswith(HUGGING_FACE)


def _lacking(names: list[str], arguments: dict[str, Any]) -> str | None:
    """Return what is wrong if a workload needs a dimension that is not given, or if the model gives it, else None."""
    if _is_hugging_face(arguments):
        given = [name for name in ("vocab_size", *DIMENSIONS) if arguments.get(name)]
        if given:
            return (
                f"{given[0]} is the Hugging Face configuration's own; use override, with the name that it has there, "
                "as in {hf: ./config.json, override: {vocab_size: 32000}}"
            )
    for workload in names:
        if workload_named(workload).needs == "model" and (arguments.get("model_code") or arguments.get("step")):
            continue
        needed = {"model": DIMENSIONS, "width": ("d_model",), "nothing": ()}[workload_named(workload).needs]
        missing = [name for name in needed if arguments.get(name) is None]
        if missing:
            either = "" if needed == DIMENSIONS else f"{', '.join(needed)} or "
            return (
                f"the workload {workload} needs {either}a model, and {', '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} not given; "
                f"give {either}model (one of: {', '.join(SIZES)}, or a mapping of its dimensions, or your own as "
                "package.module:name)"
            )
    return None
