"""Datasheets: the peak rates of known devices, and the memory that their drivers report.

To add a device, add a row to _ROWS, one to _CHIPS if its chip is a new one, and, if the memory that its driver
reports is known, one to _GIVEN.
"""

import re
from dataclasses import dataclass
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
    """MiB of its largest shared cache; 6 if unknown."""
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
    """What a machine's cores were measured to do together, per second, when it described itself."""

    fp32: float
    """FLOP/s of products, as the next."""
    bf16: float
    bytes_per_second: float


_A10 = "NVIDIA A10 Tensor Core GPU datasheet"
_A10G = "NVIDIA A10G datasheet, as AWS publishes it"
_A100 = "NVIDIA A100 Tensor Core GPU datasheet"
_V100 = "NVIDIA V100 Tensor Core GPU datasheet"
_H100 = "NVIDIA H100 Tensor Core GPU architecture whitepaper"
_H100_NVL = "NVIDIA H100 Tensor Core GPU datasheet"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet"
_H20 = "no public NVIDIA datasheet; figures that its resellers agree on"
_GH200 = "NVIDIA GH200 Grace Hopper Superchip datasheet"
_B200 = "NVIDIA Blackwell architecture technical brief, HGX B200; later documents say 75 TFLOP/s of fp32"
_B300 = "NVIDIA HGX B300 specifications, an eighth of the board"
_GB200 = "NVIDIA GB200 NVL72 specifications, half of a superchip; fp32 by the Blackwell architecture technical brief"
_AMPERE = "NVIDIA Ampere GA102 GPU architecture whitepaper"
_ADA = "NVIDIA Ada GPU architecture whitepaper"
_BLACKWELL = "NVIDIA RTX Blackwell GPU architecture whitepaper"
_BLACKWELL_PRO = "NVIDIA RTX Blackwell PRO GPU architecture whitepaper"
_L40S = "NVIDIA L40S datasheet"
_L4 = "NVIDIA L4 Tensor Core GPU datasheet"
_T4 = "NVIDIA T4 Tensor Core GPU datasheet"
_GB300 = "NVIDIA Blackwell Ultra datasheet, as AIConfigurator's gb300.yaml quotes it: 360 PFLOP/s of fp8 for 72 GPUs"
_GB10 = (
    "no public NVIDIA datasheet of dense rates: DGX Spark states 273 GB/s, 6144 cores and 1 PFLOP/s of sparse fp4; "
    "bf16 is an eighth of that, as of the chips of RTX PRO; tf32 and fp32 follow from the cores"
)
_PRO_SERVER = (
    "NVIDIA RTX Blackwell PRO GPU architecture whitepaper, at the server edition's 2430 MHz (AIConfigurator); resellers"
    " state 1.6 TB/s"
)
_MI350 = "AMD Instinct MI350X and MI355X product pages; the MI350X has 2.2 of the MI355X's 2.4 GHz; no tf32 in hardware"
_MI300X = "AMD Instinct MI300X accelerator datasheet"
_MI325X = "AMD Instinct MI325X accelerator datasheet"


class _Row(NamedTuple):
    name: str
    pattern: str
    sold_gib: int
    terabytes_per_second: float
    bf16: float | None  # TFLOP/s, as in the following three
    fp16: float
    tf32: float | None
    fp32: float
    source: str
    confidence: Confidence


# Where documents disagree, the table has the higher rate, so a share of the peak is never overstated.
# fmt: off
_ROWS = (
    #    name, whole name as the driver reports it, GiB sold, TB/s, TFLOP/s bf16, fp16,  tf32,  fp32, source, confidence
    _Row("A100 SXM 40GB", r"(NVIDIA )?A100-SXM4-40GB",      40, 1.555, 312,    312,   156,   19.5, _A100,     "high"),
    _Row("A100 SXM 80GB", r"(NVIDIA )?A100-SXM4-80GB",      80, 2.039, 312,    312,   156,   19.5, _A100,     "high"),
    _Row("A100 PCIe 40GB", r"(NVIDIA )?A100-PCIE-40GB",     40, 1.555, 312,    312,   156,   19.5, _A100,     "high"),
    _Row("A100 PCIe 80GB", r"NVIDIA A100 80GB PCIe",        80, 1.935, 312,    312,   156,   19.5, _A100,     "high"),
    _Row("A10",           r"NVIDIA A10",                    24, 0.6,   125,    125,   62.5,  31.2, _A10,      "high"),
    _Row("A10G",          r"NVIDIA A10G",                   24, 0.6,   70,     70,    35,    31.5, _A10G,     "medium"),
    _Row("V100 SXM 16GB", r"(Tesla|NVIDIA) V100-SXM2-16GB", 16, 0.9,   None,   125,   None,  15.7, _V100,     "high"),
    _Row("V100 SXM 32GB", r"(Tesla|NVIDIA) V100-SXM2-32GB", 32, 0.9,   None,   125,   None,  15.7, _V100,     "high"),
    _Row("V100 PCIe 16GB", r"(Tesla|NVIDIA) V100-PCIE-16GB", 16, 0.9,  None,   112,   None,  14,   _V100,     "high"),
    _Row("V100 PCIe 32GB", r"(Tesla|NVIDIA) V100-PCIE-32GB", 32, 0.9,  None,   112,   None,  14,   _V100,     "high"),
    _Row("H100 SXM",      r"NVIDIA H100 80GB HBM3",         80, 3.35,  989.4,  989.4, 494.7, 66.9, _H100,     "high"),
    _Row("H100 PCIe",     r"NVIDIA H100 PCIe",              80, 2.0,   756,    756,   378,   51.2, _H100,     "high"),
    _Row("H100 NVL",      r"NVIDIA H100 NVL",               94, 3.9,   835.5,  835.5, 417.5, 60,   _H100_NVL, "medium"),
    _Row("H200 SXM",      r"NVIDIA H200",                  141, 4.8,   989.4,  989.4, 494.7, 66.9, _H200,     "high"),
    _Row("H200 NVL",      r"NVIDIA H200 NVL",              141, 4.8,   835.5,  835.5, 417.5, 60,   _H200,     "medium"),
    _Row("H20",           r"NVIDIA H20",                    96, 4.0,   148,    148,   74,    44,   _H20,      "medium"),
    _Row("GH200 96GB",    r"NVIDIA GH200 480GB",            96, 4.0,   989.4,  989.4, 494.7, 66.9, _GH200,    "medium"),
    _Row("GH200 144GB",   r"NVIDIA GH200 144G HBM3e",      144, 4.9,   989.4,  989.4, 494.7, 66.9, _GH200,    "medium"),
    _Row("GB200",         r"NVIDIA GB200",                 186, 8.0,   2500,   2500,  1250,  90,   _GB200,    "medium"),
    _Row("B200 SXM",      r"NVIDIA B200",                  180, 8.0,   2250,   2250,  1125,  80,   _B200,     "medium"),
    _Row("B300 SXM",      r"NVIDIA B300 SXM6 AC",          288, 8.0,   2250,   2250,  1125,  75,   _B300,     "medium"),
    _Row("GB300",         r"NVIDIA GB300",                 288, 8.0,   2500,   2500,  1250,  80,   _GB300,    "medium"),
    _Row("GB10",          r"NVIDIA GB10",                  128, 0.273, 125,    125,   62.5,  31,   _GB10,     "medium"),
    _Row("RTX 3090",      r"NVIDIA GeForce RTX 3090",       24, 0.936, 71,     71,    35.6,  35.6, _AMPERE,   "high"),
    _Row("RTX A6000",     r"NVIDIA RTX A6000",              48, 0.768, 154.8,  154.8, 77.4,  38.7, _AMPERE,   "high"),
    _Row("RTX 4090",      r"NVIDIA GeForce RTX 4090",       24, 1.008, 165.2,  165.2, 82.6,  82.6, _ADA,      "high"),
    _Row("RTX 5090",      r"NVIDIA GeForce RTX 5090",       32, 1.792, 209.5,  209.5, 104.8, 104.8, _BLACKWELL, "high"),
    _Row("RTX PRO 6000 Blackwell Workstation", r"NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
                                                        96, 1.792,  503.8,  503.8, 251.9, 126,  _BLACKWELL_PRO, "high"),
    _Row("RTX PRO 6000 Blackwell Server", r"NVIDIA RTX PRO 6000 Blackwell Server Edition",
                                                        96, 1.792,  467.8,  467.8, 233.9, 117,  _PRO_SERVER, "medium"),
    _Row("L40S",          r"NVIDIA L40S",                   48, 0.864, 362.05, 362.05, 183,  91.6, _L40S,     "high"),
    _Row("L4",            r"NVIDIA L4",                     24, 0.3,   121,    121,   60,    30.3, _L4,       "medium"),
    _Row("T4",            r"(Tesla|NVIDIA) T4",             16, 0.32,  None,   65,    None,  8.1,  _T4,       "high"),
    _Row("MI300X",        r"AMD Instinct MI300X( OAM| VF)?", 192, 5.3, 1307.4, 1307.4, 653.7, 163.4, _MI300X, "high"),
    _Row("MI325X",        r"AMD Instinct MI325X( OAM| VF)?", 256, 6.0, 1307.4, 1307.4, 653.7, 163.4, _MI325X, "high"),
    _Row("MI350X",        r"AMD Instinct MI350X( OAM| VF)?", 288, 8.0, 2306.9, 2306.9, None, 144.2, _MI350, "medium"),
    _Row("MI355X",        r"AMD Instinct MI355X( OAM| VF)?", 288, 8.0, 2516.6, 2516.6, None, 157.3, _MI350, "medium"),
)

# Device -> peak TFLOP/s of 8-bit floating-point products with float32 accumulation, dense, by the row's source. Where
# that states only the rate with structured sparsity, the comment has it; the dense rate is half.
_FP8: dict[str, float] = {
    "H100 SXM": 1978.9,  # dense
    "H100 PCIe": 1513,  # dense
    "H100 NVL": 1670.5,  # 3341 sparse
    "H200 SXM": 1978.9,  # 3958 sparse; the chip of H100 SXM
    "H200 NVL": 1670.5,  # 3341 sparse
    "H20": 296,  # dense
    "GH200 96GB": 1978.9,  # 3958 sparse; the chip of H100 SXM
    "GH200 144GB": 1978.9,  # 3958 sparse; the chip of H100 SXM
    "GB200": 5000,  # 20 000 sparse for the two GPUs of a superchip
    "B200 SXM": 4500,  # dense; 72 000 sparse for eight
    "B300 SXM": 4500,  # 72 000 sparse for eight
    "GB300": 5000,  # dense, 360 000 for 72
    "GB10": 250,  # twice bf16; not stated
    "RTX PRO 6000 Blackwell Server": 935.6,  # dense
    "MI350X": 4613.8,  # dense
    "MI355X": 5033.2,  # dense
    "RTX 4090": 330.3,  # dense; twice as much with float16 accumulation
    "RTX 5090": 419,  # dense; twice as much with float16 accumulation
    "RTX PRO 6000 Blackwell Workstation": 1007.6,  # dense
    "L40S": 733,  # dense
    "L4": 242.5,  # 485 sparse
    "MI300X": 2614.9,  # dense
    "MI325X": 2614.9,  # dense
}

# First words of a name -> what all devices with this chip have in common. The compute capability is by NVIDIA's list of
# GPUs, the number of multiprocessors (of AMD's devices: compute units) by the datasheets' documents.
_CHIPS: dict[str, Chip] = {
    "V100":          Chip((7, 0),   80,  6,   3),
    "T4":            Chip((7, 5),   40,  6,   3),
    "A100":          Chip((8, 0),   108, 40,  4),
    "A10":           Chip((8, 6),   72,  6,   4),
    "A10G":          Chip((8, 6),   80,  6,   4),
    "RTX 3090":      Chip((8, 6),   82,  6,   4),
    "RTX A6000":     Chip((8, 6),   84,  6,   4),
    "RTX 4090":      Chip((8, 9),   128, 72,  4),
    "L40S":          Chip((8, 9),   142, 96,  4),
    "L4":            Chip((8, 9),   58,  48,  4),
    "H100 PCIe":     Chip((9, 0),   114, 50,  5),
    "H100":          Chip((9, 0),   132, 50,  5),
    "H200":          Chip((9, 0),   132, 50,  5),
    "H20":           Chip((9, 0),   78,  60,  5),
    "GH200":         Chip((9, 0),   132, 50,  5),
    "B200":          Chip((10, 0),  148, 126, 5),
    "GB200":         Chip((10, 0),  148, 126, 5),
    "B300":          Chip((10, 3),  160, 126, 5),
    "GB300":         Chip((10, 3),  160, 126, 5),
    "GB10":          Chip((12, 1),  48,  24,  5),
    "RTX 5090":      Chip((12, 0),  170, 96,  5),
    "RTX PRO 6000":  Chip((12, 0),  188, 128, 5),
    "MI300X":        Chip((0, 0),   304, 256, 5),
    "MI325X":        Chip((0, 0),   304, 256, 5),
    "MI350X":        Chip((0, 0),   256, 256, 5),
    "MI355X":        Chip((0, 0),   256, 256, 5),
}
# Device -> GiB that CUDA reports (the smallest of several readings, as drivers differ by some tenths of a per cent) and
# the source of the reading. A repository is named for an issue or a file of it on GitHub.
_MESSAGES = "PyTorch's out-of-memory messages"
_SOME_V100 = f"{_MESSAGES} of V100s of unknown form factor"
_GIVEN: dict[str, tuple[float, str]] = {
    "A100 SXM 40GB": (39.39, f"{_MESSAGES}: 39.39 to 39.59"),
    "A100 PCIe 40GB": (39.39, f"{_MESSAGES} of A100s of 40 GB of unknown form factor: 39.39 to 39.59"),
    "A100 SXM 80GB": (79.14, f"{_MESSAGES}: 79.14 to 79.32"),
    "A100 PCIe 80GB": (79.10, "deviceQuery: 79.10; elsewhere up to 79.25"),
    "A10": (21.98, "deviceQuery: 23609475072 bytes, aalanwyr/face2cuda"),
    "A10G": (22.30, f"{_MESSAGES}: 22.30, nvidia-cosmos/cosmos-transfer1 issue 213; older drivers 22.49"),
    "V100 SXM 16GB": (15.77, f"{_SOME_V100}: 15.78, kchengiva/Shift-GCN issue 34"),
    "V100 PCIe 16GB": (15.77, f"{_SOME_V100}: 15.78, kchengiva/Shift-GCN issue 34"),
    "V100 SXM 32GB": (31.73, f"{_SOME_V100}: 31.74, liucongg/ChatGLM-Finetuning issue 73"),
    "V100 PCIe 32GB": (31.73, f"{_SOME_V100}: 31.74, liucongg/ChatGLM-Finetuning issue 73"),
    "H100 SXM": (79.178, "cuDeviceTotalMem: 85017493504 bytes, driver 580; older ones 79.20, thamada/nvidia-smi"),
    "H100 PCIe": (79.11, f"{_MESSAGES} of H100s of unknown form factor: 79.11, vllm-project/vllm issue 27508"),
    "H100 NVL": (93.00, f"{_MESSAGES}: 93.00, ali-vilab/VACE issue 56"),
    "H200 SXM": (139.80, "totalGlobalMem: 150109880320 bytes, in analysis/reference"),
    "GH200 96GB": (94.88, f"{_MESSAGES}: 94.88, Lightning-AI/litgpt issue 1892"),
    "B200 SXM": (178.35, "totalGlobalMem: 178.35, pytorch/ao pull request 4002"),
    "GB200": (184.31, f"{_MESSAGES}: 184.31"),
    "B300 SXM": (267.69, f"{_MESSAGES} of nodes with eight: 267.69"),
    "GB300": (277.55, "nvidia-smi: 284208 MiB, ai-dynamo/aiconfigurator gb300.yaml"),
    "RTX PRO 6000 Blackwell Server": (94.97, "that of the workstation edition; nvidia-smi states 97887 MiB for both"),
    "RTX 3090": (23.55, "totalGlobalMem: 25286672384 bytes, Jumperkables/cuda-benchmarking; elsewhere up to 23.70"),
    "RTX A6000": (47.50, f"{_MESSAGES} of cards of 48 GB: 47.50 to 47.54 without ECC; 44.55 with it"),
    "RTX 4090": (23.52, f"{_MESSAGES}: 23.52, Soul-AILab/SoulX-FlashTalk issue 5; elsewhere up to 23.65"),
    "RTX 5090": (31.36, f"{_MESSAGES}: 31.36, TrajectoryCrafter/TrajectoryCrafter issue 20"),
    "RTX PRO 6000 Blackwell Workstation": (94.97, "cudaMemGetInfo: 94.97, antirez/ds4 issue 431"),
    "L40S": (44.42, f"{_MESSAGES}: 44.42, stepfun-ai/Step-Video-T2V issue 8"),
    "L4": (22.03, f"{_MESSAGES}: 22.03"),
    "T4": (14.56, f"{_MESSAGES}: 14.56, Zheng-Chong/CatVTON issue 133; older drivers up to 14.76"),
    "MI300X": (191.98, "rocminfo: 201310208 KiB, ROCm/legacy-rocm-build issue 4414"),
}
# fmt: on

DEVICES: tuple[Device, ...] = tuple(
    Device(
        name=row.name,
        pattern=row.pattern,
        sold_memory=row.sold_gib * GIB,
        memory=round(_GIVEN[row.name][0] * GIB if row.name in _GIVEN else (1 - UNKNOWN_SHARE) * row.sold_gib * GIB),
        memory_source=_GIVEN[row.name][1] if row.name in _GIVEN else None,
        bytes_per_second=row.terabytes_per_second * 1e12,
        bf16=row.bf16 * 1e12 if row.bf16 else None,
        fp16=row.fp16 * 1e12,
        tf32=row.tf32 * 1e12 if row.tf32 else None,
        fp32=row.fp32 * 1e12,
        chip=next(chip for words, chip in _CHIPS.items() if f"{row.name} ".startswith(f"{words} ")),
        fp8=_FP8[row.name] * 1e12 if row.name in _FP8 else None,
        source=row.source,
        confidence=row.confidence,
    )
    for row in _ROWS
)


def find_device(full_name: str, memory: int | None = None) -> Device | None:
    """Return the device that the driver calls `full_name`, or None. memory: bytes that the driver reports; with 15 %
    less than nominal (a slice), or 2 % more, it is another device."""
    for device in DEVICES:
        if re.fullmatch(device.pattern, full_name):
            fits = memory is None or 0.85 * device.sold_memory <= memory <= 1.02 * device.sold_memory
            return device if fits else None
    return None


def device_named(name: str) -> Device | None:
    """Return the device with this name of ours, or None."""
    return next((device for device in DEVICES if device.name == name), None)


def capabilities_of(device: Device) -> Capabilities:
    """Return what the device can compute, for the rules about devices."""
    return Capabilities(device.name, device.chip.compute, device.bf16 is not None)


def peak_flops(device: Device, precision: Precision) -> float | None:
    """Return the peak FLOP/s of matrix products in this precision, of fp8_* in 8 bits; None if not supported."""
    rate: float | None = getattr(device, PRECISIONS[precision].rate) if precision in PRECISIONS else None
    return rate


LINKS: dict[str, float] = {
    **dict.fromkeys(("A100 SXM 40GB", "A100 SXM 80GB"), 300e9),
    **dict.fromkeys(("H100 SXM", "H200 SXM", "H20", "GH200 96GB", "GH200 144GB"), 450e9),
    **dict.fromkeys(("B200 SXM", "B300 SXM", "GB200", "GB300"), 900e9),
    **dict.fromkeys(("V100 SXM 16GB", "V100 SXM 32GB"), 150e9),
    **dict.fromkeys(("MI300X", "MI325X"), 448e9),
}
"""Name of a device -> B/s in one direction over all its links to the GPUs of a node; datasheets state both directions:
NVLink 300, 600, 900 and 1800 GB/s, seven links of AMD's Infinity Fabric 896 GB/s."""

_PCIE = {3: 15.75e9, 4: 31.5e9, 5: 63e9}
"""Generation -> B/s of sixteen lanes in one direction."""
_SUPERCHIPS = ("GH200", "GB200", "GB300")


def host_link(device: Device) -> float:
    """Return the datasheet's B/s between device and host in one direction."""
    if device.name.startswith(_SUPERCHIPS):
        return 450e9  # NVLink-C2C
    return _PCIE[device.chip.pcie]


NETWORKS: dict[str, float] = {
    **dict.fromkeys(("A100 SXM 40GB", "A100 SXM 80GB"), 25e9),
    **dict.fromkeys(("H100 SXM", "H200 SXM", "B200 SXM", "GB200"), 50e9),
    **dict.fromkeys(("B300 SXM", "GB300"), 100e9),
}
"""Name of a device -> B/s in one direction between nodes, with one InfiniBand adapter per GPU as in NVIDIA's DGX."""
