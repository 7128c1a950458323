"""A step of compiled blocks that stays within a budget of memory."""

from dataclasses import replace

import pytest
from torch.profiler import ProfilerActivity, profile

from lmsweep.trials.bench.run_trial import run_workload
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.spec.config import UnsupportedError
from tests.support.whole_steps import small

SIZE = {"d_model": 128, "d_ff": 512, "num_layers": 4, "num_heads": 4, "vocab_size": 200, "context_length": 128}
BLOCKS = small(**SIZE, batch_size=2, compile="block", mode="forward_backward", warmup_steps=1, measure_steps=2)


def peak_of_a_step(bench: Workbench) -> int:
    """Bytes at the peak of an iteration, by the events of PyTorch's CPU allocator."""
    step = bench.step
    lasting = [*step.model.parameters(), *step.model.buffers(), step.inputs, step.targets]
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
            for phase in step.phases():
                phase.run()
        step.drop()
    held = peak = sum(tensor.nbytes for tensor in lasting)
    for event in sorted(trace.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


@pytest.mark.slow  # compiles
def test_the_peak_of_a_step_is_within_its_budget():
    free = predict(BLOCKS).peak
    budget = free * 3 // 4
    bench = Workbench(replace(BLOCKS, memory_budget=budget), requested_at=0.0)
    assert 0 < bench.saved_share < 1
    with bench.quiet():
        assert peak_of_a_step(bench) <= budget < free
    bench.clear()


@pytest.mark.slow  # compiles
def test_a_budget_below_what_is_always_held_is_unsupported_with_the_numbers():
    bench = Workbench(replace(BLOCKS, memory_budget=10**6), requested_at=0.0)
    with pytest.raises(UnsupportedError, match="inputs of each block alone"):
        bench.step  # noqa: B018


@pytest.mark.slow  # compiles
def test_the_share_that_is_saved_is_a_row_of_each_workload_that_runs_the_step():
    bench = Workbench(replace(BLOCKS, memory_budget=10**12), requested_at=0.0)
    rows = [row for row in run_workload(bench, "timing") if isinstance(row, Measurement)]
    assert [row.samples for row in rows if row.metric == "saved_share"] == [(1.0,)]
    bench.clear()


def test_a_plan_says_why_it_does_not_know_the_memory_of_a_budget():
    with pytest.raises(UnpredictableError, match="found by the trial"):
        predict(replace(BLOCKS, memory_budget=10**9))
