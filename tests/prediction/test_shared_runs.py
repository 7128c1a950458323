"""What is shared between predictions (runs, graphs, iterations), against running everything."""

from dataclasses import replace
from typing import Any

import pytest

from lmsweep.trials.prediction.compiled.aot_graph import in_primes
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.shared_runs import forget_runs, one_run_for
from tests.support.whole_steps import small, totals, whole_memory, whole_operators

pytestmark = pytest.mark.usefixtures("one_core")


@pytest.mark.parametrize(
    ("fields", "tried"),
    [
        pytest.param({"compile": "block", "precision": "bf16", "num_layers": 1}, True, marks=pytest.mark.slow),
        ({"compile": "block", "num_layers": 1, "batch_size": 1}, False),
        # The memory-efficient kernel rounds rows up to multiples of 32, which no product of primes stands for.
        pytest.param(
            {"compile": "block", "num_layers": 1, "attention": "sdpa", "d_model": 32}, True, marks=pytest.mark.slow
        ),
        # A GPU's kernel depends on whether the width of a head, 12, is a multiple of 8.
        ({"compile": "block", "num_layers": 1, "attention": "sdpa"}, False),
    ],
    ids=str,
)
def test_a_graph_of_primes_stands_for_that_of_any_size(
    fields: dict[str, Any], tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(device="cuda", **fields)
    subject: Any = "model" if config.num_layers else "attention"
    forget_runs()
    found, asked = predict(config, subject), []
    # The graph of its own sizes is traced where there are no primes.
    monkeypatch.setattr(
        "lmsweep.trials.prediction.compiled.trial_graph.in_primes", lambda one: asked.append(in_primes(one))
    )
    forget_runs()
    assert predict(config, subject) == found
    assert [one is not None for one in asked] == [tried]


@pytest.mark.parametrize(
    ("mode", "fields"),
    [
        ("train_forward", {}),
        ("forward_backward", {"precision": "bf16", "zero_grad": "before_backward"}),
    ],
)
def test_one_run_serves_all_modes(mode: Any, fields: dict[str, Any]) -> None:
    config = small(device="cuda", mode=mode, **fields)
    assert predict(config, run="train_step") == predict(config)
    assert one_run_for(config) == one_run_for(replace(config, mode="train_step"))


def test_mps_shares_the_run_of_the_cpu_where_they_do_the_same() -> None:
    for fields, same in (({}, True), ({"precision": "bf16"}, False), ({"attention": "sdpa"}, False)):
        cpu, mps = (small(device=device, **fields) for device in ("cpu", "mps"))
        assert (one_run_for(cpu) == one_run_for(mps)) is same
        if same:
            assert predict(cpu) == whole_memory(cpu) == whole_memory(mps)
            assert totals(whole_operators(cpu)) == totals(whole_operators(mps))
