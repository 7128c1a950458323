"""`init`: writes a first sweep of the models, attention, optimizers and wrappers that a folder of code defines.

They are found by their syntax: nothing is imported.

first_sweep.py       the sweep file
first_model.py       chooses its model, or says what to write for it
discover.py          everything that a sweep could measure
model_candidates.py  classes that are probably models
model_settings.py    how a model is built whose class takes an object with settings
definitions.py       reads the classes and functions of the folder's files
"""

import os
import shlex
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.words import GPU_DEVICES

if TYPE_CHECKING:
    from lmsweep.orchestrator.features.init.discover import Discovery
    from lmsweep.orchestrator.features.init.first_model import FirstModel
    from lmsweep.orchestrator.features.init.first_sweep import FirstSweep
    from lmsweep.trials.spec.config import Trial
    from lmsweep.trials.spec.reference import Code

NOT_READ = (
    "Not read: tests, build, dist, results, hidden folders, virtual environments. lmsweep init --code FOLDER looks "
    "elsewhere"
)


MOST_LINES = 10
"""Candidates of a kind that are printed."""


def init(code: Annotated[str, Option(help="Folder with your own code. Default: this one.")] = ".") -> None:
    """Write lmsweep.yaml, a first sweep of the code in this folder.

    It names the models, attention, optimizers and wrappers that the code defines; it imports nothing.

    \b
    Example:
      lmsweep init
    """
    from lmsweep.orchestrator.cluster.nodes import this_machine
    from lmsweep.orchestrator.features.init.discover import discover
    from lmsweep.orchestrator.features.init.first_sweep import first_sweep
    from lmsweep.trials.code.digest import code_folder

    file = Path("lmsweep.yaml")
    if file.exists():
        raise RequestError(f"{file} exists; delete or rename it, and lmsweep init writes a new one")
    folder = code_folder(code)
    discovery = discover(folder)
    here = this_machine()
    device = next(name for name in (*GPU_DEVICES, "mps", "cpu") if name in here.environments)
    is_inside = Path(folder.folder).is_relative_to(Path.cwd())  # `code` names only folders within the file's
    relative = os.path.relpath(folder.folder) if is_inside else None
    sweep = first_sweep(Path(folder.folder).name, discovery, device=device, gpus=here.gpus, code=relative)
    looked = _looked(folder, discovery.files)
    if not sweep.text:
        raise RequestError(_nothing_to_name(looked, sweep.not_measured))
    _write_adapter(sweep.model, folder)
    file.write_text(sweep.text, "utf-8")
    trials = _trials(file, None if is_inside else code, sweep.model)
    say(f"wrote {file}: {f'{len(trials)} trials on {device}; ' if trials else ''}{looked}")
    _say_found(file, sweep, discovery)
    if trials is None:
        say(f"\nbefore it runs, write {sweep.model.to_write}")
    elsewhere = "" if is_inside else f" --code {shlex.quote(code)}"
    if discovery.files:
        say(f"\nnext: lmsweep check {file}{elsewhere}  tries your code and measures nothing")
    say(f"{'then' if discovery.files else 'next'}: lmsweep run {file}{elsewhere}")


def _looked(folder: "Code", files: int) -> str:
    """Return what was read, and the packages besides the folder itself."""
    from lmsweep.trials.code.source import roots

    packages = [path for root in roots(folder) if (path := os.path.relpath(root, folder.folder)) != "."]
    read = f"read {files} file{'s' if files != 1 else ''} of {folder.folder}"
    return f"{read}, packages from {', '.join(packages)}" if packages else read


def _write_adapter(model: "FirstModel", folder: "Code") -> None:
    """Write the file whose function builds a model that its class alone does not. One that exists stays: the user may
    have completed it."""
    file = Path(folder.folder, model.adapter_file)
    if model.adapter and not file.exists():
        file.write_text(model.adapter, "utf-8")
        say(f"wrote {file}, which {'is to build' if model.to_write else 'builds'} your model")


def _trials(file: Path, code: str | None, model: "FirstModel") -> "Sequence[Trial] | None":
    """Return the trials of the sweep file; None if the user must first write something."""
    from lmsweep.orchestrator.sweep.sweep import load_sweep

    try:
        return load_sweep(str(file), code=code).trials
    except RequestError:
        if model.to_write:
            return None
        raise


def _say_found(file: Path, sweep: "FirstSweep", discovery: "Discovery") -> None:
    if sweep.model.replaced:
        say(f"  for a first look the sweep sets {'; '.join(sweep.model.replaced)}: change them in {file}")
    if discovery.unread:
        say(f"  {discovery.unread} more files were not read: choose a smaller folder with --code")
    for kind, listed in groupby(discovery.candidates, key=lambda one: one.kind):
        lines = [f"  {kind:<9}  {one.reference}  ({one.place})" for one in listed]
        say("\n".join(_first(lines)))
    if sweep.not_measured:
        say("found, and not in the sweep:")
        say("\n".join(_first([f"  {words}" for words in sweep.not_measured])))
    if not discovery.files:
        say(f"  the sweep is of lmsweep's model. {NOT_READ}")


def _first(lines: list[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    return lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], f"  and {len(lines) - MOST_LINES} more"]


def _nothing_to_name(looked: str, not_measured: tuple[str, ...]) -> str:
    if not_measured:
        lines = _first([f"  {words}" for words in not_measured])
        return "\n".join([f"nothing here can be measured as it is ({looked}):", *lines])
    return (
        f"no model, attention, optimizer or wrapper was found, so there is no sweep of your code; {looked}. "
        f"{NOT_READ}; lmsweep sweeps quick > mine.yaml begins with lmsweep's models"
    )


feature = Feature(name="init", place=-3, verbs=(init,))  # help lists it first: check is at -2, and run at 1
