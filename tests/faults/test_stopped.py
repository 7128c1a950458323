"""Processes of a run that are stopped or killed: a sentence says which, and nothing of ours or of Ray's is left."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.faults.test_faults import assert_each_once, read
from tests.support.command import ROOT, start, started_by, wait_for_actor, wait_for_child, write_sweep
from tests.support.waiting import assert_nothing_left

pytestmark = pytest.mark.usefixtures("one_core")  # threads of a trial that wait for one another's core take minutes


def named(process: subprocess.Popen[str], name: str) -> psutil.Process:
    """A process of the run: one of Ray's by its name, the actor of a trial, or its trial server."""
    child = wait_for_child(process)
    server = child.parent()
    if name == "server":
        return server
    with suppress(StopIteration):
        return next(one for one in psutil.Process(process.pid).children() if one.name() == name)
    assert name == "actor"
    return wait_for_actor(process)


def run_long(folder: Path) -> subprocess.Popen[str]:
    sweep = write_sweep(folder, context_length=[512, 1024], batch_size=4, measure_steps=10_000)
    return start("run", sweep, "--store", folder / "store", "--no-predict")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
@pytest.mark.parametrize(("how", "words"), [("suspend", "is stopped and does not answer"), ("kill", "has ended")])
def test_a_stopped_or_killed_process_of_ray_ends_the_run_with_a_sentence_that_names_it(tmp_path, name, how, words):
    process = run_long(tmp_path)
    lost = named(process, name)
    started = started_by(process)
    seconds = {"suspend": 60, "kill": 10}[how]
    getattr(lost, how)()
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 1, out + err
    assert f"({name}), process {lost.pid}, {words}; results of finished trials" in err
    assert "To resume: lmsweep run" in err and "Traceback" not in err
    assert_nothing_left(started)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["actor", "server"])
def test_a_stopped_worker_or_trial_server_is_named_and_killed_and_the_run_continues(tmp_path: Path, name: str):
    sweep = write_sweep(tmp_path, context_length=[16, 256], measure_steps=60)
    process = start("run", sweep, "--store", tmp_path / "store", "--no-predict")
    stopped = named(process, name)
    stopped.suspend()
    out, err = process.communicate(timeout=240)
    words = {"actor": "the worker of a trial", "server": "the trial server"}[name]
    assert f"{words}, process {stopped.pid}, is stopped and does not answer: it is killed" in out, out + err
    if name == "actor":  # its trial runs again
        assert_each_once(tmp_path / "store", 2)
    else:
        assert sorted(read(tmp_path / "store").drop_duplicates("trial_id")["status"]) == ["lost", "ok"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcs_server", "raylet", "actor", "server"])
def test_ctrl_c_ends_a_run_whose_processes_are_stopped(tmp_path: Path, name: str):
    process = run_long(tmp_path)
    stopped = named(process, name)
    started = started_by(process)
    stopped.suspend()
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    began = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 15, err
    assert process.returncode == 130, out + err
    assert "results of finished trials are in" in err and "Traceback" not in err
    assert_nothing_left(started)


def run_here(script: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=-1, stderr=-1, text=True)


def test_what_ray_has_left_is_killed_with_the_process_that_started_it(tmp_path: Path):
    path = tmp_path / "agent.py"  # recognised by the folder of its Ray, which all of Ray's own have in their commands
    path.write_text("import time; print('started', flush=True); time.sleep(100)")
    script = (
        "import pathlib, subprocess, sys, time\nfrom lmsweep.orchestrator.cluster.guard import Guard\n"
        f"guard = Guard(pathlib.Path({str(tmp_path)!r}))\n"
        f"agent = subprocess.Popen([sys.executable, {str(path)!r}], start_new_session=True)\n"
        "print(agent.pid, flush=True); time.sleep(100)"
    )
    with run_here(script) as process:
        agent = psutil.Process(int(process.stdout.readline()))
        time.sleep(2)  # the guard looks once a second
        agent.suspend()
        process.kill()
        assert_nothing_left([agent])


HANGS = """
import ctypes, signal, sys
from lmsweep.orchestrator import interrupt
interrupt.END_SECONDS = 0.5
for number in (signal.SIGINT, *interrupt.TERMINATION_SIGNALS):
    signal.signal(number, signal.SIG_DFL)  # what starts the tests may ignore some
interrupt.handle_termination()
interrupt.handle(signal.SIGINT, signal.default_int_handler)
interrupt.LastResort.words = "results are in store"
# No signal interrupts the call.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, *interrupt.TERMINATION_SIGNALS])
print("hangs", flush=True)
ctypes.CDLL(None).sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_command_whose_main_thread_hangs_ends_by_a_signal_with_a_sentence(number: signal.Signals):
    with run_here(HANGS) as process:
        assert process.stdout.readline() == "hangs\n"
        process.send_signal(number)
        assert process.wait(10) == 128 + number
        stacks, _, sentence = process.stderr.read().rpartition("\n\n")
    cause = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    words = "what it waited for did not answer within 0.5 s; results are in store"
    assert sentence.strip() == f"lmsweep: {cause}; {words}"
    assert ('File "<string>"' in stacks) == (number == signal.SIGQUIT), stacks
