"""The processes that predict memory while a plan is made: they end with whoever asked them, say how far they are, and
what they have found by then is kept.
"""

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from lmsweep.orchestrator.planning import memory_predictions
from lmsweep.orchestrator.planning.memory_budget import CUDA_RESERVE
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.analytic.memory_bounds import Need, bounds_of
from lmsweep.trials.analytic.memory_prediction import upper_bound
from lmsweep.trials.analytic.prediction_question import MemoryLimit, Question
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.predict import answer_to
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES
from tests.support.command import answer_here, lmsweep_here, start, write_sweep
from tests.support.waiting import assert_nothing_left, wait_until

SIDE_BY_SIDE = min(2, len(usable_cores()))
"""Processes that predict at the same time, at least."""


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def predicting(pid: int) -> list[psutil.Process]:
    """The processes at it, once all are."""

    def at_it() -> list[psutil.Process]:
        children = psutil.Process(pid).children(recursive=True)
        with suppress(psutil.NoSuchProcess):  # another child has just ended
            return [one for one in children if "lmsweep.trials.prediction.predict" in one.cmdline()]
        return []

    wait_until(lambda: len(at_it()) > (SIDE_BY_SIDE if SIDE_BY_SIDE > 1 else 0))
    return at_it()


def kept(folder: Path) -> list[str]:
    """The lines of the cache, one for each prediction of memory."""
    lines = [line for path in folder.glob("lmsweep/*") for line in path.read_text().split("\n") if line]
    return [line for line in lines if not json.loads(line)[0].endswith(memory_predictions.OPERATORS)]


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_what_was_predicted_before_a_plan_is_killed_is_kept(tmp_path: Path):
    trials = load_sweep("local-gpu", {"compile": ["none"]}).trials
    first = Predictions(trials)
    count = first.asked
    wait_until(lambda: kept(tmp_path), 120)
    first.close()
    lines = kept(tmp_path)
    assert 0 < len(lines) < count, "nothing is kept before all is known"

    cache = next(tmp_path.glob("lmsweep/*"))
    cache.write_text(cache.read_text() + lines[0][: len(lines[0]) // 2])  # killed while it wrote
    second = Predictions(trials)
    assert second.asked == count - len(lines)
    second.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_plan_that_is_ended_leaves_nothing_predicting(how: signal.Signals, tmp_path: Path):
    with start("plan", "local-gpu", "--for", "H100", "--store", tmp_path / "store") as process:
        found = predicting(process.pid)
        os.killpg(process.pid, how) if how == signal.SIGINT else process.kill()  # Ctrl-C reaches the whole group
        _, err = process.communicate(timeout=60)
    assert_nothing_left(found)
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    assert "Traceback" not in err


MODES = ("forward", "forward_backward", "train_step")


@pytest.mark.slow
def test_a_few_peaks_bound_those_of_smaller_and_larger_trials():
    sizes = {name: asdict(size) for name, size in SIZES.items() if name in ("small", "medium", "large")}
    configs = [
        TrialConfig(model=name, **size, batch_size=batch, context_length=context, mode=mode)
        for name, size in sizes.items()
        for batch in range(1, 17)
        for context in range(64, 1025, 64)
        for mode in MODES
    ]
    peaks = [upper_bound(config, "model") * (1 + MODES.index(config.mode)) for config in configs]
    room, asked = sorted(peaks)[len(peaks) // 2], []

    def need(index: int) -> Need:
        asked.append(index)
        return Need(peaks[index], enough=peaks[index])

    bounds = bounds_of(configs, [room], need, most=40)
    assert len(asked) == 40
    assert all((one.low or 0) <= true <= (one.high or true) for one, true in zip(bounds, peaks, strict=True))
    decided = [(one.low or 0) > room or (one.high is not None and one.high <= room) for one in bounds]
    assert sum(decided) > 0.7 * len(configs)

    asked.clear()
    bounds = bounds_of(configs, [room], need, most=len(configs))
    known = zip(bounds, peaks, strict=True)
    assert all((one.low or 0) > room if true > room else one.high <= room for one, true in known)
    assert len(asked) < len(configs) / 10


@pytest.mark.slow
@pytest.mark.parametrize("fewest", ["FEW", "MOST"])
def test_of_many_trials_some_are_predicted_and_no_verdict_about_another_is_wrong(
    fewest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(memory_predictions, "FEW", 5)
    monkeypatch.setattr(memory_predictions, fewest, 5)
    monkeypatch.setattr(memory_predictions, "BOUND_SECONDS", 120.0)
    axes = {"model": ["tiny", "small"], "context_length": [64, 256, 1024], "batch_size": [1, 4, 16, 64]}
    sweep = write_sweep(tmp_path, **axes, device="cuda", mode="train_step", vocab_size=10_000)
    command = ["plan", sweep, "--for", "4GB", "--store", tmp_path / "none", "--format", "json"]
    found = json.loads(lmsweep_here(*command))["trials"]
    room = 4 * 10**9 - CUDA_RESERVE
    assert any("so large a plan predicts only some" in (one["predicted_peak_reason"] or "") for one in found)
    actions = set()
    for one in found:
        peak = predict(TrialConfig(**one["config"])).on("a 4GB device").peak
        assert one["predicted_peak_bytes"] in (None, peak)
        assert one["action"] == ("run" if peak <= room else "predicted_oom"), one
        actions.add(one["action"])
    assert len(actions) == 2
    predicted = len(kept(tmp_path))
    assert 0 < predicted < 12
    lmsweep_here(*command)
    assert len(kept(tmp_path)) == predicted, "what is known decides again"


def test_a_sweep_that_no_device_here_can_run_is_refused_before_it_is_expanded(tmp_path: Path):
    sweep = write_sweep(tmp_path, batch_size=["1..1000+1"], context_length=["1..200+1"], device="xpu")
    answer_here("doctor")  # looks at the machine
    before = time.process_time()
    done = answer_here("plan", sweep, "--store", tmp_path / "none")
    assert time.process_time() - before < 3, "it was expanded"
    assert done.returncode == 2 and done.stderr.startswith(f"{sweep}: 200000 combinations\n")
    assert "none of the 200000 combinations can run: this machine has no xpu device" in done.stderr
    assert f"lmsweep plan {sweep} --for H100" in done.stderr


@pytest.mark.slow
def test_a_frontier_that_cannot_be_found_leaves_the_others_theirs():
    tiny = TrialConfig(model="tiny", **asdict(SIZES["tiny"]), device="cuda")
    no_such_budget = 2**70  # a batch that fills it has more elements than PyTorch can count
    limits = [MemoryLimit("NVIDIA H100", budget) for budget in (no_such_budget, 10**9)]
    questions = [Question(config=tiny, wants=("largest",), limits=(limit,)) for limit in limits]
    found = [answer_to(question) for question in questions]
    assert not found[0].largest and found[0].failure.startswith("predicting it failed: RuntimeError: ")
    assert found[1].largest[0].sure > 0 and found[1].why_not is None
