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
from itertools import groupby
from pathlib import Path
from typing import Annotated

from typer import Option

from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.words import GPU_DEVICES

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
    from lmsweep.orchestrator.sweep.sweep import load_sweep
    from lmsweep.trials.code.digest import code_folder
    from lmsweep.trials.code.source import roots

    file = Path("lmsweep.yaml")
    if file.exists():
        raise RequestError(f"{file} exists; delete or rename it, and lmsweep init writes a new one")
    folder = code_folder(code)
    discovery = discover(folder)
    here = this_machine()
    read = "1 file" if discovery.files == 1 else f"{discovery.files} files"
    places = ", ".join(os.path.relpath(root, folder.folder) for root in roots(folder))
    places = places.replace("., ", "", 1)  # `.` is the folder, which `looked` names before
    looked = f"read {read} of {folder.folder}" + (f", packages from {places}" if places != "." else "")
    device = next(name for name in (*GPU_DEVICES, "mps", "cpu") if name in here.environments)
    inside = Path(folder.folder).is_relative_to(Path.cwd())
    relative = os.path.relpath(folder.folder) if inside else None  # `code` names only folders within the file's
    elsewhere = "" if inside else f" --code {shlex.quote(code)}"
    sweep = first_sweep(Path(folder.folder).name, discovery, device=device, gpus=here.gpus, code=relative)
    if not sweep.text:
        raise RequestError(_nothing_to_name(looked, sweep.not_measured))
    # The adapter, a file whose function builds a model that its class alone does not. The user may have completed one.
    model, adapter_file = sweep.model, Path(folder.folder, sweep.model.adapter_file)
    is_kept = model.adapter is not None and adapter_file.exists()
    to_write = None if is_kept else model.to_write
    if model.adapter and not is_kept:
        adapter_file.write_text(model.adapter, "utf-8")
        say(f"wrote {adapter_file}, which {'is to build' if to_write else 'builds'} your model")
    file.write_text(sweep.text, "utf-8")
    count = ""
    if not to_write:  # else load_sweep would raise, since the adapter is not complete
        trials = load_sweep(str(file), code=None if inside else code).trials
        count = f"{len(trials)} trials on {device}; "
    say(f"wrote {file}: {count}{looked}")
    if model.replaced:
        say(f"  for a first look the sweep sets {'; '.join(model.replaced)}: change them in {file}")
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
    if to_write:
        say(f"\nbefore it runs, write {to_write}")
    if discovery.files:
        say(f"\nnext: lmsweep check {file}{elsewhere}  tries your code and measures nothing")
    say(f"{'then' if discovery.files else 'next'}: lmsweep run {file}{elsewhere}")


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
