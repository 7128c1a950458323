"""What the products of a mixture of experts cost: one kernel for all groups of rows, or a loop of one for each."""

from dataclasses import replace

import pytest

from lmsweep.trials.analytic.datasheets import device_named
from lmsweep.trials.analytic.rates.operators import Operator
from lmsweep.trials.analytic.rates.rate_data import MeasuredOperator
from lmsweep.trials.analytic.rates.rate_set import LAUNCH_SECONDS, MeasuredRates, Rates, rates_of, rates_with


def on(name: str) -> Rates:
    device = device_named(name)
    assert device is not None
    return rates_of(device)


def grouped(rows: int, groups: int, n: int, k: int, dtype: str = "bfloat16", **fields: object) -> Operator:
    """x (rows, k) by a weight (k, n) of the group that a row belongs to; `tn`: the gradients of the weights."""
    item = 4 if dtype == "float32" else 2
    shapes: tuple[tuple[int, ...], ...] = ((rows, k), (groups, k, n), (groups,))
    if fields.get("layout") == "tn":
        shapes = ((k, rows), (rows, n), (groups,))
    moved = item * (rows * k + groups * k * n + rows * n)
    given = {"name": "_grouped_mm", "shapes": shapes, "dtype": dtype, "bytes": moved, "flops": 2 * rows * n * k,
             "phase": "forward", "module": "", "layout": "nt"}  # fmt: skip
    return Operator(**given | fields)  # type: ignore[arg-type]


def product(m: int, n: int, k: int, dtype: str, layout: str) -> Operator:
    item = 4 if dtype == "float32" else 2
    return Operator(name="mm", shapes=((m, k), (k, n)), dtype=dtype, bytes=item * (m * k + k * n + m * n),
                    flops=2 * m * n * k, phase="forward", module="", layout=layout)  # fmt: skip


@pytest.mark.parametrize("layout", ["nt", "nn", "tn"])
def test_without_a_kernel_of_its_own_a_grouped_product_is_a_loop_of_a_product_for_each_group(layout: str) -> None:
    for name, dtype in (("H100 SXM", "float32"), ("H100 SXM", "float16"), ("A100 SXM 80GB", "bfloat16")):
        rates = on(name)
        each = (7168, 1024, 2048) if layout == "tn" else (2048, 7168, 1024)
        alone = 8 * rates.of(product(*each, dtype, layout)).seconds
        one = grouped(8 * 2048, 8, *((1024, 7168) if layout == "tn" else (7168, 1024)), dtype, layout=layout)
        assert 0.98 * alone < rates.of(one).seconds < 1.35 * alone, (name, dtype)
        assert rates.launch(one) == 8 * LAUNCH_SECONDS["group"]


def test_many_small_groups_take_as_long_as_the_host_launches_them() -> None:
    small = grouped(256, 128, 64, 64, "float32")
    assert on("H100 SXM").of(small).seconds >= 128 * LAUNCH_SECONDS["group"]
    assert on("H100 SXM").of(replace(small, dtype="bfloat16")).seconds < 128 * LAUNCH_SECONDS["group"] / 4
    assert on("H100 SXM").launch(replace(small, dtype="bfloat16")) == LAUNCH_SECONDS["eager"]


def test_one_kernel_for_large_groups_takes_as_long_as_one_product_of_all_rows_and_longer_for_small_ones() -> None:
    rates = on("H100 SXM")
    whole = rates.of(product(32768, 4096, 2048, "bfloat16", "nt")).seconds
    assert whole < rates.of(grouped(32768, 8, 4096, 2048)).seconds < 1.1 * whole
    rows = rates.of(product(8192, 4096, 2048, "bfloat16", "nt")).seconds
    assert rates.of(grouped(8192, 128, 4096, 2048)).seconds > 1.5 * rows, "half of each tile is empty"


@pytest.mark.parametrize(("dtype", "layout"), [("bfloat16", "nt"), ("float32", "tn")])
def test_the_load_of_the_groups_is_expected_and_its_interval_has_even_and_skewed_loads(dtype: str, layout: str) -> None:
    cost = on("H100 SXM").of(grouped(16384, 64, 1024, 2048, dtype, layout=layout))
    least, most = cost.unsure
    assert 0.5 < least <= 1 <= most < 2 and least < most
    assert "expected load" in cost.source


def test_measured_grouped_products_replace_the_formula() -> None:
    h200 = device_named("H200 SXM")
    assert h200 is not None
    one = grouped(16384, 128, 1536, 2048)
    point = MeasuredOperator(device_name="NVIDIA H200", kind="product", name="_grouped_mm", form="forward",
                             shapes=one.shapes, dtype="bfloat16", bytes=one.bytes, flops=one.flops, is_causal=False,
                             is_cold=True, seconds=4e-4)  # fmt: skip
    rates = rates_with(h200, MeasuredRates(operators=(point,) * 9))
    assert rates.of(one).seconds == pytest.approx(4e-4, rel=0.1)
    alone = product(16384, 1536, 2048, "bfloat16", "nt")
    assert rates.of(alone).seconds < 3e-4, "a product of one group was not measured so"
