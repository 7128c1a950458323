"""The table of datasheets: each name that a driver reports finds its own row, and no other."""

import re
from typing import get_args

import pytest

from lmsweep.orchestrator.planning.memory_budget import devices_meant
from lmsweep.trials.analytic.datasheets import DEVICES, GIB, device_named, find_device, peak_flops
from lmsweep.trials.machine.host_memory import VARIABLE, memory_asked_for
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.quantities import bytes_of, gib, ms
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS, Precision

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
    ("NVIDIA H20", 102_000_000_000, "H20"),
    ("NVIDIA GH200 480GB", 101_900_000_000, "GH200 96GB"),
    ("NVIDIA GH200 144G HBM3e", 151_000_000_000, "GH200 144GB"),
    ("NVIDIA GB200", 197_900_000_000, "GB200"),
    ("NVIDIA B300 SXM6 AC", 287_400_000_000, "B300 SXM"),
    ("NVIDIA A10", 23_609_475_072, "A10"),
    ("NVIDIA A10G", 23_944_000_000, "A10G"),
    ("Tesla V100-SXM2-16GB", 16_944_000_000, "V100 SXM 16GB"),
    ("Tesla V100-SXM2-32GB", 34_080_000_000, "V100 SXM 32GB"),
    ("Tesla V100-PCIE-16GB", 16_944_000_000, "V100 PCIe 16GB"),
    ("Tesla V100-PCIE-32GB", 34_080_000_000, "V100 PCIe 32GB"),
    ("NVIDIA GeForce RTX 3090", 25_286_672_384, "RTX 3090"),
    ("NVIDIA RTX A6000", 51_040_000_000, "RTX A6000"),
    ("NVIDIA RTX A5000", 25_400_000_000, "RTX A5000"),
    ("NVIDIA RTX 6000 Ada Generation", 47_800_000_000, "RTX 6000 Ada"),
    ("NVIDIA RTX PRO 4500 Blackwell", 33_600_000_000, "RTX PRO 4500 Blackwell"),
    ("AMD Instinct MI100", 34_300_000_000, "MI100"),
    ("AMD Instinct MI210", 68_700_000_000, "MI210"),
    ("AMD Instinct MI250X/MI250", 68_700_000_000, "MI250"),
    ("AMD Instinct MI325X", 274_800_000_000, "MI325X"),
    ("AMD Instinct MI350X", 300_000_000_000, "MI350X"),
    ("AMD Instinct MI355X", 300_000_000_000, "MI355X"),
    ("NVIDIA GB300", 298_013_687_808, "GB300"),
    ("NVIDIA GB10", 128_000_000_000, "GB10"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 101_980_000_000, "RTX PRO 6000 Blackwell Server"),
    ("NVIDIA B200", 191_500_000_000, "B200 SXM"),
    ("NVIDIA GeForce RTX 4090", 25_386_352_640, "RTX 4090"),
    ("NVIDIA GeForce RTX 5090", 33_660_000_000, "RTX 5090"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 101_900_000_000, "RTX PRO 6000 Blackwell Workstation"),
    ("NVIDIA L40S", 47_800_000_000, "L40S"),
    ("NVIDIA L4", 23_700_000_000, "L4"),
    ("Tesla T4", 15_835_660_288, "T4"),
    ("AMD Instinct MI300X", 206_141_652_992, "MI300X"),
]


def test_a_reported_name_finds_its_row_and_no_other_with_and_without_its_memory() -> None:
    for full_name, memory, row in REPORTED:
        assert [found.name for found in (find_device(full_name), find_device(full_name, memory)) if found] == [row, row]
        assert [device.name for device in DEVICES if re.fullmatch(device.pattern, full_name)] == [row]
    assert {row for _, _, row in REPORTED} == {device.name for device in DEVICES}


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


@pytest.mark.parametrize(("name", "read"), READ.items())
def test_a_device_has_the_memory_that_its_driver_gives_and_no_more(name: str, read: int) -> None:
    device = device_named(name)
    assert device and read * 0.999 < device.memory <= read


def test_what_is_printed_on_the_box_is_never_what_there_is() -> None:
    for device in DEVICES:
        assert 0.9 < device.memory / device.sold_memory < 1, device.name


A100 = {"fp32": 19.5e12, "tf32": 156e12} | dict.fromkeys(("bf16", "fp16", "fp16_pure", "bf16_pure"), 312e12)


@pytest.mark.parametrize(
    ("name", "known"),
    [("NVIDIA A100-SXM4-80GB", A100), ("Tesla T4", {"fp32": 8.1e12, "fp16": 65e12, "fp16_pure": 65e12})],
)
def test_each_precision_has_the_peak_of_its_own_arithmetic_or_none(name: str, known: dict[str, float]) -> None:
    device = find_device(name)
    peaks = {precision: peak_flops(device, precision) for precision in get_args(Precision)}
    assert {precision: peak for precision, peak in peaks.items() if peak} == known


def test_rates_are_in_si_units_and_rise_as_numbers_get_narrower() -> None:
    for device in DEVICES:
        assert 1e11 < device.bytes_per_second < 1e13, device.name
        assert 5e12 < device.fp32 <= (device.tf32 or device.fp32) < device.fp16 < 5e15, device.name
        assert device.fp8 is None or device.fp8 / device.fp16 == pytest.approx(2, rel=0.015), device.name
    h100, a100 = find_device("NVIDIA H100 80GB HBM3"), find_device("NVIDIA A100-SXM4-80GB")
    assert h100 and a100 and a100.fp8 is None
    assert {peak_flops(h100, precision) for precision in FLOAT8_PRECISIONS} == {1978.9e12}


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
def test_a_name_of_several_devices_means_the_first_and_names_the_others(text: str, meant: str, also: list[str]) -> None:
    first, *others = devices_meant(text)
    assert (first.name, [other.name for other in others]) == (meant, also)


@pytest.mark.parametrize(("text", "size"), [("24GB", 24e9), ("1.5 GiB", 1.5 * 2**30), ("800mb", 8e8), (".5MiB", 2**19)])
def test_a_size_of_memory_is_a_number_and_a_unit(text: str, size: float) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["1.2.3GB", ".GB", "GB", "24", "24 TB", "-1GB"])
def test_what_is_no_size_of_memory_is_a_wrong_request(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match=r"--for .*: no such device; .*give a size"):
        devices_meant(text)
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(RequestError, match=f"{VARIABLE}={text}: give a size"):
        memory_asked_for()


def test_amounts_are_printed_with_three_digits_and_no_exponent() -> None:
    assert [gib(one * 2**20) for one in (48.3, 999.4, 999.7)] == ["48.3 MiB", "999 MiB", "1000 MiB"]
    assert [ms(one) for one in (0.0612, 0.9994, 0.9997, 1.33)] == ["61.2", "999", "1,000", "1,330"]
