"""The verbs that write or check files and measure nothing: sweeps, show, init, check, notebooks."""

import os
import shlex
import shutil
from importlib.resources import as_file, files
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from lmsweep.orchestrator.plan_request import What, takes_request
from lmsweep.orchestrator.terminal import on_terminal, say, say_data, terminal_size
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.words import GPU_DEVICES

QUESTIONS: dict[str, tuple[str, ...]] = {
    "Does it work here, and how fast is this machine?": (
        "quick",
        "local-gpu",
        "devices",
        "ceiling",
        "accept",
        "operators",
        "full",
    ),
    "What makes a step faster?": (
        "compile",
        "optimizers",
        "losses",
        "shapes",
        "packing",
        "attention",
        "attention-2026",
    ),
    "What do number formats bring?": ("precision", "fp8"),
    "Does it fit, and where does the time go?": ("memory", "profile", "energy"),
    "What does fine-tuning take?": ("finetuning", "finetuning-fsdp"),
    "What do several GPUs bring?": ("ddp", "fsdp", "collectives"),
    "How far can a number be trusted?": ("noise", "noise-cpu", "warmup"),
    "A course": ("cs336-2026", "cs336-2026-tiny", "cs336-2025"),
}
"""Question -> the packaged sweeps that answer it. Each sweep answers one."""

NOT_READ = (
    "Not read: tests, build, dist, results, hidden folders, virtual environments. lmsweep init --code FOLDER looks "
    "elsewhere"
)


def sweeps() -> None:
    """List the packaged sweeps by question: their trials, how many of them can run here, what they measure.

    \b
    Example:
      lmsweep sweeps
    """
    from lmsweep.orchestrator.commands.text.show_table import show_groups
    from lmsweep.orchestrator.sweep.sweep import load_sweep
    from lmsweep.trials.machine.cpu_affinity import find_gpus, usable_cores

    try:
        places = {"cpu": len(usable_cores()), "cuda": len(find_gpus())}
    except ModuleNotFoundError:
        places = {}  # lmsweep is installed to read, so nothing runs here

    def runs_here(config: TrialConfig) -> bool:
        return config.nodes == 1 and config.world_size <= places.get(config.device_type, 0)

    def line(name: str) -> str:
        sweep = load_sweep(name)
        configs = [trial.config for trial in sweep.trials]
        able, least = sum(map(runs_here, configs)), min(one.world_size for one in configs)
        here = "all run here" if able == len(configs) else f"{able} run here"
        here = here if able else f"needs {least} GPU{'s' * (least > 1)}" if places else "none run here"
        return f"{len(configs):>3} trials, {here:<13}  {sweep.description}"

    show_groups({question: {name: line(name) for name in names} for question, names in QUESTIONS.items()})


@takes_request("sweep")
def show(what: What) -> None:
    """Print a packaged sweep, to copy and change: lmsweep show quick > mine.yaml

    \b
    Example:
      lmsweep show quick
    """
    from lmsweep.orchestrator.sweep.sweep import packaged_sweeps
    from lmsweep.trials.spec.suggestions import choices

    packaged, sweep = packaged_sweeps(), what.sweep
    if sweep not in packaged:
        raise RequestError(f"{sweep} is not a packaged sweep{choices(sweep, packaged)}")
    say_data(packaged[sweep].rstrip("\n"))


@takes_request("sweep code trusted timeout")
def check(
    what: What, timeout: Annotated[str, Option(help="Time limit for each reference: 60s, 5m, ...")] = "60s"
) -> None:
    """Try the sweep's references to your own code on this CPU, without measuring: imports, shapes, correctness.

    \b
    Example:
      lmsweep check quick
    """
    from lmsweep.orchestrator.commands.code_check import answers, as_text, missing_from, questions
    from lmsweep.orchestrator.sweep.ranges import seconds_of
    from lmsweep.orchestrator.sweep.sweep import load_sweep

    seconds = seconds_of(timeout, "--timeout")
    trials = load_sweep(what.sweep, code=what.code, trusted=what.trusted).trials
    asked = questions(trials)
    if not asked:
        say(f"{what.sweep} refers to no code of your own; its trials: lmsweep plan {what.sweep}")
        return
    found_in = next(trial.code for trial in trials if trial.code)
    wrong = 0
    for answer in answers(asked, found_in, seconds):
        say(f"{as_text(answer, found_in, terminal_size().columns if on_terminal() else None)}\n")
        wrong += answer.is_wrong
    count = f"{len(asked)} reference{'s' * (len(asked) > 1)}"
    say(f"{count}, {wrong} with errors" if wrong else f"{count}, no errors")
    if wrong:
        if absent := missing_from(asked, found_in):
            say(absent)
        raise typer.Exit(2)


def init(code: Annotated[str, Option(help="Folder with your own code. Default: this one.")] = ".") -> None:
    """Write lmsweep.yaml: a first sweep of the models, attention and optimizers that this folder's code defines.

    \b
    Example:
      lmsweep init
    """
    from lmsweep.orchestrator.cluster.nodes import this_machine
    from lmsweep.orchestrator.sweep.first_sweep import first_sweep
    from lmsweep.orchestrator.sweep.sweep import load_sweep
    from lmsweep.trials.code.digest import code_folder
    from lmsweep.trials.code.discovery.discover import discover
    from lmsweep.trials.code.source import roots

    file = Path("lmsweep.yaml")
    if file.exists():
        raise RequestError(f"{file} exists; delete or rename it, and lmsweep init writes a new one")
    folder = code_folder(code)
    found = discover(folder)
    here = this_machine()
    read = "1 file" if found.files == 1 else f"{found.files} files"
    places = ", ".join(os.path.relpath(root, folder.folder) for root in roots(folder)).replace("., ", "", 1)
    looked = f"read {read} of {folder.folder}" + (f", packages from {places}" if places != "." else "")
    device = next(name for name in (*GPU_DEVICES, "mps", "cpu") if name in here.environments)
    inside = Path(folder.folder).is_relative_to(Path.cwd())
    relative = os.path.relpath(folder.folder) if inside else None  # a file leads into its own folder only
    elsewhere = "" if inside else f" --code {shlex.quote(code)}"
    sweep = first_sweep(Path(folder.folder).name, found, device=device, gpus=here.gpus, code=relative)
    if not sweep.text:
        raise RequestError(_nothing_to_name(looked, sweep.not_measured))
    adapter = Path(folder.folder, sweep.adapter_file)
    is_kept = sweep.adapter is not None and adapter.exists()
    to_write = None if is_kept else sweep.to_write
    if sweep.adapter and not is_kept:
        adapter.write_text(sweep.adapter, "utf-8")
        say(f"wrote {adapter}, which {'is to build' if to_write else 'builds'} your model")
    file.write_text(sweep.text, "utf-8")
    count = (
        "" if to_write else f"{len(load_sweep(str(file), code=None if inside else code).trials)} trials on {device}; "
    )
    say(f"wrote {file}: {count}{looked}")
    if found.unread:
        say(f"  {found.unread} more files were not read: choose a smaller folder with --code")
    for kind, listed in groupby(found.candidates, key=lambda one: one.kind):
        lines = [f"  {kind:<9}  {one.reference}  ({one.place})" for one in listed]
        say("\n".join(_first(lines)))
    if sweep.not_measured:
        say("found, and not in the sweep:")
        say("\n".join(_first([f"  {words}" for words in sweep.not_measured])))
    if not found.files:
        say(f"  the sweep is of lmsweep's model. {NOT_READ}")
    if to_write:
        say(f"\nbefore it runs, write {to_write}")
    if found.files:
        say(f"\nnext: lmsweep check {file}{elsewhere}  tries your code and measures nothing")
    say(f"then: lmsweep run {file}{elsewhere}")


def _first(lines: list[str], most: int = 10) -> list[str]:
    """Return the first lines, and how many more there are."""
    return lines if len(lines) <= most else [*lines[:most], f"  and {len(lines) - most} more"]


def _nothing_to_name(looked: str, left: tuple[str, ...]) -> str:
    if left:
        return "\n".join([f"nothing here can be measured as it is ({looked}):", *_first([f"  {one}" for one in left])])
    return (
        f"no model, attention, optimizer or wrapper was found, so there is no sweep of your code; {looked}. "
        f"{NOT_READ}; lmsweep show quick > mine.yaml begins with lmsweep's models"
    )


def notebooks(
    folder: Annotated[str, Argument(help="The folder to copy them to. It is created if it is not there.")],
) -> None:
    """Copy the Jupyter notebooks that ship with lmsweep. They run as they are, on results that ship with it, too.

    \b
    Example:
      lmsweep notebooks notebooks
    """
    target = Path(folder).expanduser()
    with as_file(files("lmsweep.analysis") / "notebooks") as source:
        shipped = sorted(source.glob("*.ipynb"))
        for notebook in shipped:
            if (target / notebook.name).exists():
                raise RequestError(f"{target / notebook.name} exists already; nothing was copied")
        try:
            target.mkdir(parents=True, exist_ok=True)
            for notebook in shipped:
                shutil.copyfile(notebook, target / notebook.name)
        except OSError as error:
            raise RequestError(f"{target}: cannot be written ({error.strerror})") from error
    names = "\n".join(f"  {notebook.name}" for notebook in shipped)
    say(f"{target} has {len(shipped)} notebooks:\n{names}")
    say(f"To open them: pip install jupyterlab matplotlib duckdb && jupyter lab {target}")
