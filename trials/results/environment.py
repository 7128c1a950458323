"""The environment of a result: the hardware and software it met, and which of it makes two results incomparable."""

import hashlib
import json
from dataclasses import dataclass, field, fields
from typing import Any

MEASURING_VERSION = 2
"""Raised when a change to the measuring code makes earlier results incomparable; part of every environment."""


def _environment(default: Any = None) -> Any:
    return field(default=default, metadata={"part": "environment"})


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """The hardware and software a trial met. Results whose environment fields differ are not comparable."""

    device_name: str = _environment()
    """Full name of the device; for a CPU with its number of cores, and how many of them the trial was allowed to run on
    where these were not all: `Xeon (2 of 16 cores)`."""
    device_memory: int | None = _environment()
    """Memory of the device in bytes; None for a CPU and for MPS, whose memory is the host's."""
    driver_version: str | None = _environment()
    """NVIDIA driver."""
    cuda_version: str | None = _environment()
    """CUDA that torch was built with; None where the trial does not run on CUDA."""
    torch_version: str = _environment()
    """torch.__version__, build suffix included."""
    triton_version: str | None = _environment()
    """Triton, if it is installed; None where the trial does not run on CUDA."""
    python_version: str = _environment()
    """Major and minor version."""
    measuring_version: int = _environment(MEASURING_VERSION)
    """MEASURING_VERSION of the code that measured."""
    accelerator_type: str | None = None
    """The accelerator's type as Ray calls it: H200, A100, ..."""
    host_name: str | None = None
    """Network name of the machine."""
    host_cpu: str | None = None
    """Name of the host's processor."""
    host_cores: int | None = None
    """Logical cores of the host."""
    host_memory: int | None = None
    """Memory of the host in bytes, as reported at the time."""
    host_memory_for_a_trial: int | None = None
    """Bytes of it that a trial may hold: less in a container, or as LMSWEEP_HOST_MEMORY says, and never all."""
    cores_used: int | None = None
    """Logical cores the trial's process was allowed to run on."""
    host_load: float | None = None
    """Load average of the last minute when the trial began."""
    float32_matmul: str | None = None
    """How float32 matrix products were really computed: ieee, tf32 or bf16; None where no product ran."""
    autocast_dtype: str | None = None
    """Type autocast was casting to; None where autocast was off."""
    parameter_dtype: str | None = None
    """Type of the model's weights; of queries, keys and values for the workload `attention`."""
    collective_library: str | None = None
    """What joined the ranks of a trial that has several processes: gloo, or nccl with its version."""
    lmsweep_version: str | None = None
    """Version of this project."""
    lmsweep_commit: str | None = None
    """Commit of this project, where it runs from a checkout or LMSWEEP_COMMIT says it."""


def absent(device: str) -> str:
    """The device name of what was asked of a device that is not there."""
    return f"no {device} device"


def is_absent(device_name: str) -> bool:
    return device_name.startswith("no ") and " device" in device_name


ENVIRONMENT_FIELDS: tuple[str, ...] = tuple(
    f.name for f in fields(Fingerprint) if f.metadata.get("part") == "environment"
)


def environment_id(fingerprint: Fingerprint) -> str:
    """16 hexadecimal digits that name the hardware and software of a result."""
    content = [getattr(fingerprint, name) for name in ENVIRONMENT_FIELDS]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
