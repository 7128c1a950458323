"""The environment of a result: its hardware and software, and which of these make two results incomparable."""

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lmsweep.trials.spec.software_pins import decided_fields, pinned

MEASURING_VERSION = 2
"""Incremented when a change to the measuring code makes earlier results incomparable. Part of every environment."""
NOT_OURS = 0
"""`measuring_version` of a published number, which others measured."""


def _environment(default: Any = None) -> Any:
    return field(default=default, metadata={"part": "environment"})


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """The hardware and software of a trial. Results whose environment fields differ are not comparable."""

    device_name: str = _environment()
    """A CPU's name includes its cores, and how many the trial may use: `Xeon (2 of 16 cores)`."""
    device_memory: int | None = _environment()
    """Bytes; None for a CPU and for MPS, which use the host's memory."""
    driver_version: str | None = _environment()
    """Of the accelerator's driver; None on a CPU."""
    cuda_version: str | None = _environment()
    """CUDA version that torch was built with; None if the trial does not run on CUDA."""
    torch_version: str = _environment()
    """torch.__version__, with the build suffix."""
    triton_version: str | None = _environment()
    """None if the trial does not run on CUDA."""
    python_version: str = _environment()
    """Major and minor."""
    measuring_version: int = _environment(MEASURING_VERSION)
    """Raised when a change of lmsweep changes what is measured."""
    code_digest: str | None = _environment()
    """Digest of the user's source files that the trial used."""
    accelerator_type: str | None = None
    """Ray's name for the type of the accelerator: H200, A100, ..."""
    gpu_uuid: str | None = None
    """Which GPU of its machine, as NVIDIA's driver names it: GPU-01234567-..."""
    host_name: str | None = None
    """Network name of the machine."""
    host_cpu: str | None = None
    """Model name of its CPU."""
    host_cores: int | None = None
    """Logical cores."""
    host_memory: int | None = None
    """Bytes."""
    host_memory_for_a_trial: int | None = None
    """Bytes of host memory that a trial may hold, which containers and LMSWEEP_HOST_MEMORY limit further."""
    cores_used: int | None = None
    """Logical cores that the trial's process was allowed to run on."""
    host_load: float | None = None
    """Load average over the last minute when the trial began."""
    power_limit: float | None = None
    """Power limit of the GPU in W, as set when the trial ran; None if the driver does not report it."""
    float32_matmul: str | None = None
    """How float32 matrix products were computed, as read back: ieee, tf32 or bf16; None if none ran."""
    autocast_dtype: str | None = None
    """None if autocast was off."""
    parameter_dtype: str | None = None
    """Type of the model's weights; for the workload `attention`, of queries, keys and values."""
    collective_library: str | None = None
    """Communication library of a trial with several ranks: gloo, or nccl with its version."""
    lmsweep_version: str | None = None
    """Of the lmsweep that measured."""
    repeated_layers: str | None = None
    """Of the user's own model, as `model.layers (12 x Block)`."""
    code_revision: str | None = None
    """Git commit of the folder with the user's code."""
    code_dirty: bool | None = None
    """Whether that folder had uncommitted changes."""
    lmsweep_commit: str | None = None
    """Git commit of its checkout; None if it was installed from a package."""


def absent(device: str) -> str:
    """Return the device name that stands for a device that the machine does not have."""
    return f"no {device} device"


def is_absent(device_name: str) -> bool:
    return device_name.startswith("no ") and " device" in device_name


ENVIRONMENT_FIELDS: tuple[str, ...] = tuple(
    f.name for f in fields(Fingerprint) if f.metadata.get("part") == "environment"
)
"""The fields that `environment_id` hashes."""


def environment_id(fingerprint: Fingerprint, software: str | None = None) -> str:
    """Return 16 hexadecimal digits of the environment fields. software: pins, which decide some fields (None here)."""
    decided = decided_fields(software)
    content = [
        None if name in decided else getattr(fingerprint, name) for name in ENVIRONMENT_FIELDS if name != "code_digest"
    ]
    if fingerprint.code_digest is not None:  # left out otherwise, so that older identifiers stay
        content.append(fingerprint.code_digest)
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def expected_with(fingerprint: Fingerprint, software: str | None) -> Fingerprint:
    """Return the environment of a trial that installs `software` over that of this fingerprint, None where unknown."""
    versions, decided = pinned(software), decided_fields(software)
    return replace(
        fingerprint,
        torch_version=versions.get("torch", fingerprint.torch_version),
        triton_version=versions.get("triton") if "triton_version" in decided else fingerprint.triton_version,
        cuda_version=None if "cuda_version" in decided else fingerprint.cuda_version,
    )
