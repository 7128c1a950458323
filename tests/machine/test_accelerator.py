"""What a device can do is asked of PyTorch, so devices with other names than cuda take the same paths."""

import pytest
import torch
from torch.profiler import ProfilerActivity

from lmsweep.trials.bench.fingerprint import present_devices
from lmsweep.trials.machine.gpu import accelerator
from lmsweep.trials.machine.gpu.telemetry import Watch
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.profiling.device_time import trace_device
from lmsweep.trials.spec.config import UnsupportedError
from lmsweep.trials.timing.clock import EventClock, HostClock, clock_for


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


def test_the_host_counts_nothing_and_has_no_gpu() -> None:
    accelerator.synchronize("cpu")
    assert accelerator.l2_cache_bytes("cpu") is None and accelerator.has_float64("cpu")
    assert trace_device(lambda clock: None, device_type="mps", trial_seconds=1.0) == []
    assert present_devices()[0] == "cpu"


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


def test_an_intel_gpu_has_no_float8_and_the_reason_names_the_device() -> None:
    with pytest.raises(UnsupportedError, match=r"8\.9 or higher, not device: xpu"):
        set_math_mode("fp8_tensorwise", "xpu")
