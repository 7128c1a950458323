"""What a device can do is asked of PyTorch, so devices with other names than cuda take the same paths."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch
from torch.profiler import ProfilerActivity

from lmsweep.trials.machine.gpu import accelerator
from lmsweep.trials.machine.gpu.cuda_keepalive import ReadyCudaDriver
from lmsweep.trials.machine.gpu.telemetry import Watch
from lmsweep.trials.machine.processes import kill_group
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.spec.config import UnsupportedError
from lmsweep.trials.timing.clock import EventClock, HostClock, clock_for
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("device", "has_events", "counts_memory", "can_wait", "activity"),
    [
        ("cuda", True, True, True, ProfilerActivity.CUDA),
        ("xpu", True, True, False, ProfilerActivity.XPU),
        ("mps", False, False, False, None),
        ("cpu", False, False, False, None),
    ],
)
def test_pytorch_says_what_a_device_can_do(
    device: str, has_events: bool, counts_memory: bool, can_wait: bool, activity: ProfilerActivity | None
) -> None:
    assert accelerator.has_events(device) is has_events
    assert accelerator.counts_memory(device) is counts_memory
    assert accelerator.can_wait(device) is can_wait
    assert accelerator.activity(device) == activity
    assert isinstance(clock_for(device), EventClock if has_events else HostClock)
    assert accelerator.device_module(device) is getattr(torch, device)


def test_a_gpu_of_amd_has_no_compute_capability_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 4))  # gfx942
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "AMD Instinct MI300X")
    assert accelerator.compute_capability("cuda") == (0, 0)
    with pytest.raises(UnsupportedError, match=r"NVIDIA GPU of compute capability 8\.9 or higher, not AMD Instinct"):
        set_math_mode("fp8_rowwise", "cuda")
    with pytest.raises(UnsupportedError, match="tf32 needs the tensor cores of an NVIDIA GPU"):
        set_math_mode("tf32", "cuda")
    with Watch("cuda") as watch:
        assert watch.reason == "NVML reports NVIDIA GPUs only"


def test_a_device_that_this_build_of_pytorch_lacks_is_absent_for_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert accelerator.why_absent("cuda").endswith(f"torch {torch.__version__} is built without CUDA")
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr(torch.cuda, "init", lambda: (_ for _ in ()).throw(RuntimeError("The driver is too old")))
    assert accelerator.why_absent("cuda").endswith("built for 12.6, says The driver is too old")


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
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("CU_RESULT", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
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


def test_without_a_device_it_ends_at_once(
    calls: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("CU_RESULT", "100")
    others = {one.pid for one in psutil.Process().children()}
    ready = ReadyCudaDriver()
    (ours,) = (one for one in psutil.Process().children() if one.pid not in others)
    wait_until(lambda: ours.status() == psutil.STATUS_ZOMBIE)
    ready.close()
    assert capfd.readouterr() == ("", "")
