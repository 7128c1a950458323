"""The table of datasheets: each name that a driver reports finds its own row, and no other."""

import re
from typing import get_args

import pytest

from lmsweep.orchestrator.planning.memory_budget import devices_meant
from lmsweep.trials.analytic.datasheets import DEVICES, GIB, find_device, peak_flops
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.quantities import bytes_of
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS, Precision

# What drivers report where one device has several names. All others are in the table as they are reported.
REPORTED = {
    "NVIDIA A100-SXM4-40GB": "A100 SXM 40GB",
    "A100-SXM4-40GB": "A100 SXM 40GB",
    "NVIDIA A100-SXM4-80GB": "A100 SXM 80GB",
    "NVIDIA A100-PCIE-40GB": "A100 PCIe 40GB",
    "Tesla V100-SXM2-16GB": "V100 SXM 16GB",
    "Tesla V100-PCIE-32GB": "V100 PCIe 32GB",
    "Tesla T4": "T4",
    "AMD Instinct MI250X/MI250": "MI250",
    "AMD Instinct MI250": "MI250",
    "AMD Instinct MI300X": "MI300X",
    "AMD Instinct MI300X VF": "MI300X",
}


def test_a_reported_name_finds_its_row_and_no_other_with_and_without_its_memory() -> None:
    names = REPORTED | {device.pattern: device.name for device in DEVICES if "(" not in device.pattern}
    for full_name, row in names.items():
        (device,) = (device for device in DEVICES if re.fullmatch(device.pattern, full_name))
        assert device.name == row and find_device(full_name) == find_device(full_name, device.memory) == device


@pytest.mark.parametrize(
    "full_name",
    [
        *("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 3090 Ti"),
        *("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
        *("GRID A100-10C", "NVIDIA A100", "NVIDIA H100", "NVIDIA H20-3e", "NVIDIA A10-24Q", "NVIDIA L40"),
        *("Tesla V100-FHHL-16GB", "AMD Instinct MI300A", "Intel(R) Xeon(R) CPU, 16 cores", ""),
    ],
)
def test_an_unknown_device_has_no_row(full_name: str) -> None:
    assert find_device(full_name) is None
    assert find_device("AMD Instinct MI300X", 24 * GIB) is None, "a slice of a device"


# What CUDA was seen to have on a device, in bytes; whoever plans for it must not count on more.
READ = {
    "H100 SXM": 85_017_493_504,
    "H200 SXM": 150_109_880_320,
    "A10": 23_609_475_072,
    "RTX 3090": 25_286_672_384,
    "MI300X": 201_310_208 * 1024,
}


def test_a_device_has_the_memory_that_its_driver_gives_which_is_never_what_is_printed_on_the_box() -> None:
    memory = {device.name: device.memory for device in DEVICES}
    for name, read in READ.items():
        assert read * 0.999 < memory[name] <= read, name
    for device in DEVICES:
        assert 0.9 < device.memory / device.sold_memory < 1, device.name


H100 = {"fp32": 66.9e12, "tf32": 494.7e12} | dict.fromkeys(("bf16", "fp16", "fp16_pure", "bf16_pure"), 989.4e12)
H100 |= dict.fromkeys(FLOAT8_PRECISIONS, 1978.9e12)
A100 = {"fp32": 19.5e12, "tf32": 156e12} | dict.fromkeys(("bf16", "fp16", "fp16_pure", "bf16_pure"), 312e12)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H100 80GB HBM3", H100),
        ("NVIDIA A100-SXM4-80GB", A100),
        ("Tesla T4", {"fp32": 8.1e12, "fp16": 65e12, "fp16_pure": 65e12}),
    ],
)
def test_each_precision_has_the_peak_of_its_own_arithmetic_or_none(name: str, known: dict[str, float]) -> None:
    device = find_device(name)
    assert device is not None
    peaks = {precision: peak_flops(device, precision) for precision in get_args(Precision)}
    assert {precision: peak for precision, peak in peaks.items() if peak} == pytest.approx(known)


def test_rates_are_in_si_units_and_rise_as_numbers_get_narrower_to_twice_in_float8() -> None:
    for device in DEVICES:
        assert device.fp8 is None or device.fp8 / device.fp16 == pytest.approx(2, rel=0.015), device.name
        assert 1e11 < device.bytes_per_second < 1e13, device.name
        assert 5e12 < device.fp32 <= (device.tf32 or device.fp32) < device.fp16 < 5e15, device.name


@pytest.mark.parametrize(
    ("text", "meant", "also"),
    [
        ("L4", "L4", []),
        ("nvidia a100", "A100 SXM 40GB", ["A100 SXM 80GB", "A100 PCIe 40GB", "A100 PCIe 80GB"]),
        ("A100-80G", "A100 SXM 80GB", ["A100 PCIe 80GB"]),
        ("H100 SXM", "H100 SXM", []),
        ("RTX4090", "RTX 4090", []),
    ],
)
def test_a_name_that_several_devices_have_is_the_first_and_the_others_are_known(
    text: str, meant: str, also: list[str]
) -> None:
    first, *others = devices_meant(text)
    assert (first.name, [other.name for other in others]) == (meant, also)


@pytest.mark.parametrize(("text", "size"), [("24GB", 24e9), ("1.5 GiB", 1.5 * 2**30), ("800mb", 8e8), (".5MiB", 2**19)])
def test_a_size_of_memory_is_a_number_and_a_unit(text: str, size: float) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["1.2.3GB", ".GB", "GB", "24", "24 TB", "-1GB"])
def test_what_is_no_size_of_memory_is_a_wrong_request(text: str) -> None:
    with pytest.raises(RequestError, match=r"--for .*: no such device; .*give a size"):
        devices_meant(text)
