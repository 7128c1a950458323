"""The process that keeps NVIDIA's driver ready, with a library in the driver's place that logs its calls."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from lmsweep.trials.machine.gpu.cuda_keepalive import ReadyCudaDriver
from lmsweep.trials.machine.processes import kill_group
from tests.support.waiting import wait_until

STAND_IN = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int cuInit(unsigned flags) {
    FILE *calls = fopen(getenv("CALLS"), "a");
    fprintf(calls, "cuInit(%u) %s\\n", flags, getenv("CUDA_VISIBLE_DEVICES"));
    fclose(calls);
    if (getenv("CU_HANGS"))
        for (;;) pause();
    return atoi(getenv("CU_RESULT"));
}
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in writes what it is asked."""
    (tmp_path / "cuda.c").write_text(STAND_IN)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "cuda.c"], check=True)
    for name, value in {
        "LD_LIBRARY_PATH": str(tmp_path),
        "CALLS": str(tmp_path / "calls"),
        "CU_RESULT": "0",
        "CUDA_VISIBLE_DEVICES": "2,3",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "calls"


def keepers_of(pid: int) -> list[psutil.Process]:
    return [one for one in psutil.Process(pid).children() if one.cmdline()[-1].endswith("cuda_keepalive.py")]


def test_it_initialises_the_driver_once_for_the_visible_gpus_and_stays_until_it_is_closed(calls: Path):
    ready = ReadyCudaDriver()
    wait_until(calls.exists)
    time.sleep(0.2)
    (keeper,) = keepers_of(os.getpid())
    assert keeper.is_running() and calls.read_text() == "cuInit(0) 2,3\n"
    ready.close()
    assert not keeper.is_running()


def test_it_dies_with_its_owner(calls: Path):
    imports = "import time\nfrom lmsweep.trials.machine.gpu.cuda_keepalive import ReadyCudaDriver\n"
    owner_code = f"{imports}ReadyCudaDriver()\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", owner_code]) as owner:
        wait_until(calls.exists)
        (keeper,) = keepers_of(owner.pid)
        owner.kill()
    assert not psutil.wait_procs([keeper], timeout=20)[1], "it outlives its owner"


def test_a_driver_that_hangs_holds_nobody_up(calls: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CU_HANGS", "1")
    ready = ReadyCudaDriver()
    wait_until(calls.exists)
    (keeper,) = keepers_of(os.getpid())
    closing = threading.Thread(target=ready.close, daemon=True)
    closing.start()
    closing.join(5)
    held_up = closing.is_alive()
    kill_group(keeper.pid)  # else it would hold up pytest
    assert not held_up


@pytest.mark.parametrize("lacks", ["a library", "a device"])
def test_without_the_driver_or_a_device_it_ends_at_once(
    lacks: str, calls: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    if lacks == "a library":
        (calls.parent / "libcuda.so.1").unlink()
    else:
        monkeypatch.setenv("CU_RESULT", "100")
    others = {one.pid for one in psutil.Process().children()}
    ready = ReadyCudaDriver()
    (ours,) = (one for one in psutil.Process().children() if one.pid not in others)
    wait_until(lambda: ours.status() == psutil.STATUS_ZOMBIE)
    ready.close()
    assert capfd.readouterr() == ("", "")
