"""Break-even: the steps after which the time of the compiler has been saved."""

import pytest

from lmsweep import analysis
from lmsweep.orchestrator.features.limits.cost import break_even
from tests.support.made_up_results import Attempts, config


def test_compiling_breaks_even_after_the_steps_that_save_its_time(attempts: Attempts) -> None:
    attempts.ok(config(compile="none"), {"step.time": (0.3,)})
    times = {"forward.compile_time": (2.0,), "backward.compile_time": (3.1,), "step.time": (0.1,)}
    attempts.ok(config(compile="block"), times)
    attempts.ok(config(compile="model"), {**times, "step.time": (0.4,)})
    found = break_even(analysis.load(attempts.store)).set_index("compile")
    block = found.loc["block"]
    assert block["compile_time"] == pytest.approx(5.0) and block["saved"] == pytest.approx(0.2)
    assert block["steps"] in (25, 26)  # 5.0 / 0.2, rounded up
    assert found.loc["model", "saved"] < 0 and found.loc["model", ["steps"]].isna().all()


def test_a_compiled_step_without_its_eager_counterpart_has_no_line(attempts: Attempts) -> None:
    attempts.ok(config(compile="none", context_length=128), {"step.time": (0.3,)})
    attempts.ok(config(compile="block"), {"forward.compile_time": (2.0,), "step.time": (0.1,)})
    assert break_even(analysis.load(attempts.store)).empty
