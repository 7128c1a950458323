"""What datasheets say of devices: peak rates, by which measured ones are judged. To add a device: a row in _ROWS."""

import re
from dataclasses import dataclass
from typing import Literal

from trials.spec import Precision

GIB = 2**30

Confidence = Literal["high", "medium"]


@dataclass(frozen=True, kw_only=True)
class Device:
    """The published limits of one device in one form factor; rates are dense, without structured sparsity."""

    name: str
    """What to call it."""
    pattern: str
    """Regular expression of the whole name that the driver reports."""
    memory: int
    """Bytes, as sold (memory makers' GB are GiB); what the driver reports is a few per cent less."""
    bytes_per_second: float
    """Peak rate of its memory."""
    bf16: float | None
    """Peak FLOP/s of bfloat16 products accumulated in float32; None where the device has no such arithmetic."""
    fp16: float
    """Peak FLOP/s of float16 products accumulated in float32."""
    tf32: float | None
    """Peak FLOP/s of TF32 products."""
    fp32: float
    """Peak FLOP/s of float32 products."""
    source: str
    """Document that the rates are from."""
    confidence: Confidence
    """medium: documents of the maker disagree, or give the dense rates only as half of the sparse ones."""


_A100 = "NVIDIA A100 Tensor Core GPU datasheet"
_H100 = "NVIDIA H100 Tensor Core GPU architecture whitepaper"
_H100_NVL = "NVIDIA H100 Tensor Core GPU datasheet"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet"
_B200 = "NVIDIA Blackwell architecture technical brief, HGX B200; later documents say 75 TFLOP/s of fp32"
_ADA = "NVIDIA Ada GPU architecture whitepaper"
_BLACKWELL = "NVIDIA RTX Blackwell GPU architecture whitepaper"
_BLACKWELL_PRO = "NVIDIA RTX Blackwell PRO GPU architecture whitepaper"
_L40S = "NVIDIA L40S datasheet"
_L4 = "NVIDIA L4 Tensor Core GPU datasheet"
_T4 = "NVIDIA T4 Tensor Core GPU datasheet"
_MI300X = "AMD Instinct MI300X accelerator datasheet"

# Where documents disagree, the higher rate: a share of the peak is then never claimed too high.
# fmt: off
_ROWS: tuple[tuple[str, str, int, float, float | None, float, float | None, float, str, Confidence], ...] = (
    # name, whole name as the driver reports it,      GiB, TB/s, TFLOP/s bf16,  fp16,  tf32,  fp32, source, confidence
    ("A100 SXM 40GB", r"(NVIDIA )?A100-SXM4-40GB",      40, 1.555,  312,    312,   156,   19.5, _A100,     "high"),
    ("A100 SXM 80GB", r"(NVIDIA )?A100-SXM4-80GB",      80, 2.039,  312,    312,   156,   19.5, _A100,     "high"),
    ("A100 PCIe 40GB", r"(NVIDIA )?A100-PCIE-40GB",     40, 1.555,  312,    312,   156,   19.5, _A100,     "high"),
    ("A100 PCIe 80GB", r"NVIDIA A100 80GB PCIe",        80, 1.935,  312,    312,   156,   19.5, _A100,     "high"),
    ("H100 SXM",      r"NVIDIA H100 80GB HBM3",         80, 3.35,   989.4,  989.4, 494.7, 66.9, _H100,     "high"),
    ("H100 PCIe",     r"NVIDIA H100 PCIe",              80, 2.0,    756,    756,   378,   51.2, _H100,     "high"),
    ("H100 NVL",      r"NVIDIA H100 NVL",               94, 3.9,    835.5,  835.5, 417.5, 60,   _H100_NVL, "medium"),
    ("H200 SXM",      r"NVIDIA H200",                  141, 4.8,    989.4,  989.4, 494.7, 66.9, _H200,     "high"),
    ("H200 NVL",      r"NVIDIA H200 NVL",              141, 4.8,    835.5,  835.5, 417.5, 60,   _H200,     "medium"),
    ("B200 SXM",      r"NVIDIA B200",                  180, 8.0,    2250,   2250,  1125,  80,   _B200,     "medium"),
    ("RTX 4090",      r"NVIDIA GeForce RTX 4090",       24, 1.008,  165.2,  165.2, 82.6,  82.6, _ADA,      "high"),
    ("RTX 5090",      r"NVIDIA GeForce RTX 5090",       32, 1.792,  209.5,  209.5, 104.8, 104.8, _BLACKWELL, "high"),
    ("RTX PRO 6000 Blackwell Workstation", r"NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
                                                        96, 1.792,  503.8,  503.8, 251.9, 126,  _BLACKWELL_PRO, "high"),
    ("L40S",          r"NVIDIA L40S",                   48, 0.864,  362.05, 362.05, 183,  91.6, _L40S,     "high"),
    ("L4",            r"NVIDIA L4",                     24, 0.3,    121,    121,   60,    30.3, _L4,       "medium"),
    ("T4",            r"(Tesla|NVIDIA) T4",             16, 0.32,   None,   65,    None,  8.1,  _T4,       "high"),
    ("MI300X",        r"AMD Instinct MI300X( OAM| VF)?", 192, 5.3,  1307.4, 1307.4, 653.7, 163.4, _MI300X, "high"),
)
# fmt: on

DEVICES: tuple[Device, ...] = tuple(
    Device(
        name=name,
        pattern=pattern,
        memory=gib * GIB,
        bytes_per_second=terabytes * 1e12,
        bf16=bf16 * 1e12 if bf16 else None,
        fp16=fp16 * 1e12,
        tf32=tf32 * 1e12 if tf32 else None,
        fp32=fp32 * 1e12,
        source=source,
        confidence=confidence,
    )
    for name, pattern, gib, terabytes, bf16, fp16, tf32, fp32, source, confidence in _ROWS
)


def find_device(full_name: str, memory: int | None = None) -> Device | None:
    """The row of the device that the driver calls `full_name`, or None: never that of a similar device.

    `memory`, the bytes that the driver reports, tells slices of a device from the whole one: 15 % less than the
    datasheet says, or 2 % more, is another device.
    """
    for device in DEVICES:
        if re.fullmatch(device.pattern, full_name):
            fits = memory is None or 0.85 * device.memory <= memory <= 1.02 * device.memory
            return device if fits else None
    return None


def peak_flops(device: Device, precision: Precision) -> float | None:
    """Peak FLOP/s of the matrix products of this precision; None where the device has no such arithmetic."""
    return {
        "fp32": device.fp32,
        "tf32": device.tf32,
        "bf16": device.bf16,
        "fp16": device.fp16,
        "bf16_pure": device.bf16,
    }[precision]
