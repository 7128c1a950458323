"""How long a plan will take and what it costs; in which order it runs, and what of it where the time is given."""

import json
import re
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from lmsweep.analysis import render
from lmsweep.orchestrator.cluster.nodes import CpuRates, Node
from lmsweep.orchestrator.cluster.placement import Placement
from lmsweep.orchestrator.features.plan.plan_output import plan_output
from lmsweep.orchestrator.features.plan.plan_text import PlanText
from lmsweep.orchestrator.planning.plan import Plan, Planned, PlannedTrial, make_plan
from lmsweep.orchestrator.planning.plan_estimate import START_SECONDS, PlanEstimate, Range, estimate_plan
from lmsweep.orchestrator.planning.run_order import in_order
from lmsweep.orchestrator.planning.time_estimate import Estimate, Estimates, Took
from lmsweep.orchestrator.running.admission import Gate
from lmsweep.orchestrator.running.progress.eta import DeviceEta, Eta, Running
from lmsweep.orchestrator.running.progress.trial_progress import RunProgress, took_by
from lmsweep.orchestrator.running.progress.trial_words import descriptions
from lmsweep.orchestrator.running.run_plan import prepare
from lmsweep.orchestrator.sweep.ranges import TimeLimit, seconds_of
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.orchestrator.terminal import time_left
from lmsweep.trials.analytic.prices import parse_prices
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.record import Attempt, records_of
from lmsweep.trials.spec.config import RequestError, Trial, TrialConfig
from lmsweep.trials.spec.identity import measurement_id
from lmsweep.trials.store.store import Store
from tests.support import made_up_results
from tests.support.command import ROOT, lmsweep_here, write_sweep

H200 = replace(made_up_results.H200, torch_version="2.11.0+cu130", accelerator_type="H200")
HERE = {"cuda": H200, "cpu": replace(H200, device_name="C")}
NODE = Node(cpus=16, gpus=1, names=("H200",), environments=HERE)
GRID = ROOT / "benchmarks" / "end-to-end.yaml"
MEASURED = ROOT / "analysis" / "reference" / "h200-end-to-end"
TODAY = ROOT / "analysis" / "reference" / "h200-x2-end-to-end"
"""By the present measuring code, which profiles each step again."""


def text_of(plan: Plan, estimate: PlanEstimate) -> str:
    return render(PlanText(plan, estimate).listing(), "text")


def estimated(plan: Plan, store: Path, prices: Sequence[str] = (), nodes: Sequence[Node] = (NODE,)) -> PlanEstimate:
    return estimate_plan(plan, Estimates(Store(str(store)), nodes=nodes), nodes, parse_prices([*prices]))


def lines_of(plan: Plan, store: Path) -> list[str]:
    return text_of(plan, estimated(plan, store)).splitlines()


def each_of(trials: tuple[PlannedTrial, ...], store: Path, **changes: float) -> dict[int, Estimate]:
    estimates = Estimates(Store(str(store)))
    return {one.index: replace(estimates.of(one), **changes) for one in trials}


def plan_of(sweep: str | Path, store: Path, **overrides: list[str]) -> Plan:
    return make_plan(load_sweep(str(sweep), overrides), [NODE], Store(str(store)))


@pytest.mark.parametrize(
    ("compiled", "measured", "store"),
    # With an empty compile cache, and with one that has its graphs: docs/lab/2026-11-21-end-to-end-grid.md
    [("block", 74.4, "none"), ("model", 172.0, "none"), ("block", 58.4, MEASURED)],
)
def test_the_estimate_for_the_published_grid_is_within_30_percent_of_what_it_took(tmp_path, compiled, measured, store):
    plan = plan_of(GRID, tmp_path, compile=["none", compiled])
    assert estimated(plan, tmp_path / store).seconds == pytest.approx(measured, rel=0.3)


def test_each_trial_of_the_published_grid_is_estimated_within_half_of_what_it_took(tmp_path):
    rows = pd.read_parquet(TODAY / "measurements", columns=["measurement_id", "attempt_id", "phase", "unit", "samples"])
    rows = rows[(rows["phase"] == "trial") & (rows["unit"] == "s")]
    attempts = rows["samples"].map(sum).groupby([rows["measurement_id"], rows["attempt_id"]])
    taken = attempts.sum().groupby(level=0).median()
    plan, estimates = plan_of(GRID, tmp_path, compile=["none"]), Estimates(Store(str(tmp_path)))
    for planned in plan.to_run[1:]:  # the first one's set-up holds the start of the trial server
        took = taken[measurement_id(planned.trial.config, "timing")]
        assert estimates.of(planned).seconds == pytest.approx(took, rel=0.5), planned.trial.config


def test_dollars_are_those_of_each_gpu_that_ranks_take_from_the_start(tmp_path):
    node, store = replace(NODE, gpus=2), Store(str(tmp_path))
    plan = make_plan(load_sweep("ddp", {"device": ["cuda"], "world_size": [2], "compile": ["none"]}), [node], store)
    found = estimate_plan(plan, Estimates(store, lambda _: 0.1), [node], parse_prices(["H200=36"]))
    assert plan.to_run
    assert found.dollars == pytest.approx(2 * found.seconds * 36 / 3600)
    with pytest.raises(RequestError, match="another price also applies to NVIDIA H200"):
        estimated(plan, tmp_path, ["H200=36", "NVIDIA H200=1"])


def test_a_device_without_a_price_among_others_is_named_and_not_free(tmp_path):
    changes = {"device_name": "NVIDIA H100 80GB HBM3", "device_memory": 85_000_000_000, "accelerator_type": "H100"}
    other = replace(H200, **changes)
    nodes = [NODE, replace(NODE, names=("H100",), environments={"cuda": other})]
    sweep = load_sweep(str(GRID), {"device": ["cuda:H200", "cuda:H100"]})
    plan = make_plan(sweep, nodes, Store(str(tmp_path)))
    for prices, unpriced in ((["H200=36"], other.device_name), (["H100=36"], H200.device_name)):
        found = estimated(plan, tmp_path, prices, nodes)
        assert f"at least {found.dollars:.2f} dollars (no price for {unpriced})" in text_of(plan, found)
        answer = plan_output(plan, found)
        assert (answer.expected_dollars, answer.expected_dollars_reason) == (None, f"no price for {unpriced}")
    both = estimated(plan, tmp_path, ["H200=36", "H100=18"], nodes)
    assert f", {both.dollars:.2f} dollars" in text_of(plan, both)
    assert plan_output(plan, both).expected_dollars_reason is None


def test_the_speed_of_a_device_without_a_datasheet_comes_from_its_results(tmp_path):
    unknown, store = replace(H200, device_name="NVIDIA H900"), Store(str(tmp_path))
    node = replace(NODE, environments={"cuda": unknown})
    plan = make_plan(load_sweep(str(GRID), {"compile": ["none"], "model": ["small", "large"]}), [node], store)
    before = estimated(plan, tmp_path, nodes=[node])
    assert before.seconds is None
    text = text_of(plan, before)
    assert "\ntime ?: the speed of NVIDIA H900 is unknown until something has been measured" in text
    assert "\npeak memory ?: --no-predict\n" in text
    config = made_up_results.gpu("medium", precision="bf16", mode="forward_backward")
    attempt = Attempt.begin(Trial(config=config, workloads=("timing",), sweep="s"))
    times = {"setup": 2.0, "compile": 0.0, "warmup": 50.0, "measured": 100.0}
    found = [Measurement(phase="trial", metric=f"{k}_time", unit="s", samples=(v,)) for k, v in times.items()]
    store.keep(attempt.rows("timing", found, unknown))
    by_model = {p.trial.config.model: Estimates(store).of(p) for p in plan.to_run if p.trial.config.precision == "bf16"}
    assert by_model["small"].reason is by_model["large"].reason is None
    assert 2 + 50 < by_model["small"].seconds < 150 < by_model["large"].seconds


def test_the_predicted_step_counts_for_a_workload_beside_one_that_was_measured(tmp_path):
    store = Store(str(tmp_path))
    (planned, *_) = plan_of(GRID, tmp_path).to_run
    attempt = Attempt.begin(replace(planned.trial, workloads=("timing",)))
    took = [Measurement(phase="trial", metric="measured_time", unit="s", samples=(1.0,))]
    store.keep(attempt.rows("timing", took, H200))
    trial = replace(planned.trial, workloads=("timing", "memory"))
    slow, fast = (Estimates(store, lambda _, step=step: step).of(replace(planned, trial=trial)) for step in (2.0, 0.1))
    assert slow.seconds > fast.seconds + 1


def test_the_first_of_every_kind_comes_early_then_long_before_short_and_compiled_last(tmp_path):
    plan = plan_of(GRID, tmp_path)
    order = in_order(plan.to_run, each_of(plan.to_run, tmp_path))
    words = [(c.compile, c.model, c.precision) for c in (one.trial.config for one in order)]
    assert {words[0], words[1]} == {("none", "small", "tf32"), ("none", "small", "bf16")}
    assert words[2] == ("none", "2.7b", "tf32")
    assert words[9][1] == "medium"
    assert {words[10], words[11]} == {("block", "small", "tf32"), ("block", "small", "bf16")}
    assert words[12] == ("block", "2.7b", "tf32")
    assert sorted(one.index for one in order) == sorted(one.index for one in plan.to_run)
    long = plan_of(GRID, tmp_path, measure_steps=[2000]).to_run
    compiled = [one.trial.config.compile for one in in_order(long, each_of(long, tmp_path))]
    assert compiled == ["none"] * 2 + ["block"] * 2 + ["none"] * 8 + ["block"] * 8, "they do not wait for long ones"


def test_with_a_budget_short_trials_come_before_long_ones(tmp_path):
    plan = plan_of(GRID, tmp_path)
    found = each_of(plan.to_run, tmp_path)
    order = in_order(plan.to_run, found, budgeted=True)
    assert [one.trial.config.compile for one in order] == ["none"] * 10 + ["block"] * 10
    for part in (order[:10], order[10:]):
        seconds = [found[one.index].seconds for one in part]
        assert seconds == sorted(seconds)


def test_the_first_compiled_trial_is_expected_to_wait_for_the_compiler(tmp_path):
    plan = plan_of(GRID, tmp_path)
    planned = Planned(
        sweep=load_sweep(str(GRID)),
        plan=plan,
        store=Store(str(tmp_path)),
        nodes=[NODE],
        predictions=None,
        limit=TimeLimit("1000s"),
    )
    ready = prepare(planned, began=time.monotonic(), address=None)
    first, second = [one for one in ready.to_run if one.trial.config.compiles][:2]
    assert ready.eta.expected(first) > 12 > 5 > ready.eta.expected(second)


def test_max_seconds_and_the_timeout_bound_the_expected_time(tmp_path):
    def longest(**limits: list[float]) -> float:
        found = each_of(plan_of(GRID, tmp_path, **limits).to_run, tmp_path)
        return max(one.seconds for one in found.values())

    assert 2 < longest(measure_steps=[100_000], max_seconds=[2.0]) < 7
    assert longest(timeout_seconds=[1.5]) == 1.5


CPU = replace(H200, device_name="EPYC (16 cores)", device_memory=None, accelerator_type=None)
RATES = CpuRates(fp32=1e12, bf16=1e12, bytes_per_second=5e10)
WITH_CPU = replace(NODE, environments={"cuda": H200, "cpu": CPU}, cpu_rates=RATES)
BOTH = {"device": ["cuda", "cpu"], "model": ["medium"], "compile": ["none"], "precision": ["bf16"]}


def both_devices(store: Path, *nodes: Node) -> tuple[Plan, PlanEstimate]:
    plan = make_plan(load_sweep(str(GRID), BOTH), [*nodes], Store(str(store)))
    return plan, estimated(plan, store, nodes=nodes)


def test_the_time_of_a_trial_on_the_cpu_follows_from_what_its_cores_were_measured_to_do(tmp_path):
    _, fast = both_devices(tmp_path, WITH_CPU)
    rates = CpuRates(fp32=1e11, bf16=1e11, bytes_per_second=5e9)
    _, slow = both_devices(tmp_path, replace(WITH_CPU, cpu_rates=rates))
    assert fast.without == slow.without == 0
    seconds = [{one.kind: one.seconds for one in found.devices}["cpu"] for found in (fast, slow)]
    assert seconds[1] == pytest.approx(10 * seconds[0], rel=0.1)
    assert both_devices(tmp_path, NODE)[1].without == 1, "a machine that was not measured has no known speed"


def test_the_first_line_has_number_and_time_by_device_and_what_leaves_out_the_longest(tmp_path):
    devices = r"1 on EPYC \(16 cores\) in about [^,]+, 1 on NVIDIA H200 in about [^,]+"
    said = rf"2 to run, in about .*: {devices}; to leave out cpu: --set device=cuda$"
    assert re.search(said, text_of(*both_devices(tmp_path, WITH_CPU)).splitlines()[0])
    named = make_plan(load_sweep(str(GRID), BOTH | {"device": ["cuda:H200", "cpu"]}), [WITH_CPU], Store(str(tmp_path)))
    said = text_of(named, estimated(named, tmp_path, nodes=[WITH_CPU]))
    assert said.splitlines()[0].endswith("; to leave out cpu: --set device=cuda:H200")


@pytest.mark.slow
def test_what_leaves_out_the_cpu_is_a_command_that_plans_the_others_alone(tmp_path):
    sweep = write_sweep(tmp_path, device=["cpu", "cuda"], model="medium", context_length=256)
    asked = ["plan", sweep, "--store", tmp_path / "my store", "--no-predict", "--for", "H100"]
    command = shlex.split(lmsweep_here(*asked).splitlines()[0].rpartition("to leave out cpu: lmsweep ")[2])
    assert "leave out" not in lmsweep_here(*command).splitlines()[0]
    both, alone = (json.loads(lmsweep_here(*words, "--format", "json"))["trials"] for words in (asked, command))
    assert [one for one in both if one["config"]["device"] == "cuda"] == alone


def test_graphs_for_a_gpu_that_is_not_here_compile_on_as_many_cores_as_such_hosts_have(tmp_path):
    sweep = write_sweep(tmp_path, device="cuda", compile="block", context_length=[16, 32, 64, 128])
    asked = ["plan", sweep, "--store", tmp_path / "s", "--no-predict", "--for"]
    alone, eight = (lmsweep_here(*asked, gpus).splitlines() for gpus in ("H100", "8xH100"))
    (note,) = [line for line in alone if line.startswith("compiling: ")]
    assert re.fullmatch(r"compiling: about .* s on 12 cores for each GPU, as that host is not known", note)
    assert note in eight
    plan = make_plan(load_sweep(str(sweep)), [NODE], Store(str(tmp_path / "s")))
    assert "compiling: " not in text_of(plan, estimated(plan, tmp_path / "s")), "of this host the cores are known"


def test_the_table_of_a_plan_has_what_runs_here_and_not_what_is_unsupported(tmp_path):
    plan = plan_of(GRID, tmp_path, device=["cuda", "mps"])
    lines = lines_of(plan, tmp_path)
    table = lines[lines.index("") + 1 :]
    assert not [line for line in table if "unsupported" in line or "mps" in line]
    assert sum(line.endswith("  run") for line in table) == plan.count("run") == len(plan.trials) / 2
    assert f"... and {len(plan.trials) // 2} more; --all lists them, --format json has more" in table
    assert "device" not in table[0].split(), "it does not vary in the table"


def test_trials_on_the_cpu_and_on_the_gpus_of_one_machine_take_turns(tmp_path):
    _, found = both_devices(tmp_path, WITH_CPU)
    assert found.seconds == pytest.approx(START_SECONDS + sum(one.seconds or 0.0 for one in found.devices))
    nodes = [replace(WITH_CPU, node_id="a", gpus=0, environments={"cpu": CPU}), replace(WITH_CPU, node_id="b")]
    _, apart = both_devices(tmp_path, *nodes)
    assert apart.seconds == pytest.approx(START_SECONDS + max(one.seconds or 0.0 for one in apart.devices))


def test_what_trials_took_corrects_the_time_that_is_left():
    running = {1: Running(100.0, np.array([0.0, 10.0]))}
    device = DeviceEta(name="x", slots=2, running=running, left=4, parts_left=np.array([0.0, 40.0]))
    assert device.seconds_left(now=100.0) == pytest.approx(25.0)
    device.done, device.estimated, device.taken = 1, np.array([0.0, 10.0]), np.array([0.0, 30.0])
    assert device.seconds_left(now=100.0) == pytest.approx(2 * 25.0), "the first trial does not decide alone"
    device.done, device.estimated, device.taken = 20, np.array([0.0, 200.0]), np.array([0.0, 600.0])
    assert device.seconds_left(now=100.0) == pytest.approx(3 * 25.0, rel=0.1)


def test_the_overhead_of_a_slow_host_is_not_taken_for_slow_iterations():
    device = DeviceEta(name="x", slots=1, running={}, left=2, parts_left=np.array([2.0, 100.0]), done=20)
    device.estimated, device.taken = np.array([20.0, 10.0]), np.array([60.0, 10.0])  # short trials came first
    assert device.seconds_left(now=0.0) == pytest.approx(3 * 2.0 + 100.0, rel=0.02)


def test_short_trials_that_take_many_times_their_estimate_say_little_of_long_ones():
    device = DeviceEta(name="x", slots=1, running={}, left=100, parts_left=np.array([0.0, 30_000.0]), done=4)
    device.estimated, device.taken = np.array([0.0, 1.0]), np.array([0.0, 14.0])
    assert device.seconds_left(now=0.0) < 1.1 * 30_000
    assert device.corrected(np.array([0.0, 300.0])) < 1.1 * 300, "of one of them as of all"


@pytest.mark.parametrize(
    ("expected", "words"), [(Range(0.0, 0.5), "longer"), (Range(1e3, 1e4), "less time"), (Range(0.0, 1e4), None)]
)
def test_a_run_says_once_if_it_will_not_end_within_what_was_estimated(tmp_path, capsys, expected, words):
    trials = plan_of(GRID, tmp_path, measure_steps=[1]).to_run
    eta = Eta(trials, each_of(trials, tmp_path, seconds=0.02, iterating=0.0))
    options = {"names": descriptions(trials), "began": time.monotonic(), "expected": expected}
    with RunProgress(trials, eta, Console(width=1000), **options) as progress:
        for planned in trials[:6]:
            progress.started(planned)
            attempt = Attempt.begin(planned.trial)
            times = [Measurement(phase="trial", metric="setup_time", unit="s", samples=(0.1,))]
            progress.ended(planned, records_of(attempt.rows("timing", times, H200)))
    said = capsys.readouterr().out
    line = r"^this run takes (longer|less time) than estimated: (?:about [\d.]+ s|less than a second) left$"
    assert re.findall(line, said, re.M) == ([words] if words else [])


def test_the_wait_of_the_first_trial_for_a_worker_does_not_correct_the_others(tmp_path):
    trials = plan_of(GRID, tmp_path).to_run
    found = each_of(trials, tmp_path)
    eta = Eta(trials, found)
    before, (drawn, *_) = eta.expected(trials[1]), eta.snapshot()
    eta.started(trials[0])
    assert not drawn.running, "the view draws what no other thread changes meanwhile"
    first = found[trials[0].index]
    time.sleep(0.3)
    eta.ended(trials[0], Took(first.seconds - first.iterating, first.iterating))
    assert eta.expected(trials[1]) == pytest.approx(before)


def test_a_trial_of_two_ranks_takes_two_slots_of_the_time_that_is_left(tmp_path):
    trials = plan_of(GRID, tmp_path).to_run[:4]
    places = [Placement(bundle=(("GPU", k),), nodes=1, node_ids=(), slots=4 // k) for k in (1, 1, 2, 2)]
    trials = [replace(planned, placement=place) for planned, place in zip(trials, places, strict=True)]
    eta = Eta(trials, each_of(trials, tmp_path, seconds=8.0, iterating=0.0))
    assert eta.seconds_left() == pytest.approx((1 + 1 + 2 + 2) * 8 / 4)
    assert eta.needed(trials) == pytest.approx(eta.seconds_left())
    eta.started(trials[2])
    assert eta.seconds_left() == pytest.approx(12, abs=0.1)
    eta.left_out(trials[3])
    assert eta.seconds_left() == pytest.approx(8, abs=0.1)


def test_profiled_iterations_count_as_iterations():
    attempt = Attempt.begin(Trial(config=TrialConfig(d_model=2), workloads=("noop",), sweep="test"))
    seconds = {"setup": 1.0, "compile": 2.0, "precompile": 4.0, "warmup": 8.0, "measured": 16.0, "profiled": 32.0}
    found = [Measurement(phase="trial", metric=f"{k}_time", unit="s", samples=(v,)) for k, v in seconds.items()]
    assert took_by(records_of(attempt.rows("noop", found, H200))) == Took(7.0, 56.0)


def test_the_time_left_is_never_negative_nor_in_microseconds():
    device = DeviceEta(name="x", slots=2, running={}, parts_left=np.array([0.0, -2.24e-16]))
    assert device.seconds_left(now=0.0) == 0.0
    assert [time_left(one) for one in (0.0, 0.99, 1.0)] == ["less than a second left"] * 2 + ["about 1.0 s left"]


@pytest.mark.parametrize(
    ("name", "memory", "took"),
    [("NVIDIA H200", 150_000_000_000, 102.6), ("NVIDIA H100 80GB HBM3", 85_000_000_000, 146.0)],  # on a slow host
)
def test_what_a_run_takes_lies_in_the_estimated_range(tmp_path, name, memory, took):
    node = replace(NODE, environments={"cuda": replace(H200, device_name=name, device_memory=memory)})
    alone = {"processes": [1], "warmup_steps": [5], "measure_steps": [10]}
    plan = make_plan(load_sweep("local-gpu", alone), [node], Store(str(tmp_path)))
    found = estimated(plan, tmp_path, nodes=[node])
    assert found.between is not None and found.between[0] < took < found.between[1]
    assert re.search(r"in about \d min \d\d s \(1 min \d\d s to \d min \d\d s\)", text_of(plan, found))


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("90s", 90), ("1.5h", 5400)])
def test_a_budget_is_a_time_with_its_units(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.slow
def test_trials_may_begin_while_another_thread_ends_others(tmp_path):
    trials = plan_of(GRID, tmp_path, batch_size=list(range(1, 33))).to_run
    gate = Gate(Eta(trials, each_of(trials, tmp_path)), until=time.monotonic() + 1e9, on_close=lambda: None)
    over = Event()

    def end_them() -> None:
        while not over.is_set():
            for planned in trials:
                gate.ended(planned)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    ending = Thread(target=end_them)
    ending.start()
    try:
        assert all(gate.admits(planned) for _ in range(3) for planned in trials)
    finally:
        over.set()
        ending.join()
        sys.setswitchinterval(usual)


def test_a_run_whose_budget_holds_no_trial_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    sweep = write_sweep(tmp_path, measure_steps=1_000_000)
    said = lmsweep_here("run", sweep, "--store", tmp_path / "store", "--budget", "1s", "--no-predict")
    assert re.search(r"2 trials \(.*\) did not fit into 1s", said)
    assert "ray" not in sys.modules, "Ray was started for nothing"
