"""PlanRequest: each option stands once, for the verbs and for the Python API."""

import inspect

import typer.main

import lmsweep
from lmsweep.orchestrator.commands.app import app
from lmsweep.orchestrator.plan_request import OPTIONS, PlanRequest

VERBS = {
    name: {word for one in verb.params for word in one.opts}
    for name, verb in vars(typer.main.get_command(app))["commands"].items()
}


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
    request = PlanRequest(
        "my sweep.yaml",
        store="s",
        grids=["a", "b"],
        overrides=("batch_size=1,2",),
        predict=False,
        nsys=True,
        fresh=True,
        retry=["error"],
        budget="1h",
        grace="30s",
    )
    assert request.resume_command() == (
        "lmsweep run 'my sweep.yaml' --store s --grid a --grid b --set batch_size=1,2 --grace 30s --no-predict --nsys"
    )
    assert PlanRequest("quick").resume_command("best", ["--goal", "memory"]) == "lmsweep best quick --goal memory"
    assert request.trial_command() == "lmsweep trial 'my sweep.yaml' batch_size=1,2 --id"
