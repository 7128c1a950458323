"""The table of datasheets: each name that a driver reports finds its own row, and no other."""

import re
from typing import get_args

import pytest

from orchestrator.fit import device_memory
from trials.devices import DEVICES, GIB, find_device, peak_flops
from trials.host_memory import VARIABLE, memory_asked_for
from trials.spec import Precision, RequestError

# What drivers report: full name, bytes of memory (to a per cent), and the row that is meant.
REPORTED = [
    ("NVIDIA A100-SXM4-40GB", 42_298_834_944, "A100 SXM 40GB"),
    ("A100-SXM4-40GB", 42_506_321_920, "A100 SXM 40GB"),
    ("NVIDIA A100-SXM4-80GB", 85_100_068_864, "A100 SXM 80GB"),
    ("NVIDIA A100-PCIE-40GB", 42_298_834_944, "A100 PCIe 40GB"),
    ("NVIDIA A100 80GB PCIe", 85_100_068_864, "A100 PCIe 80GB"),
    ("NVIDIA H100 80GB HBM3", 85_029_158_912, "H100 SXM"),
    ("NVIDIA H100 PCIe", 85_028_765_696, "H100 PCIe"),
    ("NVIDIA H100 NVL", 100_000_000_000, "H100 NVL"),
    ("NVIDIA H200", 150_109_880_320, "H200 SXM"),
    ("NVIDIA H200 NVL", 150_109_880_320, "H200 NVL"),
    ("NVIDIA B200", 191_500_000_000, "B200 SXM"),
    ("NVIDIA GeForce RTX 4090", 25_386_352_640, "RTX 4090"),
    ("NVIDIA GeForce RTX 5090", 33_660_000_000, "RTX 5090"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 101_900_000_000, "RTX PRO 6000 Blackwell Workstation"),
    ("NVIDIA L40S", 47_800_000_000, "L40S"),
    ("NVIDIA L4", 23_700_000_000, "L4"),
    ("Tesla T4", 15_835_660_288, "T4"),
    ("AMD Instinct MI300X", 206_141_652_992, "MI300X"),
]


@pytest.mark.parametrize(("full_name", "memory", "row"), REPORTED)
def test_a_reported_name_finds_its_row_with_and_without_its_memory(full_name: str, memory: int, row: str) -> None:
    assert [found.name for found in (find_device(full_name), find_device(full_name, memory)) if found] == [row, row]


def test_every_row_is_found_by_a_reported_name() -> None:
    assert {row for _, _, row in REPORTED} == {device.name for device in DEVICES}


@pytest.mark.parametrize(("full_name", "_memory", "row"), REPORTED)
def test_no_name_fits_two_rows(full_name: str, _memory: int, row: str) -> None:
    assert [d.name for d in DEVICES if re.fullmatch(d.pattern, full_name)] == [row]


@pytest.mark.parametrize(
    "full_name",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 5090 Laptop GPU",
        "NVIDIA GeForce RTX 3090",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "GRID A100-10C",
        "NVIDIA A100",
        "NVIDIA H100",
        "NVIDIA H20",
        "NVIDIA GH200 480GB",
        "NVIDIA L40",
        "AMD Instinct MI300A",
        "Intel(R) Xeon(R) CPU, 16 cores",
        "",
    ],
)
def test_an_unknown_device_has_no_row(full_name: str) -> None:
    assert find_device(full_name) is None


def test_a_slice_of_a_device_has_no_row() -> None:
    assert find_device("AMD Instinct MI300X", 24 * GIB) is None
    assert find_device("NVIDIA GeForce RTX 4090", 48 * GIB) is None


def test_each_precision_has_the_peak_of_its_own_arithmetic() -> None:
    a100 = find_device("NVIDIA A100-SXM4-80GB")
    assert a100 is not None
    peaks = {precision: peak_flops(a100, precision) for precision in get_args(Precision)}
    assert peaks == {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12, "bf16_pure": 312e12}


def test_arithmetic_that_a_device_lacks_has_no_peak() -> None:
    t4 = find_device("Tesla T4")
    assert t4 is not None
    peaks = {precision: peak_flops(t4, precision) for precision in get_args(Precision)}
    assert peaks == {"fp32": 8.1e12, "tf32": None, "bf16": None, "fp16": 65e12, "bf16_pure": None}


def test_rates_are_in_si_units_and_rise_as_numbers_get_narrower() -> None:
    for device in DEVICES:
        assert 1e11 < device.bytes_per_second < 1e13, device.name
        assert 5e12 < device.fp32 <= (device.tf32 or device.fp32) < device.fp16 < 5e15, device.name


@pytest.mark.parametrize(("text", "size"), [("24GB", 24e9), ("1.5 GiB", 1.5 * 2**30), ("800mb", 8e8), (".5MiB", 2**19)])
def test_a_size_of_memory_is_a_number_and_a_unit(text: str, size: float) -> None:
    assert device_memory(text) == (f"a device of {text}", size)


@pytest.mark.parametrize("text", ["1.2.3GB", ".GB", "GB", "24", "24 TB", "-1GB"])
def test_what_is_no_size_of_memory_is_a_wrong_request(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match=r"--for .*: no such device; .*give a size"):
        device_memory(text)
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(RequestError, match=f"{VARIABLE}={text}: give a size"):
        memory_asked_for()
