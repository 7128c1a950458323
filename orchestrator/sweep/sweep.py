"""Reads a sweep, from a YAML file or by the name of a packaged one, and expands it into trials.

docs/sweeps.md and schema.py define what the file may contain. All its errors are reported together, before anything
runs.
"""

import tomllib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from lmsweep.orchestrator.sweep.expansion import Block, expand, on_top, spread
from lmsweep.orchestrator.sweep.located_yaml import Document, KeyPath, Problem, Scalar, parse, refusal
from lmsweep.orchestrator.sweep.mistyped import correct_keys, quoted_numbers
from lmsweep.orchestrator.sweep.own_code import ALL_DIMENSIONS, with_code
from lmsweep.orchestrator.sweep.ranges import written_out
from lmsweep.orchestrator.sweep.schema import SKELETON, VARYING, Axes, GridFile, SweepFile, given, validate
from lmsweep.orchestrator.sweep.software_axis import with_software
from lmsweep.trials.spec.config import RequestError, Trial, TrialConfig
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.suggestions import choices, nearest
from lmsweep.trials.spec.workloads import workloads

MAX_COMBINATIONS = 1_000_000
"""Most combinations in one file; more are a mistake: at a second each, a million take twelve days."""

LARGE = 10_000
"""From so many combinations on, it takes seconds to expand and plan them."""

MAX_BYTES = 1_000_000
"""Size of the largest file that is read as a sweep."""

AS_IN = f"a sweep is a YAML file, for example\n{SKELETON}"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep file, expanded."""

    name: str
    """Stored with every result."""
    description: str
    """One sentence for the reader; may be empty."""
    budget: str | None = None
    """Default time budget of a run: 50s, 30m, ..."""
    trials: tuple[Trial, ...]
    """Each configuration once, with all its workloads, in the order of the file; the last axis varies fastest."""
    grids: Mapping[str, tuple[Trial, ...]] = field(default_factory=dict)
    """Name of grids -> the trials of the grids of this name. A trial of several names is in each."""


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What is known of a large sweep before it is expanded."""

    name: str
    """Of its file."""
    count: int
    """The number of combinations, including the excluded ones."""
    devices: tuple[str, ...]
    """The values of `device` in it."""


def packaged_sweeps() -> dict[str, str]:
    """Return the YAML text of each packaged sweep, by name."""
    folder = files("lmsweep.orchestrator.sweeps")
    found = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    return {name.removesuffix(".yaml"): found[name].read_text("utf-8") for name in sorted(found)}


def parse_override(text: str, option: str = "--set") -> tuple[str, list[Scalar]]:
    """Return ("context_length", [128, 256]) for `context_length=128,256`; values are read as in a file.

    Raises RequestError if there is no `=` or a value is not a scalar. `load_sweep` checks the rest.
    """
    source = f"{option} {text}"
    name, equals, listed = text.partition("=")
    if not equals or not name.strip():
        raise RequestError(f"{source}: write axis=value, or axis=value,value")
    values: list[Scalar] = []
    for part in listed.split(","):
        value = parse(part, source).data
        if not part.strip() or isinstance(value, (list, dict)):
            raise RequestError(f"{source}: {part!r} is not a value; write axis=value, or axis=value,value")
        values.append(value)
    return name.strip(), values


def parse_overrides(texts: Iterable[str], option: str = "--set") -> dict[str, list[Scalar]]:
    """Return the values by field. Raises RequestError as `parse_override` does, and if a field is given twice."""
    found: dict[str, list[Scalar]] = {}
    for text in texts:
        name, values = parse_override(text, option)
        if name in found:
            raise RequestError(f"{option} {text}: {name} is given twice; for several values, write {name}=value,value")
        found[name] = values
    return found


def load_sweep(
    name_or_path: str,
    overrides: Mapping[str, Sequence[object]] | None = None,
    *,
    code: str | None = None,
    trusted: Sequence[str] = (),
    grids: Sequence[str] = (),
    if_large: Callable[[Outline], object] = lambda outline: None,
) -> Sweep:
    """Return the packaged sweep of this name, or the sweep in this file, expanded.

    With `grids`, only the grids of these names. `overrides` maps fields to values that replace those of the file in
    every grid; `exclude` still applies. `code` is the folder with the user's own code; without it, the file's key
    `code` or the current folder. `if_large` is called before at least LARGE combinations are expanded, unless something
    is wrong with them by then. References may also lead to the packages in `trusted`. Raises RequestError with one
    line per error: `FILE:LINE: key path: what is wrong; what was probably meant`.
    """
    workloads()  # raises where an installed package offers a broken record, which is no mistake in the sweep
    source, text = _text(name_or_path)
    sweep, written = _read(text, source, _overrides(overrides or {}), grids, if_large)
    folder = code or (str(Path(source).parent / written) if written else None)

    def ready(trials: tuple[Trial, ...]) -> tuple[Trial, ...]:
        return with_software(with_code(trials, folder, trusted), folder, trusted)

    named = {name: ready(trials) for name, trials in sweep.grids.items()}
    return replace(sweep, trials=ready(sweep.trials), grids=named)


def planned_trial(sweep: Sweep, text: str) -> Trial:
    """Return the trial of the sweep whose `trial_id` begins with this text.

    Raises RequestError if there is none, or if several do: their fields of the measuring protocol may differ.
    """
    found = [trial for trial in sweep.trials if text and trial_id(trial.config).startswith(text.lower())]
    if not found:
        raise RequestError(
            f"--id {text}: no trial of {sweep.name} has this identifier; `lmsweep plan --all` shows them"
        )
    if len(found) > 1:
        ids = dict.fromkeys(trial_id(trial.config) for trial in found)
        what = f"begins the identifiers {', '.join(ids)}" if len(ids) > 1 else "is the identifier of several trials"
        raise RequestError(f"--id {text}: {what} of {sweep.name}; write one in full, or choose with --set FIELD=VALUE")
    return found[0]


def single_trial(settings: Iterable[str], *, code: str | None = None, trusted: Sequence[str] = ()) -> Trial:
    """Return the trial described by `field=value` arguments. `workloads` is a field, too; its default is timing.

    `code` and `trusted` are as in `load_sweep`.

    Raises RequestError as `load_sweep` does, and if a field has several values.
    """
    workloads()  # as in `load_sweep`
    fixed = parse_overrides(settings, "trial")
    asked = fixed.pop("workloads", ["timing"])
    for name, values in fixed.items():
        if len(values) > 1:
            raise RequestError(f"{name} has {len(values)} values; a trial takes one (for several, run a sweep)")
    if "processes" in fixed:
        raise RequestError("processes: a trial is one process (for several, run a sweep)")
    written = {"workloads": asked, "fixed": {name: values[0] for name, values in fixed.items()}}
    grid, problems = validate(GridFile, written)
    wanted: dict[TrialConfig, list[str]] = {}
    if grid:
        expansion = expand(_blocks(grid, written, (), Document()))
        wanted, problems = expansion.wanted, expansion.problems
    if problems:
        said = [
            replace(problem, line=None, path=problem.path[problem.path[:1] == ("fixed",) :]) for problem in problems
        ]
        raise refusal("trial", said)
    trials = with_software(with_code(_trials(wanted, "trial"), code, trusted), code, trusted)
    if len(trials) > 1:
        raise RequestError("workloads: a workload of your own is a trial by itself; name it alone")
    return trials[0]


def _read(
    text: str,
    source: str,
    forced: dict[str, list[object]],
    grids: Sequence[str],
    if_large: Callable[[Outline], object],
) -> tuple[Sweep, str | None]:
    """Return the sweep, of its grids only those of these names if any are given, and what the file has under `code`."""
    document = _document(text, source)
    if document.data is None:
        raise RequestError(
            f"{source}:1: the file is empty; the keys of a sweep are {', '.join(SweepFile.model_fields)}\n{AS_IN}"
        )
    if isinstance(document.data, dict):  # keys such as x-defaults are a home for anchors
        document.data = {key: value for key, value in document.data.items() if not key.startswith("x-")}
    problems = [*document.problems, *correct_keys(document)]
    sweep, wrong_file = validate(SweepFile, document.data, (), document)
    problems += wrong_file
    blocks: list[Block] = []
    for index, written in enumerate(_written_grids(document.data)):
        path: KeyPath = ("grids", index)
        problems += _write_out_ranges(written, path, document)
        grid, wrong = validate(GridFile, written, path, document)
        problems += [*wrong, *(_contradictions(written, path, document) if _has_its_shape(written) else [])]
        blocks += _blocks(grid, written, path, document) if grid is not None else []
    blocks = [_forced(block, forced) for block in blocks]
    names = list(dict.fromkeys(block.name for block in blocks if block.name))
    if grids and not problems:
        blocks = [block for block in blocks if block.name in _known(grids, names, source)]
    count = sum(block.count for block in blocks)
    if count > MAX_COMBINATIONS:
        problems.append(Problem(line=1, message=f"{count} combinations are too many; the limit is {MAX_COMBINATIONS}"))
        raise refusal(source, problems)
    if count >= LARGE and not problems:
        devices = dict.fromkeys(device for block in blocks for device in block.devices)
        if_large(Outline(name=source, count=count, devices=tuple(devices)))
    expansion = expand(blocks)
    problems += expansion.problems
    if problems:
        raise refusal(source, problems, advice="" if _written_grids(document.data) else AS_IN)
    for problem in quoted_numbers(document):
        warnings.warn(problem.text(source), stacklevel=2)
    for place in expansion.idle:
        _say_idle(place, forced, document, source)
    assert sweep is not None, "without problems, it is valid"
    read = Sweep(
        name=sweep.name,
        description=sweep.description,
        budget=sweep.budget,
        trials=_trials(expansion.wanted, sweep.name),
        grids={
            name: _trials(expand([block for block in blocks if block.name == name]).wanted, sweep.name)
            for name in (grids or names)
        },
    )
    return read, sweep.code


def _known(grids: Sequence[str], names: Sequence[str], source: str) -> Sequence[str]:
    """Return `grids`. Raises RequestError if one is not among `names`."""
    for name in grids:
        if not names:
            raise RequestError(f"--grid {name}: the grids of {source} have no names")
        if name not in names:
            raise RequestError(f"--grid {name}: {source} has no such grid{choices(name, names)}")
    return grids


def _document(text: str, source: str) -> Document:
    try:
        document = parse(text, source)
    except RequestError:
        if _is_toml(text):
            raise RequestError(f"{source}:1: this is TOML\n{AS_IN}") from None
        raise
    if not isinstance(document.data, dict) and document.data is not None and _is_toml(text):
        raise RequestError(f"{source}:1: this is TOML\n{AS_IN}")
    return document


def _is_toml(text: str) -> bool:
    try:
        return bool(tomllib.loads(text))
    except (ValueError, RecursionError):
        return False


def _write_out_ranges(grid: Any, path: KeyPath, document: Document) -> list[Problem]:
    """Replace the ranges in a grid's axes by their numbers."""
    problems: list[Problem] = []
    for key in VARYING:
        axes = grid.get(key) if isinstance(grid, dict) else None
        if not isinstance(axes, dict):
            continue
        for name in axes:
            axes[name], wrong = written_out(axes[name], (*path, key, name), document.lines)
            problems += wrong
    return problems


def _forced(block: Block, forced: dict[str, list[object]]) -> Block:
    """Return the block with these values in place of its own."""
    gone = {*forced, *(ALL_DIMENSIONS if "model" in forced else ())}
    together = [{name: value for name, value in row.items() if name not in gone} for row in block.together]
    return replace(block, values=on_top(block.values, forced), together=together)


def _say_idle(place: KeyPath, forced: dict[str, list[object]], document: Document, source: str) -> None:
    """Warn that a row of `exclude` excludes nothing, unless --set may be the reason."""
    row = document.data
    for step in place:
        row = row[step]
    if not set(row) & set(forced):
        line = document.line(place)
        warnings.warn(
            Problem(line=line, path=place, message="excludes nothing: no combination matches").text(source),
            stacklevel=2,
        )


def _trials(wanted: dict[TrialConfig, list[str]], sweep: str) -> tuple[Trial, ...]:
    """Return the trials. A workload of the user's own is a trial by itself: the state of its code is part of its
    environment, and not of that of the others.
    """
    return tuple(
        Trial(config=config, workloads=names, sweep=sweep)
        for config, asked in wanted.items()
        for names in (
            tuple(name for name in workloads() if name in asked),
            *((name,) for name in dict.fromkeys(asked) if is_reference(name)),
        )
        if names
    )


def _text(name_or_path: str) -> tuple[str, str]:
    """Return the name of the file for messages, and its text."""
    packaged = packaged_sweeps()
    if name_or_path in packaged:
        return f"{name_or_path}.yaml", packaged[name_or_path]
    try:
        with Path(name_or_path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise RequestError(_not_found(Path(name_or_path), packaged)) from None
    except OSError as error:
        raise RequestError(f"cannot read the sweep file {name_or_path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise RequestError(f"{name_or_path}: too large for a sweep file (more than {MAX_BYTES} bytes)")
    try:
        return name_or_path, content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{name_or_path}:{line}: not UTF-8 text") from error


def _overrides(overrides: Mapping[str, Sequence[object]]) -> dict[str, list[object]]:
    values: dict[str, object] = {name: list(listed) for name, listed in overrides.items()}
    problems: list[Problem] = []
    for name, listed in values.items():
        values[name], wrong = written_out(listed, ("axes", name), {})
        problems += [replace(one, line=None) for one in wrong]
    axes, more = validate(Axes, values, ("axes",))
    problems += more
    if problems:
        raise refusal("--set", [replace(problem, path=problem.path[1:]) for problem in problems])
    return given(axes, values)


def _written_grids(data: Any) -> list[Any]:
    grids = data.get("grids") if isinstance(data, dict) else None
    return grids if isinstance(grids, list) else []


def _has_its_shape(written: Any) -> bool:
    """Return whether axes, zip and fixed of a grid are what they should be, whatever is wrong within."""
    if not isinstance(written, dict):
        return False
    axes, zipped, fixed = (written.get(key, {}) for key in (*VARYING, "fixed"))
    if not all(isinstance(part, dict) for part in (axes, zipped, fixed)):
        return False
    return all(isinstance(values, list) for values in (*axes.values(), *zipped.values()))


def _contradictions(written: dict[str, Any], path: KeyPath, document: Document) -> list[Problem]:
    """Return the errors of a grid whose parts are each valid but contradict one another."""
    axes, fixed = written.get("axes"), written.get("fixed") or {}
    together = written.get("zip")
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
    rows = all(isinstance(written.get(key), list) and written[key] for key in ("exclude", "include"))
    if rows and axes is None and together is None:
        wrong[*path, "exclude"] = "excludes nothing: this grid has no axes, and exclude does not apply to include"
    return [Problem(line=document.line(place), path=place, message=message) for place, message in wrong.items()]


def _blocks(grid: GridFile, written: dict[str, Any], path: KeyPath, document: Document) -> list[Block]:
    fixed = {name: [value] for name, value in given(grid.fixed, written.get("fixed")).items()}
    rows = [given(row, written["include"][index]) for index, row in enumerate(grid.include)]
    blocks = []
    if grid.axes is not None or grid.zip is not None or not rows:
        exclude = [spread(given(row, written["exclude"][index])) for index, row in enumerate(grid.exclude)]
        values = fixed | given(grid.axes, written.get("axes"))
        columns = given(grid.zip, written.get("zip"))
        together = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=False)]
        blocks.append(
            Block(
                path=path,
                line=document.line(path),
                workloads=grid.workloads,
                name=grid.name,
                values=values,
                together=together,
                exclude=exclude,
            )
        )
    for index, row in enumerate(rows):
        place = (*path, "include", index)
        values = on_top(fixed, {name: [value] for name, value in row.items()})
        line = document.line(place)
        blocks.append(Block(path=place, line=line, workloads=grid.workloads, name=grid.name, values=values))
    return blocks


def _not_found(path: Path, packaged: Iterable[str]) -> str:
    """Return the message for a sweep that is not there: written as a path, it is a file, and else a packaged sweep."""
    names = list(packaged)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        beside = [str(path.with_name(one.name)) for one in path.parent.glob("*.y*ml")]
        near = path.stem if path.stem in names else nearest(str(path), beside)
        return f"there is no sweep file {path}{f'; did you mean {near}?' if near else ''}"
    near = nearest(str(path), names)
    return (
        f"{path} is neither a file nor the name of a packaged sweep"
        f"{f'; did you mean {near}?' if near else ''} (packaged: {', '.join(names)})"
    )
