"""What a trial does before it touches a device."""

from dataclasses import replace

import pytest

from lmsweep.trials.bench import run_trial
from lmsweep.trials.results.record import records_of
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.spec.rules.device_rules import Capabilities
from tests.support.made_up_results import config
from tests.support.trial_here import run_here


def test_a_combination_that_a_rule_excludes_ends_before_the_device_is_prepared() -> None:
    trial = Trial(config=config(device="cuda", capture="step", accumulate=2), workloads=("timing",), sweep="s")
    (row,) = records_of(run_here(trial))
    assert (row.status, row.error) == (
        "unsupported",
        "capture: step captures each phase once; with accumulate a phase runs once per micro-batch",
    )


def test_what_this_device_lacks_is_unsupported_though_no_plan_knew_it(monkeypatch: pytest.MonkeyPatch) -> None:
    old = Capabilities("Quadro P400", (6, 1), bfloat16=False)
    monkeypatch.setattr(run_trial, "capabilities", lambda _: old)
    asked = replace(config(), attention="sdpa_flash", num_layers=1, d_model=32, d_ff=32, num_heads=2)
    (row,) = records_of(run_here(Trial(config=asked, workloads=("timing",), sweep="s")))
    assert row.status == "unsupported" and "compute capability 8.0 or higher; Quadro P400 has 6.1" in str(row.error)
