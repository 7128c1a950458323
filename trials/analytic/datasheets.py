"""Datasheets: the peak rates of known devices, and the memory that their drivers report.

Each device is a row of devices.csv.
"""

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from lmsweep.trials.spec.rules.device_rules import Capabilities
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.spec.words import Precision

GIB = 2**30

Confidence = Literal["high", "medium"]

UNKNOWN_SHARE = 0.09
"""Assumed share of the nominal memory that a driver withholds: that of a T4, the largest among the readings."""


class Chip(NamedTuple):
    """What devices with one chip have in common."""

    compute: tuple[int, int]
    """CUDA's compute capability; (0, 0) of a device that is not NVIDIA's."""
    multiprocessors: int
    cache_mib: int
    """MiB of its largest shared cache; 6, those of a V100, if unknown."""
    pcie: int
    """Generation of its PCIe interface."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """The published limits of one device in one form factor. Rates are dense, without structured sparsity."""

    name: str
    """Ours, such as `H100 SXM`."""
    pattern: str
    """Regular expression that matches the whole name that the driver reports."""
    sold_memory: int
    """Nominal memory in bytes. (A memory manufacturer's GB is a GiB.)"""
    memory: int
    """Bytes that CUDA reports (totalGlobalMem), 1 to 9 % less than nominal: the smallest known reading."""
    memory_source: str | None
    """Source of that reading; None if `memory` is an estimate, `sold_memory` less UNKNOWN_SHARE."""
    bytes_per_second: float
    """Peak memory bandwidth in B/s."""
    bf16: float | None
    """Peak FLOP/s of products with float32 accumulation, as the next four; None if not supported."""
    fp16: float
    tf32: float | None
    fp32: float
    chip: Chip
    fp8: float | None
    source: str
    """Document that states the rates."""
    confidence: Confidence
    """medium: the vendor's documents disagree, or state the dense rates only as half of the sparse ones."""


class CpuRates(NamedTuple):
    """Rates of all cores of a machine, which it measured when it described itself."""

    fp32: float
    """FLOP/s of products, like `bf16`."""
    bf16: float
    bytes_per_second: float


def _number(text: str, unit: float = 1e12) -> float | None:
    return float(text) * unit if text else None


def _device(row: dict[str, str]) -> Device:
    """Return the device of a row of devices.csv: GiB, TB/s, and TFLOP/s of products, empty where it has none."""
    major, minor = row["compute"].split(".")
    sold = int(row["sold_gib"]) * GIB
    bf16, fp16, tf32, fp32, fp8 = (_number(row[name]) for name in ("bf16", "fp16", "tf32", "fp32", "fp8"))
    assert fp16 and fp32, "every row has them"
    return Device(
        name=row["name"], pattern=row["pattern"], sold_memory=sold,
        memory=round(_number(row["memory_gib"], GIB) or (1 - UNKNOWN_SHARE) * sold),
        memory_source=row["memory_source"] or None, bytes_per_second=float(row["terabytes_per_second"]) * 1e12,
        bf16=bf16, fp16=fp16, tf32=tf32, fp32=fp32, fp8=fp8,
        chip=Chip((int(major), int(minor)), int(row["multiprocessors"]), int(row["cache_mib"]), int(row["pcie"])),
        source=row["source"], confidence="high" if row["confidence"] == "high" else "medium",
    )  # fmt: skip


# Where documents disagree, the table has the higher rate, so a share of the peak is never overstated. Where they state
# fp8 only with structured sparsity, fp8_note has that rate; the dense rate is half. The compute capability is by
# NVIDIA's list of GPUs, the number of multiprocessors (of AMD's devices: compute units) by the documents. The memory is
# the smallest of several readings, as drivers differ by some tenths of a per cent; a repository of its source is named
# for an issue or a file of it on GitHub.
with (Path(__file__).parent / "devices.csv").open(newline="", encoding="utf-8") as _file:
    _ROWS = list(csv.DictReader(_file))
DEVICES: tuple[Device, ...] = tuple(map(_device, _ROWS))


def find_device(full_name: str, memory: int | None = None) -> Device | None:
    """Return the device that the driver calls `full_name`, or None. memory: bytes that the driver reports; with 15 %
    less than nominal (a slice), or 2 % more, it is another device."""
    for device in DEVICES:
        if re.fullmatch(device.pattern, full_name):
            fits = memory is None or 0.85 * device.sold_memory <= memory <= 1.02 * device.sold_memory
            return device if fits else None
    return None


def device_named(name: str) -> Device | None:
    return next((device for device in DEVICES if device.name == name), None)


def capabilities_of(device: Device) -> Capabilities:
    return Capabilities(device.name, device.chip.compute, device.bf16 is not None)


def peak_flops(device: Device, precision: Precision) -> float | None:
    """Return the peak FLOP/s of matrix products in this precision, of fp8_* in 8 bits; None if not supported."""
    rate: float | None = getattr(device, PRECISIONS[precision].rate) if precision in PRECISIONS else None
    return rate


BOOST = 1.3
"""How far a card's clock rises above the boost clock of its datasheet, at most: on workstations and desktops it does as
far as power and temperature allow, 3.09 of 2.41 GHz on an RTX 5090 (1.28). Of the published products that ship, the
fastest has 1.17 times the datasheet's rate. Modules and cards for servers end at the datasheet's clock."""


def boost_of(device: Device) -> float:
    """Return the rate of products that the device cannot exceed, over the datasheet's."""
    return BOOST if device.name.startswith("RTX") else 1.0


LINKS: dict[str, float] = {row["name"]: float(row["link_gb"]) * 1e9 for row in _ROWS if row["link_gb"]}
"""Name of a device -> B/s in one direction over all its links to the GPUs of a node; datasheets state both directions:
NVLink 300, 600, 900 and 1800 GB/s; AMD's Infinity Fabric 896 GB/s, of MI350X 1075, MI100 276, MI210 300, and of a die
of an MI250 400 GB/s."""

NETWORKS: dict[str, float] = {row["name"]: float(row["network_gb"]) * 1e9 for row in _ROWS if row["network_gb"]}
"""Name of a device -> B/s in one direction between nodes, with one InfiniBand adapter per GPU as in NVIDIA's DGX."""

_PCIE = {3: 15.75e9, 4: 31.5e9, 5: 63e9}
"""Generation -> B/s of sixteen lanes in one direction."""
_SUPERCHIPS = ("GH200", "GB200", "GB300")


def host_link(device: Device) -> float:
    """Return the datasheet's B/s between device and host in one direction."""
    if device.name.startswith(_SUPERCHIPS):
        return 450e9  # NVLink-C2C
    return _PCIE[device.chip.pcie]
