"""Reads a sweep, from a YAML file or by the name of a packaged one, and expands it. Reports all errors together."""

import re
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.software import with_files_read
from lmsweep.orchestrator.sweep.expansion import Expansion, expand
from lmsweep.orchestrator.sweep.grids import Block, read_grid, written_out
from lmsweep.orchestrator.sweep.located_yaml import Document, KeyPath, Problem, Scalar, number_in, parse, refusal, shown
from lmsweep.orchestrator.sweep.schema import SKELETON, Axes, SweepFile, given
from lmsweep.orchestrator.sweep.users_code import argument_of, with_code
from lmsweep.orchestrator.sweep.validation import correct_keys, validate
from lmsweep.trials.code.ownership import folder_within
from lmsweep.trials.lengths.length_forms import with_lengths
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.suggestions import choices, did_you_mean
from lmsweep.trials.spec.workloads import workloads

MAX_COMBINATIONS = 250_000
"""Most combinations of one file. More are a mistake: at a second each, these take three days."""

LARGE_SWEEP = 10_000
"""From so many combinations on, expanding and planning takes seconds."""

MAX_BYTES = 1_000_000
"""Size of the largest file that is read as a sweep."""

EXAMPLE = f"a sweep is a YAML file, for example\n{SKELETON}"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep file, expanded."""

    name: str
    description: str
    """One sentence for the reader; may be empty."""
    budget: str | None = None
    """Default time budget of a run: 50s, 30m, ..."""
    trials: tuple[Trial, ...]
    """Each configuration once, with all its workloads, in the order of the file; the last axis varies fastest."""
    grids: Mapping[str, tuple[Trial, ...]] = field(default_factory=dict)
    """Name of grids -> the trials of the grids of this name. A trial of several names is in each."""


@dataclass(frozen=True, kw_only=True)
class WrittenSweep:
    """A sweep file that is read and checked, but not expanded, which takes seconds if it is large."""

    source: str
    document: Document
    file: SweepFile | None
    """None if the file has problems."""
    blocks: list[Block]
    forced: dict[str, list[object]]
    """The values of overrides, which take the place of the file's."""
    problems: Sequence[Problem]
    code: str | None
    """The folder with the user's code that is asked for, or else the file's."""
    trusted: Sequence[str]
    must_name_code: bool
    """Whether a trial has to use the code folder: the file names one, and no --code, --set or --grid changes that."""

    @property
    def count(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def is_large(self) -> bool:
        return self.count >= LARGE_SWEEP and not self.problems

    def expanded(self) -> Sweep:
        """Return all its trials. Raises RequestError, a line per error."""
        expansion = expand(self.blocks)
        if problems := [*self.problems, *expansion.problems]:
            written = self.document.data.get("grids") if isinstance(self.document.data, dict) else None
            # Whoever has written grids knows what a sweep looks like.
            raise refusal(self.source, problems, advice="" if isinstance(written, list) and written else EXAMPLE)
        for remark in (*_quoted_numbers(self.document), *_idle_rows(expansion.idle, self.forced, self.document)):
            warnings.warn(remark.text(self.source), stacklevel=2)
        assert self.file is not None, "without problems, it is valid"
        name, question = self.file.name, self.file.question.stored() if self.file.question else None
        trials = _trials(expansion, name, self.code, self.trusted, question)
        # Expanded again by name: in `trials`, a measurement that several grids want belongs to one of them alone.
        grids = {}
        for grid in dict.fromkeys(block.name for block in self.blocks if block.name):
            of_grid = expand([block for block in self.blocks if block.name == grid])
            grids[grid] = _trials(of_grid, name, self.code, self.trusted, question)
        if self.must_name_code and not any(one.code or one.config.software for one in trials):
            raise RequestError(
                f"{self.source}: code: names a folder with your code, but no trial uses anything in it; write "
                "model: package.module:Class (lmsweep init finds yours), or remove code: to measure lmsweep's models"
            )
        return Sweep(name=name, description=self.file.description, budget=self.file.budget, trials=trials, grids=grids)


def load_sweep(
    name_or_path: str,
    overrides: Mapping[str, Sequence[object]] | None = None,
    *,
    code: str | None = None,
    trusted: Sequence[str] = (),
    grids: Sequence[str] = (),
) -> Sweep:
    """Return the packaged sweep of this name, or the one in this file: all of it, or only its grids of these names.

    `overrides` maps fields to values that take the place of theirs in every grid; `exclude` still applies. `code` is
    the folder with the user's code; without it, the file's key `code`, which names a folder within the file's own, or
    the current folder. References may also lead to the packages in `trusted`. Raises RequestError, a line per error:
    `FILE:LINE: key path: what is wrong; what to write`.
    """
    return read_sweep(name_or_path, overrides or {}, code=code, trusted=trusted, grids=grids).expanded()


def read_sweep(
    name: str, asked: Mapping[str, Sequence[object]], *, code: str | None, trusted: Sequence[str], grids: Sequence[str]
) -> WrittenSweep:
    """Return the sweep that `load_sweep` expands. asked: the overrides.

    Raises RequestError if the file is missing, empty, too large or not YAML, and for wrong overrides or grid names.
    Mistakes in its keys and values are its problems, which `expanded` reports with those of the combinations.
    """
    workloads()  # raises where an installed package offers a broken record, which is no mistake in the sweep
    source, text = _text(name)
    forced, document = _forced(asked), _document(text, source)
    problems = [*document.problems, *correct_keys(document)]
    sweep, wrong_file = validate(SweepFile, document.data, (), document)
    problems += wrong_file
    folder = code
    if sweep and sweep.code and not code:
        try:
            folder = str(folder_within(Path(source).parent, sweep.code))
        except ValueError as error:
            problems.append(Problem(line=document.line(("code",)), path=("code",), message=str(error)))
    written_grids = document.data.get("grids") if isinstance(document.data, dict) else None
    blocks: list[Block] = []
    for index, written in enumerate(written_grids if isinstance(written_grids, list) else ()):
        of_grid, wrong = read_grid(written, ("grids", index), document)
        blocks += [block.forced(forced) for block in of_grid]
        problems += wrong
    names = list(dict.fromkeys(block.name for block in blocks if block.name))
    if grids and not problems:
        _check_names(grids, names, source)
        blocks = [block for block in blocks if block.name in grids]
    read = WrittenSweep(
        source=source, document=document, file=sweep, blocks=blocks, forced=forced, problems=problems, code=folder,
        trusted=trusted, must_name_code=folder is not None and not (code or asked or grids),
    )  # fmt: skip
    if read.count > MAX_COMBINATIONS:
        message = (
            f"{read.count} combinations are too many; the limit is {MAX_COMBINATIONS}. Fewer values per axis, zip for "
            "axes that vary together, --set FIELD=VALUE, and --grid NAME make fewer"
        )
        raise refusal(source, [*problems, Problem(line=1, message=message)])
    return read


def single_trial(settings: Iterable[str], *, code: str | None = None, trusted: Sequence[str] = ()) -> Trial:
    """Return the trial of `field=value` arguments, one of them `workloads`. Raises what `load_sweep` raises."""
    workloads()  # as in `load_sweep`
    fixed = parse_overrides(settings, "trial")
    asked = fixed.pop("workloads", ["timing"])
    for name, values in fixed.items():
        if len(values) > 1:
            raise RequestError(f"{name} has {len(values)} values; a trial takes one (for several, run a sweep)")
    if "processes" in fixed:
        raise RequestError("processes: a trial is one process (for several, run a sweep)")
    blocks, problems = read_grid({"workloads": asked, "fixed": {name: values[0] for name, values in fixed.items()}})
    expansion = expand(blocks)
    if problems := problems + expansion.problems:
        # The user wrote no `fixed`, so it is dropped from the paths.
        said = [replace(one, line=None, path=one.path[1 if one.path[:1] == ("fixed",) else 0 :]) for one in problems]
        raise refusal("trial", said)
    trials = _trials(expansion, "trial", code, trusted)
    if len(trials) > 1:
        raise RequestError("workloads: a workload of your own is a trial by itself; name it alone")  # see `_trials`
    return trials[0]


def parse_overrides(texts: Iterable[str], option: str = "--set") -> dict[str, list[Scalar]]:
    """Return the values by field. Raises RequestError as `parse_override` does, and if a field is given twice."""
    found: dict[str, list[Scalar]] = {}
    for text in texts:
        name, values = parse_override(text, option)
        if name in found:
            raise RequestError(f"{option} {text}: {name} is given twice; for several values, write {name}=value,value")
        found[name] = values
    return found


def parse_override(text: str, option: str = "--set") -> tuple[str, list[Scalar]]:
    """Return ("context_length", [128, 256]) for `context_length=128,256`. Raises RequestError for others."""
    source = f"{option} {text}"
    name, equals, listed = text.partition("=")
    if not equals or not name.strip():
        raise RequestError(f"{source}: write axis=value, or axis=value,value")
    if name.strip().endswith("_args"):
        raise RequestError(f"{source}: write one argument at a time, {name.strip()}.NAME=value")
    values: list[Scalar] = []
    for part in re.split(r",(?![^(]*\))", listed):  # not within parentheses: range(1, 4),8 is two parts
        value = parse(part, source).data
        if not part.strip() or isinstance(value, list | dict):
            raise RequestError(f"{source}: {part!r} is not a value; write axis=value, or axis=value,value")
        values.append(value)
    return name.strip(), values


def _check_names(grids: Sequence[str], names: Sequence[str], source: str) -> None:
    for name in grids:
        if not names:
            raise RequestError(f"--grid {name}: the grids of {source} have no names")
        if name not in names:
            raise RequestError(f"--grid {name}: {source} has no such grid{choices(name, names)}")


def _document(text: str, source: str) -> Document:
    """Parse the sweep's YAML, and drop keys such as x-defaults, which only hold anchors."""
    if _is_toml(text):
        raise RequestError(f"{source}:1: this is TOML\n{EXAMPLE}")
    document = parse(text, source)
    if document.data is None:
        raise RequestError(
            f"{source}:1: the file is empty; the keys of a sweep are {', '.join(SweepFile.model_fields)}\n{EXAMPLE}"
        )
    if isinstance(document.data, dict):
        document.data = {key: value for key, value in document.data.items() if not key.startswith("x-")}
    return document


def _is_toml(text: str) -> bool:
    try:
        return bool(tomllib.loads(text))
    except (ValueError, RecursionError):
        return False


def _quoted_numbers(document: Document) -> Iterator[Problem]:
    """Yield a remark about each argument of the user's code that is text, and without its quotes a number."""
    # Its path is such as grids[0].fixed.model.args.theta, or grids[0].axes.model_args.theta[1].
    for path, value in _texts(document.data.get("grids"), ("grids",)):
        if number_in(value) and any(step in ("args", "override") or argument_of(str(step)) for step in path):
            message = f"{shown(value)} is text, because of the quotes; for the number, write {number_in(value)}"
            yield Problem(line=document.line(path), path=path, message=message)


def _texts(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in below:
        yield from _texts(inner, (*path, step))


def _idle_rows(idle: Iterable[KeyPath], forced: dict[str, list[object]], document: Document) -> Iterator[Problem]:
    """Yield a remark about each row of `exclude` that excludes nothing, unless --set may be the reason."""
    for place in idle:
        row = document.data
        for step in place:
            row = row[step]
        if not set(row) & set(forced):
            yield Problem(line=document.line(place), path=place, message="excludes nothing: no combination matches")


def _trials(
    found: Expansion, sweep: str, code: str | None, trusted: Sequence[str], question: str | None = None
) -> tuple[Trial, ...]:
    """Return the trials, with code, software and lengths. Raises RequestError if one of these is wrong.

    question: what the sweep asks, as JSON that each of its rows stores. A user's workload is a trial by itself, so that
    its code is part of no other trial's environment.
    """
    trials: list[Trial] = []
    for config, asked in found.wanted.items():
        of_lmsweep = tuple(name for name in workloads() if name in asked)
        of_user = [(name,) for name in dict.fromkeys(asked) if is_reference(name)]
        made = partial(Trial, config=config, sweep=sweep, question=question, varying=found.varying[config])
        trials += [made(workloads=names) for names in (of_lmsweep, *of_user) if names]
    placed = with_files_read(with_code(trials, code, trusted), code, trusted)
    return tuple(replace(one, config=with_lengths(one.config)) if one.config.varies else one for one in placed)


def _text(name_or_path: str) -> tuple[str, str]:
    """The name of the file for messages, and its content."""
    packaged = packaged_sweeps()
    if name_or_path in packaged:
        return f"{name_or_path}.yaml", packaged[name_or_path]
    try:
        with Path(name_or_path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise RequestError(_not_found(Path(name_or_path), list(packaged))) from None
    except OSError as error:
        raise RequestError(f"cannot read the sweep file {name_or_path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise RequestError(f"{name_or_path}: too large for a sweep file (more than {MAX_BYTES} bytes)")
    try:
        return name_or_path, content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{name_or_path}:{line}: not UTF-8 text") from error


def _not_found(path: Path, packaged: Sequence[str]) -> str:
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        beside = [str(path.with_name(one.name)) for one in path.parent.glob("*.y*ml")]
        meant = (path.stem, packaged) if path.stem in packaged else (str(path), beside)
        return f"there is no sweep file {path}{did_you_mean(*meant)}"
    near = did_you_mean(path, packaged)
    return f"{path} is neither a file nor the name of a packaged sweep{near} (packaged: {', '.join(packaged)})"


def _forced(overrides: Mapping[str, Sequence[object]]) -> dict[str, list[object]]:
    """Return the validated values of overrides, with ranges written out. Raises RequestError."""
    values: dict[str, object] = {name: list(listed) for name, listed in overrides.items()}
    problems: list[Problem] = []
    for name, listed in values.items():
        values[name], wrong = written_out(listed, ("axes", name), lines={})
        problems += wrong
    axes, more = validate(Axes, values, ("axes",))
    if problems := problems + more:
        raise refusal("--set", [replace(one, line=None, path=one.path[1:]) for one in problems])
    return given(axes, values)
