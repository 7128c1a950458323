"""Combines values of configuration fields into configurations."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from operator import attrgetter
from typing import Any

from lmsweep.orchestrator.sweep.grids import Block, spread
from lmsweep.orchestrator.sweep.located_yaml import KeyPath, Problem
from lmsweep.orchestrator.sweep.users_code import in_json
from lmsweep.orchestrator.terminal import counting
from lmsweep.trials.code.calling import OFFERED
from lmsweep.trials.results.roles import varying_fields
from lmsweep.trials.spec.config import COMBINATION_FIELDS, CONFIG_FIELDS, RequestError, TrialConfig, size_of
from lmsweep.trials.spec.model_sizes import DIMENSIONS, PLAIN_DIMENSIONS, SIZES, size_name
from lmsweep.trials.spec.reference import HUGGING_FACE
from lmsweep.trials.spec.workloads import workload_named

_DEFAULTS = {name: f.default for name, f in CONFIG_FIELDS.items()}


@dataclass(frozen=True, kw_only=True)
class Expansion:
    wanted: dict[TrialConfig, list[str]]
    """Configuration -> its workloads. What several would measure, the one with most processes does, or the earliest."""
    varying: dict[TrialConfig, tuple[str, ...]]
    """Configuration -> the fields that vary in the grid for which it first measures, whichever measures the others."""
    problems: list[Problem]
    idle: list[KeyPath]
    """The rows of `exclude` that exclude nothing."""


def expand(blocks: list[Block]) -> Expansion:
    """Return the configurations of all blocks, each once. Their grids are known by their places in the file."""
    wanted: dict[TrialConfig, list[str]] = {}
    first_grid: dict[TrialConfig, int] = {}
    of_grid: dict[int, list[TrialConfig]] = {}
    problems: dict[Problem, None] = {}
    measured_by: dict[Any, TrialConfig] = {}
    """A workload and the fields that it reads -> the configuration that measures them."""
    idle: list[KeyPath] = []
    for block in blocks:
        grid = next((step for step in block.path if isinstance(step, int)), 0)  # `lmsweep trial` has no path
        everything_excluded = True
        matched = [False] * len(block.exclude)
        for arguments in counting(_combinations(block, matched), "read {} combinations"):
            everything_excluded = False
            if lacking := _lacking(block.workloads, arguments):
                problems[block.problem(lacking)] = None
                continue
            try:
                config = TrialConfig(**arguments)
            except RequestError as error:
                problems[block.problem(str(error))] = None
                continue
            of_grid.setdefault(grid, []).append(config)
            for workload in block.workloads:
                measurement = (workload, _fields_of(workload)(config))
                before = measured_by.get(measurement)
                if before is None or config.processes > before.processes:  # it measures for both
                    measured_by[measurement] = config
                    first_grid.setdefault(config, grid)
                    wanted.setdefault(config, []).append(workload)
                    if before:
                        wanted[before].remove(workload)
        if everything_excluded:
            problems[block.problem("every combination is excluded")] = None
        idle += [(*block.path, "exclude", index) for index, one in enumerate(matched) if not one]
    wanted = {config: names for config, names in wanted.items() if names}  # without names, others measure for it
    fields = {grid: tuple(varying_fields(configs)) for grid, configs in of_grid.items()}
    varying = {config: fields[first_grid[config]] for config in wanted}
    return Expansion(wanted=wanted, varying=varying, problems=list(problems), idle=idle)


def _combinations(block: Block, matched: list[bool]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of each TrialConfig that is not excluded. Mark in `matched` the rows that exclude any."""
    names = list(block.values)
    chosen = ((values, row) for values in product(*block.values.values()) for row in block.together or [{}])
    for values, row in chosen:
        arguments = spread(dict(zip(names, values, strict=True)) | row)
        excluded = False
        for index, unwanted in enumerate(block.exclude):  # all of them: each that matches is marked
            if all(arguments.get(name, _DEFAULTS.get(name)) == value for name, value in unwanted.items()):
                excluded = matched[index] = True
        if excluded:
            continue
        for name in OFFERED:  # an argument of the user's model that lmsweep has a field for
            if f"model_args.{name}" in arguments and not _is_hugging_face(arguments):
                arguments[name] = arguments[f"model_args.{name}"]
        is_sized = all(arguments.get(name) is not None for name in PLAIN_DIMENSIONS)
        if is_sized and arguments.get("model_code") is None:  # lmsweep's own model is named after its dimensions
            arguments["model"] = size_name(size_of(*(arguments.get(name, _DEFAULTS[name]) for name in DIMENSIONS)))
        yield in_json(arguments)


@cache
def _fields_of(workload: str) -> Callable[[TrialConfig], Any]:
    """Return a getter of the fields that distinguish two measurements of a workload; faster than their hashes."""
    return attrgetter(*COMBINATION_FIELDS, *workload_named(workload).protocol)


def _is_hugging_face(arguments: dict[str, Any]) -> bool:
    return str(arguments.get("model_code")).startswith(HUGGING_FACE)


def _lacking(workloads: list[str], arguments: dict[str, Any]) -> str | None:
    """Return why these are no trial: a workload lacks its model or width, or a dimension is given twice."""
    stated = ("vocab_size", *PLAIN_DIMENSIONS) if _is_hugging_face(arguments) else ()
    if given := next((name for name in stated if arguments.get(name)), None):
        return (
            f"the Hugging Face configuration states {given}; use override, with the name that it has there, "
            "as in {hf: ./config.json, override: {vocab_size: 32000}}"
        )
    for workload in workloads:
        needs = workload_named(workload).needs
        if needs == "model" and (arguments.get("model_code") or arguments.get("step")):
            continue
        needed = {"model": PLAIN_DIMENSIONS, "width": ("d_model",), "nothing": ()}[needs]
        if missing := [name for name in needed if arguments.get(name) is None]:
            either = "d_model or " if needs == "width" else ""
            return (
                f"the workload {workload} needs {either}a model, and {', '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} not given; "
                f"give {either}model (one of: {', '.join(SIZES)}, or a mapping of its dimensions, or your own as "
                "package.module:name)"
            )
    return None
