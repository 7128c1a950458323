"""Cost: dollars and joules per million tokens, and the steps after which the time of the compiler has been saved."""

import numpy as np
import pytest

from lmsweep import analysis
from lmsweep.orchestrator.features.limits.cost import break_even, cost
from lmsweep.trials.analytic.prices import parse_prices
from tests.support.command import lmsweep_here
from tests.support.made_up_results import Attempts, config, gpu, samples


def test_a_million_tokens_cost_the_dollars_and_joules_of_their_steps(attempts: Attempts) -> None:
    attempts.ok(gpu(), {"step.time": samples(0.1024, 1e-6)})  # 1024 tokens: 10 000 a second
    attempts.ok(gpu(), {"step.energy": (51.2,)}, workload="energy", units={"step.energy": "J"})
    (row,) = cost(analysis.load(attempts.store), parse_prices(["H200=3.6"])).itertuples()
    assert row.tokens_per_second == pytest.approx(10_000)
    assert row.dollars == pytest.approx(0.1)  # 100 s of 0.001 dollars each
    assert row.joules == pytest.approx(50_000)
    (without,) = cost(analysis.load(attempts.store)).itertuples()
    assert np.isnan(without.dollars)


@pytest.mark.parametrize(("text", "name"), [("RTX4090", "NVIDIA GeForce RTX 4090"), ("h200", "NVIDIA H200")])
def test_a_price_is_of_whole_words_of_any_case_with_or_without_a_space(text: str, name: str) -> None:
    (price,) = parse_prices([f"{text}=1"])
    assert price.is_of(name, None)
    assert not price.is_of(f"{name}0", None) and not price.is_of(f"{name}D", None)


def test_what_the_device_costs_does_not_depend_on_its_host(attempts: Attempts) -> None:
    for context_length, host in ((256, 2.0), (512, 8.0)):
        found = {"step.time": samples(0.0512 * host, 1e-6), "step.device_time": samples(0.0512, 1e-6)}
        attempts.ok(gpu(context_length=context_length, batch_size=1024 // context_length), found)
    rows = cost(analysis.load(attempts.store), parse_prices(["H200=3.6"]))
    assert rows["device_dollars"].tolist() == pytest.approx([0.05, 0.05])
    assert sorted(rows["dollars"]) == pytest.approx([0.1, 0.4])
    text = lmsweep_here("table", attempts.store.location, "--preset", "cost", "--price", "H200=3.6")
    assert "device_dollars ($/Mtoken)" in text and "a faster host saves the rest" in text


def test_compiling_breaks_even_after_steps_that_save_its_time_where_an_eager_one_is_known(attempts: Attempts) -> None:
    attempts.ok(config(compile="none"), {"step.time": (0.3,)})
    times = {"forward.compile_time": (2.0,), "backward.compile_time": (3.1,), "step.time": (0.1,)}
    attempts.ok(config(compile="block"), times)
    attempts.ok(config(compile="model"), {**times, "step.time": (0.4,)})
    attempts.ok(config(compile="block", context_length=128), times)
    found = break_even(analysis.load(attempts.store)).set_index("compile")
    assert list(found["context_length"]) == [256, 256], "the other has no eager counterpart"
    block = found.loc["block"]
    assert block["compile_time"] == pytest.approx(5.0) and block["saved"] == pytest.approx(0.2)
    assert block["steps"] in (25, 26)  # 5.0 / 0.2, rounded up
    assert found.loc["model", "saved"] < 0 and found.loc["model", ["steps"]].isna().all()
