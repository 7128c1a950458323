"""Profiles by NVIDIA's nsys, which a stand-in plays: tests/support/bin/nsys."""

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import psutil
import pytest

from lmsweep.analysis import load
from lmsweep.orchestrator.features.explain.nsys import profile_command, read_reports
from lmsweep.trials.machine import interpreter
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import Trial
from tests.support.command import PYTHONPATH, ROOT, lmsweep, refused_here
from tests.support.made_up_results import config
from tests.support.trial_here import run_here

STAND_IN = {"PATH": f"{ROOT / 'tests' / 'support' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
STEPS = interpreter.command("lmsweep.orchestrator.features.explain.nsys_target")
FIXED = {"model": "tiny", "mode": "train_step", "vocab_size": 50, "context_length": 8, "batch_size": 1}


def sweep_of_profiles(folder: Path) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(json.dumps({"name": "mine", "grids": [{"workloads": ["profile"], "fixed": FIXED}]}))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["trial", "run"])
def test_nsys_looks_at_the_profiled_steps_and_its_reports_become_the_same_tables(tmp_path: Path, verb: str):
    store, calls = tmp_path / "store", tmp_path / "calls"
    settings = ["workloads=profile", *(f"{name}={value}" for name, value in FIXED.items())]
    what = settings if verb == "trial" else [sweep_of_profiles(tmp_path)]
    done = lmsweep(verb, *what, "--nsys", "--store", store, NSYS_STAND_IN_CALLS=str(calls), **STAND_IN)
    assert done.returncode == 0, done.stdout + done.stderr
    profiled, stats = (json.loads(line) for line in calls.read_text().splitlines())
    assert profiled[0] == "profile" and {"--trace=cuda,nvtx", "--cuda-graph-trace=node"} < {*profiled}
    assert "lmsweep.orchestrator.features.explain.nsys_target" in profiled
    assert stats[0] == "stats" and {"--format=csv", "--report=cuda_gpu_trace"} < {*stats}
    kernels = pd.read_parquet(store / "kernels").set_index("kernel")
    assert set(kernels["profiler"]) == {"nsys"}
    assert kernels["range"].dropna().to_dict() == {
        "void exp_kernel<float, 4>(int, float)": "softmax",
        "ampere_sgemm_128x128_tn": "forward",
        "void mul_kernel<float>(float)": "backward of softmax",
    }
    assert kernels["share"]["[CUDA memset]"] == pytest.approx(0.001)  # in no range but the step's
    gemm = kernels.loc["ampere_sgemm_128x128_tn"]
    assert (gemm["operator"], gemm["share"], gemm["total"]) == ("aten::mm", 0.6, 6e-6)
    assert (gemm["instances"], gemm["grid"], gemm["block"]) == (1, "32 4 1", "256 1 1")
    assert kernels["grid"].isna().tolist() == (kernels.index == "[CUDA memset]").tolist()
    frame = load(str(store))
    report = frame[frame["metric"] == "trace"]["artifact"].iloc[0]
    assert report.endswith(".nsys-rep") and (store / report).read_bytes() == b"a report"
    operators = pd.read_parquet(store / "operators").set_index("name")
    assert operators["self_device"]["aten::mul"] == 990e-9 and operators["total_device"]["ExpBackward0"] == 990e-9


def test_on_a_gpu_nsys_records_from_the_first_profiled_step_to_the_last():
    captured = {"--capture-range=cudaProfilerApi", "--capture-range-end=stop"}
    on = {kind: set(profile_command("nsys", Path("r.nsys-rep"), kind, ["python"])) for kind in ("cuda", "cpu")}
    assert captured < on["cuda"] and not captured & on["cpu"]


def test_without_nsys_nothing_runs_and_one_sentence_says_why(tmp_path: Path):
    run = ["run", sweep_of_profiles(tmp_path), "--nsys", "--store", tmp_path / "store"]
    for command in (run, ["trial", "model=tiny", "workloads=profile", "--nsys"]):
        assert "nsys is not installed here" in refused_here(*command, PATH="/nowhere")
    assert not (tmp_path / "store").exists()
    assert "workload profile" in refused_here("run", "quick", "--nsys", **STAND_IN)


@pytest.mark.slow
def test_nsys_that_writes_no_report_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in (STAND_IN | {"NSYS_STAND_IN_CALLS": str(tmp_path / "calls")}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NSYS_STAND_IN_WRITES_NOTHING", "1")
    trial = config("tiny", profiler="nsys", mode="forward", vocab_size=50, context_length=8)
    (row,) = run_here(Trial(config=trial, workloads=("profile",), sweep="test"))
    assert isinstance(row, Record) and row.status == "error" and "nsys wrote no report" in (row.error or "")


@pytest.mark.slow
def test_what_nsys_looks_at_ends_with_the_trial_whatever_nsys_does(tmp_path: Path):
    long = config("small", profiler="nsys", mode="forward", context_length=1024, batch_size=64)
    (tmp_path / "trial.json").write_text(json.dumps(asdict(long)))
    code = (
        "import json, sys; from lmsweep.trials.spec.config import TrialConfig;"
        "from lmsweep.orchestrator.features.explain.nsys import profile_with_nsys; "
        "profile_with_nsys(TrialConfig(**json.load(open(sys.argv[1]))))"
    )
    environment = os.environ | STAND_IN | {"PYTHONPATH": PYTHONPATH, "NSYS_STAND_IN_CALLS": str(tmp_path / "calls")}
    with subprocess.Popen([sys.executable, "-c", code, tmp_path / "trial.json"], env=environment) as trial:
        until = time.monotonic() + 60
        steps: list[psutil.Process] = []
        while not steps:
            assert time.monotonic() < until, "nothing is profiled"
            with contextlib.suppress(psutil.NoSuchProcess):
                steps = [one for one in psutil.Process(trial.pid).children(True) if one.cmdline()[:4] == STEPS]
        trial.kill()
    assert not psutil.wait_procs(steps, timeout=15)[1], "they still run"


def test_reports_that_nsys_leaves_out_are_of_nothing(tmp_path: Path):
    assert read_reports(tmp_path / "stats") == ([], [])
    (tmp_path / "stats_cuda_gpu_trace.csv").write_text("SKIPPED: it does not contain CUDA trace data.\n")
    assert read_reports(tmp_path / "stats") == ([], [])
