"""The workload `operators`: times of single operators, with the bytes and FLOPs that their rates are made of."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch.utils._python_dispatch import TorchDispatchMode

from lmsweep.orchestrator.features.operators.byte_cases import byte_cases
from lmsweep.orchestrator.features.operators.cases import Extent
from lmsweep.orchestrator.features.operators.product_cases import product_cases
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.analytic.rates.product_rates import LAYOUT_OF, product_of
from lmsweep.trials.machine.torch_private import written_places
from lmsweep.trials.prediction.without_device.moved_bytes import moved_bytes
from lmsweep.trials.results.measurement import OperatorTime
from lmsweep.trials.results.record import DetailRow, Record
from tests.support.needs import needs_cuda
from tests.support.trial_here import run_here

pytestmark = pytest.mark.usefixtures("one_core")


def measured(**fields: object) -> tuple[list[OperatorTime], dict[tuple[Any, Any], Record]]:
    chosen = {"workloads": "operators", "d_model": 64, "context_length": 64} | fields
    rows = run_here(single_trial([f"{name}={value}" for name, value in chosen.items()]))
    assert {row.error for row in rows if isinstance(row, Record)} == {None}
    timed = [row.detail for row in rows if isinstance(row, DetailRow)]
    assert all(isinstance(one, OperatorTime) for one in timed)
    return timed, {(row.phase, row.metric): row for row in rows if isinstance(row, Record)}


def shapes_of(one: OperatorTime) -> list[list[int]]:
    return [[int(size) for size in shape.split("x")] for shape in one.shapes.split(",")]


def test_products_attention_bytes_and_optimizers_are_timed_with_their_work() -> None:
    timed, rows = measured()
    assert {one.kind for one in timed} == {"product", "attention", "bytes", "optimizer"}
    for one in timed:
        assert one.bytes > 0 and min(one.seconds) > 0
        if one.name == "mm":
            (m, k), (_, n) = shapes_of(one)
            assert one.flops == 2 * m * n * k and one.bytes == 4 * (m * k + k * n + m * n)
        if one.name.endswith("efficient_attention"):
            batch, heads, context, head = shapes_of(one)[0]
            assert one.flops == 4 * batch * heads * context**2 * head // (2 if one.is_causal else 1)
    assert {"add_strided", "add_transposed", "sum_columns"} <= {one.name for one in timed}
    layouts = {one.form for one in timed if one.name == "mm"}
    assert layouts == {"forward", "input_gradient", "weight_gradient"}
    rate = rows["product", "flops_rate"].samples
    assert rate and rate[0] == max(one.flops / min(one.seconds) for one in timed if one.kind == "product")
    assert ("launch_plain", "time") not in rows, "on a CPU the host is the device"


def test_products_are_measured_in_each_alignment_of_rows() -> None:
    for dtype, alignments in ((torch.bfloat16, {2, 4, 8, 16}), (torch.float32, {4, 8, 16})):
        extent = Extent(device="cuda", dtype=dtype, width=8192, tokens=32768, tf32=dtype == torch.float32)
        found: Counter[tuple[str, int]] = Counter()
        for case in product_cases(extent):
            layout = LAYOUT_OF[case.form]
            product = product_of(case.name, case.shapes, bytes=case.bytes, dtype=case.dtype, layouts=(layout,))
            found[layout, product.alignment(layout)] += case.name == "mm"
        assert found.keys() == {(layout, bytes) for layout in ("nt", "nn", "tn") for bytes in alignments}
        assert all(count >= 6 for count in found.values()), found
        narrow = product_cases(replace(extent, recipe="tensorwise"))
        assert all(size % 16 == 0 for case in narrow for shape in case.shapes for size in shape), "float8 has no others"


def test_the_products_of_experts_are_timed_in_each_layout() -> None:
    extent = Extent(device="cpu", dtype=torch.bfloat16, width=64, tokens=256)
    cases = [case for case in product_cases(extent) if case.name == "_grouped_mm"]
    assert Counter(case.form for case in cases) == {"forward": 2, "input_gradient": 2, "weight_gradient": 2}
    for case in cases:
        layouts = (LAYOUT_OF[case.form],)
        product = product_of(case.name, case.shapes, bytes=case.bytes, dtype=case.dtype, layouts=layouts)
        assert product.groups == 8 and product.divides_inner == (case.form == "weight_gradient")
        result = case.make()()
        sizes = [math.prod(shape) for shape in (*case.shapes[:2], result.shape)]
        assert case.bytes == 2 * sum(sizes) and case.flops == 2 * product.m * product.n * product.k
    assert not [one for one in product_cases(replace(extent, dtype=torch.float32)) if one.name == "_grouped_mm"]


def test_what_routes_tokens_to_experts_is_timed_with_the_bytes_that_a_step_counts() -> None:
    extent = Extent(device="cpu", dtype=torch.float32, width=64, tokens=256)
    routing = {case.name: case for case in byte_cases(extent)}
    for name in ("index_put_", "index_add", "scatter_add", "gather", "sort", "topk"):
        with Watched() as watched:
            routing[name].make()()
        assert watched.seen[name] == routing[name].bytes, name


class Watched(TorchDispatchMode):
    """Notes the bytes that each operator moves, as a prediction counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        moved = moved_bytes(name, written_places(func), (*args, *(kwargs or {}).values()), result)
        self.seen[name] = moved.bytes if moved else 0
        return result


def test_a_trial_in_float8_times_both_sums_and_both_scales_of_products_and_what_a_cast_is_made_of() -> None:
    extent = Extent(device="cpu", dtype=torch.bfloat16, width=64, tokens=256, recipe="tensorwise")
    cases = [*product_cases(extent), *byte_cases(extent)]
    assert {case.form for case in cases if case.kind == "product"} == {"fast", "rows", "exact"}
    names = {case.name for case in cases if case.kind == "bytes"}
    assert names == {"abs", "max_all", "amax", "amax_columns", "_to_copy", "clone"}
    scales_rows = Version(torch.__version__) >= Version("2.13")  # on a CPU; 2.11 has one scale for each operand
    for case in (one for one in cases if scales_rows or one.form != "rows"):
        result = case.make()()
        if case.kind == "product":
            (m, k), (_, n) = case.shapes
            assert result.shape == (m, n) and case.bytes == m * k + k * n + result.nbytes
        assert case.dtype != "float8_e4m3fn" or case.kind == "product" or result.itemsize == 1


@needs_cuda
@pytest.mark.parametrize("precision", ["bf16", "tf32", "fp8_tensorwise"])
def test_a_gpu_measures_no_rate_above_its_datasheet(precision: str) -> None:
    if precision.startswith("fp8"):
        pytest.importorskip("torchao")
    timed, rows = measured(precision=precision, device="cuda", d_model=2048, context_length=4096)
    assert all(math.isfinite(one.seconds[0]) for one in timed)
    assert rows["product", "flops_rate"].samples[0] < 3e15
    assert 2e-7 < rows["launch_backward", "time"].samples[0] < 1e-3
