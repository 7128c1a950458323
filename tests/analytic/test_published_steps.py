"""The cells of the score card: what is published, on which GPU, and how its code divides a step."""

from dataclasses import replace

import pytest

from benchmarks.published_fleet import CHIPS, TUNED, fleet_cells, products_again
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.rates.operators import Operator

PRODUCT = Operator(name="mm", shapes=((8, 8), (8, 8)), dtype="bfloat16", flops=1024, bytes=384, phase="forward",
                   module="blocks.*.w1", count=2)  # fmt: skip


def test_each_published_step_is_of_a_known_gpu_and_says_what_its_conditions_leave_open() -> None:
    cells = list(fleet_cells(str(CHIPS)))
    devices = [device.name for cell in cells if (device := find_device(cell.full_name))]
    assert len(devices) == len(cells) and {"MI300X", "B200 SXM", "H100 SXM", "H200 SXM"} == {*devices}
    assert {device for cell, device in zip(cells, devices, strict=True) if cell.is_limited} == {"B200 SXM"}
    assert all(0.3 < cell.seconds < 4 and cell.ranks == 8 for cell in cells)
    assert {cell.config.attention for cell in cells if cell.source in TUNED} == {"sdpa_cudnn"}


@pytest.mark.parametrize(("name", "again"), [("mm", "bd"), ("_scaled_mm", "abcd")])
def test_torchtitan_computes_every_second_product_of_a_block_again_and_in_float8_each(name: str, again: str) -> None:
    block = [replace(PRODUCT, name=name, module=letter) for letter in "abcd"]
    head = replace(PRODUCT, name="mm", module="head", count=1)
    found = list(products_again([*block, head]))
    assert "".join(one.module for one in found) == again
    assert all(one.phase == "backward" and one.is_again and one.count == 2 for one in found)
