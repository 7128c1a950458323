"""What, Where and How: each option stands once, for the verbs and for the Python API."""

import inspect
from dataclasses import replace

import typer.main

import lmsweep
from lmsweep.orchestrator.commands.app import app
from lmsweep.orchestrator.plan_request import OPTIONS, How, What, Where, command_on, resume_command

COMMANDS = vars(typer.main.get_command(app))["commands"]
VERBS = {name: {word for one in verb.params for word in one.opts} for name, verb in COMMANDS.items()}


def test_the_api_takes_every_option_of_the_record_by_name() -> None:
    for function in (lmsweep.plan, lmsweep.run):
        parameters = inspect.signature(function).parameters
        assert OPTIONS.keys() < parameters.keys() and parameters["store"].default == "results"
        assert parameters["retry"].annotation != inspect.Parameter.empty


def test_run_has_every_option_of_the_record_and_the_other_verbs_some() -> None:
    assert set(OPTIONS.values()) - VERBS["run"] == {"--nodes", "--network"}, "of GPUs that are not there"
    assert {"--store", "--grid", "--set", "--code", "--trust"} <= VERBS["plan"] & VERBS["best"] & VERBS["bisect"]
    assert not VERBS["plan"] & {"--grace", "--budget", "--until", "--nsys"}


def test_the_command_that_resumes_has_what_was_given_but_neither_fresh_nor_retry() -> None:
    what = What("my sweep.yaml", grids=["a", "b"], overrides=("batch_size=1,2",), nsys=True)
    how = How(predict=False, fresh=True, retry=["error"], budget="1h", grace="30s")
    assert resume_command("run", what, Where(store="s"), how) == (
        "lmsweep run 'my sweep.yaml' --store s --grid a --grid b --set batch_size=1,2 --nsys --grace 30s --no-predict"
    )
    searched = resume_command("best", What("quick"), Where(), How(), ["--goal", "memory"])
    assert searched == "lmsweep best quick --goal memory"
    assert what.trial_command() == "lmsweep trial 'my sweep.yaml' batch_size=1,2 --id"


def test_the_command_for_some_devices_has_everything_else_that_was_given() -> None:
    what = What("my sweep.yaml", overrides=("device=cpu,cuda", "batch_size=1,2"))
    how, where = How(fresh=True, budget="1h"), Where(store="s")
    rest = "'my sweep.yaml' --store s --set batch_size=1,2 --set device=cuda --fresh"
    assert command_on("cuda", what, where, how) == f"lmsweep run {rest} --budget 1h"
    elsewhere = replace(where, device="8xH100")
    assert command_on("cuda", what, elsewhere, How(fresh=True)) == f"lmsweep plan {rest} --for 8xH100"
