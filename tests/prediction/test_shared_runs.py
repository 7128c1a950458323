"""What is shared between predictions (runs, graphs, iterations), against running everything."""

from dataclasses import replace
from typing import Any

import pytest

from lmsweep.trials.prediction.compiled.aot_graph import in_primes
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.shared_runs import forget_runs, one_run_for
from lmsweep.trials.spec.config import TrialConfig
from tests.support.whole_steps import small, whole_memory

pytestmark = pytest.mark.usefixtures("one_core")


def compiled(**fields: Any) -> TrialConfig:
    return small(device="cuda", compile="block", num_layers=1, **fields)


# The memory-efficient kernel of heads of 16 rounds rows up to multiples of 32, which no product of primes stands for.
@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"precision": "bf16"}, {"attention": "sdpa", "d_model": 32}], ids=str)
def test_a_graph_of_primes_stands_for_that_of_any_size(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config = compiled(**fields)
    assert in_primes(one_run_for(config)) is not None
    forget_runs()
    found = predict(config)
    # The graph of its own sizes is traced where there are no primes.
    monkeypatch.setattr("lmsweep.trials.prediction.compiled.trial_graph.in_primes", lambda one: None)
    forget_runs()
    assert predict(config) == found


def test_no_primes_stand_for_one_sequence_nor_for_a_width_of_heads_that_decides_their_kernel() -> None:
    for fields in ({"batch_size": 1}, {"attention": "sdpa"}):  # heads of 12, which 8 does not divide
        assert in_primes(one_run_for(compiled(**fields))) is None


def test_one_run_serves_all_modes() -> None:
    fields: dict[str, Any] = {"precision": "bf16", "zero_grad": "before_backward"}
    config = small(device="cuda", mode="forward_backward", **fields)
    assert predict(config, run="train_step") == predict(config)
    assert one_run_for(config) == one_run_for(replace(config, mode="train_step"))


def test_micro_batches_of_forward_alone_are_not_taken_from_a_run_with_backward_between_them() -> None:
    config = small(mode="train_forward", accumulate=2, batch_size=4)
    assert predict(config, run="forward_backward") == predict(config)


@pytest.mark.slow
def test_mps_shares_the_run_of_the_cpu_where_they_do_the_same() -> None:
    for fields, same in (({}, True), ({"precision": "bf16"}, False), ({"attention": "sdpa"}, False)):
        cpu, mps = (small(device=device, **fields) for device in ("cpu", "mps"))
        assert (one_run_for(cpu) == one_run_for(mps)) is same
        if same:
            assert predict(cpu) == whole_memory(mps)
