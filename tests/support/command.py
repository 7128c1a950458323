"""The real command, as a user starts it."""

import io
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest
import typer

from lmsweep.orchestrator.cli import main
from lmsweep.orchestrator.cluster import nodes
from lmsweep.orchestrator.interrupt import TERMINATION_SIGNALS
from lmsweep.orchestrator.terminal import Wanted
from lmsweep.trials.machine.cpu_affinity import usable_cores
from tests.support.warm_process import warm_programs

COMMAND = [sys.executable, "-m", "lmsweep.orchestrator.cli"]
ROOT = Path(__file__).parents[2]
PYTHONPATH = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def lmsweep(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs it to its end. It must show everything that it has to say."""
    done = program(*COMMAND, *arguments, **{"COLUMNS": "200"} | environment)
    assert "could not be shown" not in done.stderr, done.stderr
    return done


def program(*words: str | bytes | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs another program to its end, which finds lmsweep and these tests."""
    return subprocess.run(
        [one if isinstance(one, bytes) else str(one) for one in words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=os.environ | {"PYTHONPATH": PYTHONPATH} | environment,
    )


def answer_here(*arguments: str | Path, terminal: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has imported PyTorch and pandas already: in a fraction of the time.

    terminal: both of its streams are terminals, of COLUMNS columns.
    """
    stream = Screen if terminal else Written
    out, err = stream(io.BytesIO(), encoding="utf-8"), stream(io.BytesIO(), encoding="utf-8")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *TERMINATION_SIGNALS)}
    hook, pager = sys.excepthook, Wanted.pager
    words = ["lmsweep", *map(str, arguments)]
    try:
        with (
            patch.dict(os.environ, {"COLUMNS": "200"} | environment),
            patch.object(sys, "argv", words),
            patch.object(nodes, "look_at_machine", machine_as_seen),
            patch.object(typer.main, "get_command", GROUP),
            warm_programs(),
            warnings.catch_warnings(),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        sys.excepthook, Wanted.pager, Wanted.traceback = hook, pager, False
    return subprocess.CompletedProcess(words, int(end.value.code or 0), out.text(), err.text())


LOOK = nodes.look_at_machine
GROUP = cache(typer.main.get_command)
"""The whole command, which takes a hundredth of a second to build."""
OF_ONE_TEST = {"PYTEST_CURRENT_TEST", "COLUMNS", "XDG_CACHE_HOME", "PWD"}


def machine_as_seen() -> list[str]:
    """Of a machine that does not change between tests, what it answers is asked for once: that imports PyTorch."""
    variables = {name: value for name, value in nodes.environment_here().items() if name not in OF_ONE_TEST}
    return ["printf", "%s", _answer(tuple(sorted(variables.items())), frozenset(usable_cores()))]


@cache
def _answer(variables: tuple[tuple[str, str], ...], cores: frozenset[int]) -> str:
    return subprocess.run(LOOK(), env=dict(variables), stdout=subprocess.PIPE, text=True, check=True).stdout


class Written(io.TextIOWrapper):
    """What the command writes to a standard stream, text and bytes."""

    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


class Screen(Written):
    """The same, to a terminal."""

    def isatty(self) -> bool:
        return True


def lmsweep_here(*arguments: str | Path) -> str:
    """What it prints in this process. It must exit with 0."""
    done = answer_here(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused_here(*arguments: str | Path, **environment: str) -> str:
    """What it says of a request that it refuses in this process: it exits with 2, and shows no traceback."""
    done = answer_here(*arguments, **environment)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stdout + done.stderr
    return done.stderr


def start(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    """Starts it as the leader of a group of its own, as a shell does."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": PYTHONPATH} | environment,
        start_new_session=True,
    )


def write_sweep(folder: Path, name: str = "sweep", **changes: Any) -> Path:
    """A sweep of two short trials, with these fields changed or added."""
    import yaml

    axes = {"context_length": [16, 32]}
    fixed: dict[str, Any] = {"model": "tiny", "vocab_size": 100, "batch_size": 1, "warmup_steps": 1, "measure_steps": 3}
    for key, value in changes.items():
        if isinstance(value, list):
            fixed.pop(key, None)
            axes[key] = value
        else:
            axes.pop(key, None)
            fixed[key] = value
    path = folder / f"{name}.yaml"
    content = {"name": name, "grids": [{"workloads": ["timing"], "axes": axes, "fixed": fixed}]}
    path.write_text(yaml.safe_dump(content))
    return path


def write_noops(folder: Path, count: int) -> Path:
    """A sweep of `count` trials that measure nothing."""
    import yaml

    batches = 100 if count > 10_000 else 1  # the number of values per axis is limited
    axes = {"context_length": list(range(1, count // batches + 1)), "batch_size": list(range(1, batches + 1))}
    path = folder / "noops.yaml"
    grid = {"workloads": ["noop"], "axes": axes, "fixed": {"model": "tiny"}}
    path.write_text(yaml.safe_dump({"name": "noops", "grids": [grid]}))
    return path


def started_by(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """All that the command has started, Ray's helpers too."""
    return psutil.Process(process.pid).children(recursive=True)


def trial_children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes in which trials of this command run now: the children of its trial servers."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        if "lmsweep.trials.isolation.server" in (one.info["cmdline"] or []):
            try:
                parents = [parent.pid for parent in one.parents()]
                command = one.parent().cmdline() if one.parent() else []
            except psutil.NoSuchProcess:
                continue
            if process.pid in parents and "lmsweep.trials.isolation.server" in command:
                found.append(one)
    return found


def wait_for_child(process: subprocess.Popen[str], seconds: float = 90) -> psutil.Process:
    """The first process of a trial that shows up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if children := trial_children(process):
            return children[0]
        time.sleep(0.02)
    raise AssertionError(f"no trial began: {process.communicate() if process.poll() is not None else 'it still runs'}")


def wait_for_actor(process: subprocess.Popen[str], seconds: float = 90) -> psutil.Process:
    """The actor that runs a trial, which its title says. It need not have started the trial's server."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for one in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if "Trainable.train" in " ".join(one.cmdline()[:1]):
                    return one
        time.sleep(0.02)
    raise AssertionError("no actor runs a trial")


def interrupt(process: subprocess.Popen[str], *, times: int = 1) -> tuple[str, str]:
    """Ctrl-C, once or again: the terminal signals the whole group. Returns what it printed until its end."""
    for _ in range(times):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(1.0)  # two signals at once would be one
    return process.communicate(timeout=60)
