"""The grids of a sweep file: values of fields, to be combined."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from lmsweep.orchestrator.sweep.hints import instead_of_a_variable, instead_of_an_axis
from lmsweep.orchestrator.sweep.located_yaml import Document, KeyPath, Problem, shown
from lmsweep.orchestrator.sweep.ranges import is_range, values_of
from lmsweep.orchestrator.sweep.schema import VARYING, GridFile, given
from lmsweep.orchestrator.sweep.users_code import Fields, argument_of
from lmsweep.orchestrator.sweep.validation import validate
from lmsweep.trials.spec.config import CONFIG_FIELDS
from lmsweep.trials.spec.model_sizes import DIMENSIONS


@dataclass(frozen=True, kw_only=True)
class Block:
    """A grid's axes, or one of its include rows."""

    path: KeyPath
    line: int
    workloads: list[str]
    name: str | None = None
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
        together = [row["device"] for row in self.together if "device" in row]
        return [str(device) for device in together or self.values.get("device") or [CONFIG_FIELDS["device"].default]]

    def problem(self, message: str) -> Problem:
        return Problem(line=self.line, path=self.path, message=message)

    def forced(self, values: dict[str, list[object]]) -> "Block":
        """Return the block with these values in place of those of the file."""
        gone = {*values, *(DIMENSIONS if "model" in values else ())}
        together = [{name: value for name, value in row.items() if name not in gone} for row in self.together]
        return replace(self, values=_on_top(self.values, values), together=together if any(together) else [])


def spread(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with each Fields, one value for several fields, replaced by these. The row's own fields win."""
    found: dict[str, Any] = {}
    for value in row.values():
        if isinstance(value, Fields):
            found |= value.values
    return found | {name: value for name, value in row.items() if not isinstance(value, Fields)}


def read_grid(
    written: object, path: KeyPath = (), document: Document | None = None
) -> tuple[list[Block], list[Problem]]:
    """Return the blocks of one grid and what is wrong with it. Replaces the ranges in its axes by their numbers."""
    document = document or Document()
    problems = _write_out_ranges(written, path, document)
    grid, wrong = validate(GridFile, written, path, document if path else None)  # without a path: of no file
    problems += [*wrong, *(_contradictions(written, path, document) if _has_its_shape(written) else [])]
    return _blocks(grid, written, path, document) if grid is not None else [], problems


def _write_out_ranges(grid: Any, path: KeyPath, document: Document) -> list[Problem]:
    """Replace ranges by lists of their numbers, in the grid itself, and return what is wrong with its axes."""
    problems: list[Problem] = []
    for key in VARYING:
        axes = grid.get(key) if isinstance(grid, dict) else None
        if not isinstance(axes, dict):
            continue
        for name in axes:
            place = (*path, key, name)
            axes[name], wrong = written_out(axes[name], place, document.lines)
            problems += wrong
            if argument_of(name) and not isinstance(axes[name], list):  # as model_args.theta: no schema has its type
                words = instead_of_a_variable(axes[name], name, is_axis=True)
                message = f"{shown(axes[name])} is a single value; {words or instead_of_an_axis(axes[name])}"
                problems.append(Problem(line=document.line(place), path=place, message=message))
                axes[name] = [axes[name]]
    return problems


def written_out(values: object, path: KeyPath, lines: dict[KeyPath, int]) -> tuple[object, list[Problem]]:
    """Return the values of an axis, of any type, with ranges written out, and what is wrong; updates `lines`."""
    if is_range(values):  # one range is a list of one
        values = [values]
        lines[*path, 0] = lines.get(path, 1)
    if not isinstance(values, list) or not any(map(is_range, values)):
        return values, []
    numbers: list[object] = []
    places: list[int] = []
    problems: list[Problem] = []
    for index, value in enumerate(values):
        line = lines.get((*path, index), lines.get(path, 1))
        try:
            found: list[object] = [*values_of(value)] if is_range(value) else [value]
        except ValueError as error:
            problems.append(Problem(line=line, path=path, message=str(error)))
            found = [1]  # a valid value, so that validation does not report it again
        numbers += found
        places += [line] * len(found)
    lines |= {(*path, index): line for index, line in enumerate(places)}
    return numbers, problems


def _has_its_shape(written: Any) -> bool:
    """Return whether axes, zip and fixed of a grid are what they should be, whatever is wrong within."""
    if not isinstance(written, dict):
        return False
    axes, zipped, fixed = (written.get(key, {}) for key in (*VARYING, "fixed"))
    if not all(isinstance(part, dict) for part in (axes, zipped, fixed)):
        return False
    return all(isinstance(values, list) for values in (*axes.values(), *zipped.values()))


def _contradictions(written: Any, path: KeyPath, document: Document) -> list[Problem]:
    axes, together, fixed = written.get("axes"), written.get("zip"), written.get("fixed") or {}
    already = "is already an axis of this grid"
    wrong = {(*path, "fixed", name): already for name in fixed if name in (axes or {}) or name in (together or {})}
    wrong |= {(*path, "zip", name): already for name in together or {} if name in (axes or {})}
    for key, varying in (("axes", axes), ("zip", together)):
        if varying == {}:
            wrong[*path, key] = "is empty; give at least one axis, or remove it"
    counts = {name: len(values) for name, values in (together or {}).items()}
    if len(set(counts.values())) > 1:
        words = ", ".join(f"{name} has {count}" for name, count in counts.items())
        wrong[*path, "zip"] = f"fields that vary together need equally many values: {words}"
    has_both = all(isinstance(written.get(key), list) and written[key] for key in ("exclude", "include"))
    if has_both and axes is None and together is None:
        wrong[*path, "exclude"] = "excludes nothing: this grid has no axes, and exclude does not apply to include"
    return [Problem(line=document.line(place), path=place, message=message) for place, message in wrong.items()]


def _blocks(grid: GridFile, written: Any, path: KeyPath, document: Document) -> list[Block]:
    fixed = {name: [value] for name, value in given(grid.fixed, written.get("fixed")).items()}
    rows = [given(row, written["include"][index]) for index, row in enumerate(grid.include)]

    def block(place: KeyPath, values: dict[str, list[object]], **others: Any) -> Block:
        line = document.line(place)
        return Block(path=place, line=line, workloads=grid.workloads, name=grid.name, values=values, **others)

    blocks = []
    if grid.axes is not None or grid.zip is not None or not rows:  # else the grid is its include rows alone
        exclude = [spread(given(row, written["exclude"][index])) for index, row in enumerate(grid.exclude)]
        columns = given(grid.zip, written.get("zip"))  # lengths that differ: see _contradictions
        together = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=False)]
        blocks.append(block(path, fixed | given(grid.axes, written.get("axes")), together=together, exclude=exclude))
    for index, row in enumerate(rows):  # unlike axes, they may replace fixed fields
        values = _on_top(fixed, {name: [value] for name, value in row.items()})
        blocks.append(block((*path, "include", index), values))
    return blocks


def _on_top(values: dict[str, list[object]], more: dict[str, list[object]]) -> dict[str, list[object]]:
    """Return `values` updated by `more`. A model in `more` replaces the dimensions in `values`."""
    replaced = DIMENSIONS if "model" in more else ()
    return {name: listed for name, listed in values.items() if name not in replaced} | more
