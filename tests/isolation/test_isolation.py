"""A trial's process may end in any way: each has its status, and none harms the next."""

import contextlib
import re
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from lmsweep.orchestrator.interrupt import postpone_termination
from lmsweep.orchestrator.running.progress.trial_words import outcome
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.store.store import Store
from tests.support.command import PYTHONPATH, lmsweep, start
from tests.support.made_up_results import TINY
from tests.support.needs import needs_cuda
from tests.support.trial_here import run_here
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("one_core")
ENDLESS = replace(TINY, measure_steps=10**7)
CUDA_OUT_OF_MEMORY = """
name: cuda-out-of-memory
grids:
  - workloads: [timing]
    axes: {model: [tiny], context_length: [16, 32]}
    fixed: {device: cuda, mode: train_step, batch_size: 1, warmup_steps: 1, measure_steps: 3}
    include: [{model: 2.7b, context_length: 1024, batch_size: 512}]
"""


@pytest.fixture(scope="module")
def runner(no_servers):
    with IsolatedRunner() as runner:
        yield runner
    assert not our_children()


def run(
    runner: IsolatedRunner, environment: Fingerprint, config: TrialConfig = TINY, **changes: object
) -> list[Record]:
    trial = Trial(config=replace(config, **changes), workloads=("timing",), sweep="test")
    return runner.run(trial, fallback=environment)


def our_children() -> list[psutil.Process]:
    found = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if is_ours(one):
                found.append(one)
    return found


def is_ours(process: psutil.Process) -> bool:
    """Whether it serves or runs trials; some helpers of Ray's own outlive their node by a minute."""
    return "lmsweep.trials.isolation.server" in process.cmdline()


def signal_later(sign: int, *, to_server: bool = False) -> threading.Thread:
    """Signals the trial's process as soon as it has run for a moment."""

    def sent() -> bool:
        if len(our_children()) < 2:
            return False
        time.sleep(1.0)
        ours = our_children()
        if len(ours) == 2:  # a server that asks git is two for a moment
            parents = {one.ppid() for one in ours}
            next(one for one in ours if (one.pid in parents) == to_server).send_signal(sign)
        return len(ours) == 2

    thread = threading.Thread(target=wait_until, args=(sent,))
    thread.start()
    return thread


def test_each_workload_has_rows_of_its_phases_and_time_and_what_cannot_be_known_has_a_reason(runner, environment):
    trial = Trial(config=TINY, workloads=("timing", "energy"), sweep="test")
    rows = runner.run(trial, fallback=environment)
    assert {row.workload for row in rows} == {"timing", "energy"} and {row.status for row in rows} == {Status.OK}
    assert len({row.attempt_id for row in rows}) == 1
    names = {f"{row.phase}.{row.metric}" for row in rows}
    assert {"forward.time", "step.time", "trial.setup_time", "trial.warmup_time", "trial.measured_time"} <= names
    assert type(rows[0].fingerprint.torch_version) is str, "to read torch's own type would take importing torch"
    energy = next(row for row in rows if row.metric == "energy")
    assert (energy.status, energy.samples) == (Status.OK, None)
    assert "NVIDIA" in (energy.reason or "")


@pytest.mark.parametrize("sign", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_process_that_is_ended_by_a_signal_is_lost_and_the_next_trial_is_not(runner, environment, sign):
    thread = signal_later(sign)
    rows = run(runner, environment, ENDLESS)
    thread.join()
    assert [row.status for row in rows] == [Status.LOST]
    assert sign.name in (rows[0].error or "")
    assert run(runner, environment)[0].status == Status.OK


def test_a_process_that_hangs_times_out_and_says_where_it_hung(runner, environment):
    rows = run(runner, environment, ENDLESS, timeout_seconds=2.0)
    assert [row.status for row in rows] == [Status.TIMEOUT]
    assert "trials/workloads/timing.py" in (rows[0].error or "")
    assert run(runner, environment)[0].status == Status.OK


@pytest.mark.slow
def test_the_death_of_the_server_takes_its_child_along_and_the_next_trial_has_a_new_one(runner, environment):
    thread = signal_later(signal.SIGKILL, to_server=True)
    rows = run(runner, environment, ENDLESS)
    thread.join()
    assert [row.status for row in rows] == [Status.LOST]
    time.sleep(0.5)
    assert not our_children()
    assert run(runner, environment)[0].status == Status.OK


def test_memory_that_is_not_there_is_oom(runner, environment):
    rows = run(runner, environment, batch_size=10**14)  # more than addresses, also where memory is overcommitted
    assert [row.status for row in rows] == [Status.OOM]
    assert "allocate" in (rows[0].error or "")
    assert re.fullmatch(r"oom: requested \d+ GiB, which this machine could not provide", outcome(rows))
    assert run(runner, environment)[0].status == Status.OK


@needs_cuda
@pytest.mark.alone_on_gpu
def test_a_trial_that_needs_more_than_cuda_has_is_oom_and_leaves_the_gpu_as_it_was(tmp_path):
    pynvml = pytest.importorskip("pynvml")
    pynvml.nvmlInit()
    one_gpu = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    used_before = pynvml.nvmlDeviceGetMemoryInfo(gpu).used
    (tmp_path / "sweep.yaml").write_text(CUDA_OUT_OF_MEMORY)
    command = ("run", tmp_path / "sweep.yaml", "--no-predict", "--store", tmp_path / "store")
    process = start(*command, **one_gpu)
    family: set[psutil.Process] = set()
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            family |= {one for one in psutil.Process(process.pid).children(recursive=True) if is_ours(one)}
        time.sleep(0.05)
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    table = Store(str(tmp_path / "store")).read()[0].to_pandas().drop_duplicates("trial_id").set_index("context_length")
    assert table["status"].to_dict() == {1024: "oom", 16: "ok", 32: "ok"}
    assert "out of memory" in table.loc[1024, "error"]
    assert table["started_at"].idxmax() != 1024, "no trial came after it"
    assert len(family) >= 3 and not psutil.wait_procs(family, timeout=30)[1], "it left processes running"
    assert pynvml.nvmlDeviceGetMemoryInfo(gpu).used - used_before < 64e6
    assert "0 to run" in lmsweep("plan", *command[1:], **one_gpu).stdout


@pytest.mark.slow
def test_a_trial_that_takes_too_much_of_the_hosts_memory_is_ended_before_the_host_is(environment, monkeypatch):
    monkeypatch.setenv("LMSWEEP_HOST_MEMORY", "1.5GB")
    with IsolatedRunner() as runner:
        (row,) = run(runner, environment, batch_size=4000, context_length=64, measure_steps=10**6)
        assert run(runner, environment)[0].status == Status.OK
    words = r"host memory: it held [\d.]+ GiB, more than the 1.37 GiB that a trial may hold"
    assert row.status == Status.OOM and re.fullmatch(words, row.error or "")


@pytest.mark.slow
def test_a_schedulers_signal_reaches_a_handler_in_a_trial_and_its_exit_harms_no_other_trial(
    runner, environment, monkeypatch, tmp_path
):
    """The server is started where a run starts it, out of the reach of signals; its children are not."""
    leave = "lambda: signal.signal(signal.SIGUSR2, lambda *_: ctypes.CDLL(None)._exit(3))"
    imports = "import ctypes, os, signal\n"
    (tmp_path / "sitecustomize.py").write_text(f"{imports}os.register_at_fork(after_in_child={leave})\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{PYTHONPATH}")
    runner.close()
    with IsolatedRunner() as odd:
        with postpone_termination():
            odd.start()
        run(odd, environment)
        thread = signal_later(signal.SIGUSR2)
        rows = run(odd, environment, ENDLESS)
        thread.join()
        assert run(odd, environment)[0].status == Status.OK
    assert [(row.status, row.error) for row in rows] == [(Status.LOST, "its process exited with code 3")]


def test_a_server_that_cannot_start_is_a_row_with_what_it_said(environment, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'Traceback (most recent call last):' >&2\necho 'KeyError: 54321' >&2\nexit 1\n")
    broken.chmod(0o755)
    with IsolatedRunner(python=str(broken)) as runner:
        (row,) = run(runner, environment)
    assert (row.status, row.error) == (Status.LOST, "its trial server died: KeyError: 54321")


def test_without_a_compiler_compiling_is_unsupported(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    (row,) = run_here(Trial(config=replace(TINY, compile="block"), workloads=("timing",), sweep="test"))
    assert row.status == Status.UNSUPPORTED and "C++ compiler" in (row.error or "")


@pytest.mark.slow
def test_compiled_trials_with_a_profile_find_what_was_compiled_and_share_a_process(environment, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    configs = tuple(replace(TINY, compile="block", context_length=length) for length in (16, 32))
    alike = replace(configs[0], optimizer="adamw_foreach")
    longer = replace(configs[0], context_length=48)
    others = {one.pid for one in our_children()}
    with IsolatedRunner() as runner:
        first = runner.precompile((configs[0], alike, configs[1], longer), environment=environment, most=2)
        assert first.graphs == 2, "trials that share a graph count once, and the third graph can wait"
        pids = []
        for config in configs:
            trial = Trial(config=config, workloads=("timing", "profile"), sweep="test")
            rows = [row for row in runner.run(trial, fallback=environment) if isinstance(row, Record)]
            assert {row.status for row in rows} == {Status.OK}
            compiled = [row for row in rows if row.metric == "compile_time" and row.phase == "forward"]
            assert [row.flags for row in compiled] == [()], "it was compiled again"
            pids += [one.pid for one in our_children()]
        assert len({*pids} - others) == 2, "one server and one child served both"
        again = runner.precompile(configs, environment=environment)
        assert again.graphs == 0, "what was compiled is not compiled again"
        cold = run(runner, environment, configs[0], context_length=24)
        flags = [row.flags for row in cold if row.metric == "compile_time" and row.phase == "forward"]
        assert flags == [("cold_cache",)]
    assert (Path(tmp_path) / "cache").exists()
