"""What `run` says at its end: the headlines of its report, and whether there is one."""

import json
from pathlib import Path
from typing import Any

import pytest

from lmsweep.orchestrator.commands.run_summary import show_summary
from lmsweep.orchestrator.planning.plan import Plan
from lmsweep.orchestrator.running.run_plan import Account
from lmsweep.trials.spec.config import TrialConfig
from tests.support.made_up_results import H200, Attempts, config, planned, samples


def end_of_run(attempts: Attempts, action: Any, *configs: TrialConfig, left: str = "") -> None:
    """What a run of these trials prints at its end."""
    fields: dict[str, Any] = {"workload": "timing", "action": action, "environment": H200}
    trials = tuple(planned(one, place, **fields) for place, one in enumerate(configs or (config(),)))
    plan, account = Plan(sweep="made-up", trials=trials), Account(began=0.0, slots=1)
    show_summary(plan, attempts.store, account, trial_command=None, left=left)


@pytest.mark.parametrize("status", ["unsupported", "oom"])
def test_no_report_is_recommended_if_nothing_could_run(attempts: Attempts, capsys, status: str) -> None:
    attempts.failed(config(), status)
    end_of_run(attempts, "run")
    said = capsys.readouterr().out
    assert ("None of these trials can run here" in said) == (status == "unsupported")
    assert ("lmsweep report" in said) == (status == "oom")


def test_trials_that_the_time_cut_could_have_run_here(attempts: Attempts, capsys) -> None:
    attempts.failed(config(precision="fp8_tensorwise"), "unsupported")
    end_of_run(attempts, "run", config(precision="fp8_tensorwise"), config(), left="1 trial was cut")
    said = capsys.readouterr().out
    assert "None of these trials" not in said and said.endswith("1 trial was cut\n")


@pytest.mark.parametrize(("status", "said"), [("unsupported", "200 ms"), ("oom", "failed in 1 of 1 comparison")])
def test_what_a_machine_does_not_support_is_no_finding_but_a_failure_is(
    tmp_path: Path, capsys, status: str, said: str
) -> None:
    attempts, trials = Attempts(tmp_path / "results"), (config(), config(adapter="lora"))
    attempts.step(trials[0], 0.2)
    attempts.failed(trials[1], status)
    end_of_run(attempts, "run", *trials)
    [found] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("found:")]
    assert said in found and ("lora" in found) == (status == "oom")


def test_a_run_in_which_nothing_is_compared_ends_with_its_numbers(attempts: Attempts, capsys) -> None:
    attempts.ok(config(), {"step.time": (0.2,) * 10})
    end_of_run(attempts, "stored")
    assert capsys.readouterr().out.endswith(
        f"\nfound: Training step: 200 ms\nnext, in a browser: lmsweep report {attempts.store.location}\n"
    )


def test_what_a_sweep_asks_and_what_varies_find_the_same_gain_once(attempts: Attempts, capsys) -> None:
    """Packed batches have no budget of tokens, so that the fields that vary name the same two options otherwise."""
    asked = {"ask": "How to make batches?", "compare": ["batching"], "baseline": {"batching": "padded"}}
    ways: tuple[dict[str, Any], ...] = (
        {"batching": "padded"},
        {"batching": "padded", "compile": "block"},
        {"batching": "packed"},
        {"batching": "token_budget", "batch_tokens": 512},
    )
    trials = [config(context_length=128, lengths="uniform(16, 128)", **fields) for fields in ways]
    for trial, seconds in zip(trials, (0.3, 0.2, 0.1, 0.2), strict=True):
        times = {f"step.{name}": samples(seconds, seconds / 1e3) for name in ("time", "token_time")}
        padding = {"step.padding": (0.1,)}
        attempts.ok(trial, times | padding, units={"step.padding": "share"}, question=json.dumps(asked))
    end_of_run(attempts, "stored", *trials)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("found:")]
    assert ["3 times as fast" in line for line in lines].count(True) == 1
