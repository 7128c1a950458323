"""What an operator costs on a GPU: measured rates, those of a GPU with published products, and a datasheet alone."""

from dataclasses import replace

import pytest

from lmsweep.orchestrator.predicting.predicted_step import source_of
from lmsweep.trials.analytic.datasheets import device_named, find_device
from lmsweep.trials.analytic.rates.byte_rates import as_on_reference
from lmsweep.trials.analytic.rates.collective_rates import Point, across, between_gpus, from_datasheet
from lmsweep.trials.analytic.rates.hardware import hardware_of
from lmsweep.trials.analytic.rates.operators import Operator
from lmsweep.trials.analytic.rates.product_rates import ProductRates, product_of
from lmsweep.trials.analytic.rates.rate_data import MeasuredOperator, fastest_products, measured_operators
from lmsweep.trials.analytic.rates.rate_set import LAUNCH_SECONDS, MeasuredRates, Network, rates_of, rates_with
from lmsweep.trials.analytic.rates.step_time import step_time


def product(m: int, n: int, k: int, **fields: object) -> Operator:
    given = {"name": "mm", "shapes": ((m, k), (k, n)), "dtype": "bfloat16", "flops": 2 * m * n * k, "phase": "forward",
             "module": "", "bytes": 2 * (m * k + k * n + m * n)}  # fmt: skip
    return Operator(**given | fields)  # type: ignore[arg-type]


def attention(context: int, **fields: object) -> Operator:
    shape = (max(1, 16384 // context), 16, context, 128)
    flops = 2 * shape[0] * 16 * context**2 * 128
    given = {"name": "_scaled_dot_product_flash_attention", "shapes": (shape,) * 3, "dtype": "bfloat16", "flops": flops,
             "phase": "forward", "module": "", "bytes": 8 * 16384 * 2048, "is_causal": True}  # fmt: skip
    return Operator(**given | fields)  # type: ignore[arg-type]


def test_a_product_measured_on_the_gpu_costs_what_was_measured() -> None:
    rates = rates_of(device_named("H200 SXM"))
    points = [one for one in measured_operators() if one.device_name == "NVIDIA H200"]
    for point in [one for one in points if one.name == "mm" and one.form == "forward"][::40]:
        (m, k), (_, n) = point.shapes
        cost = rates.of(product(m, n, k, dtype=point.dtype, layout="nt", bytes=point.bytes))
        assert cost.seconds == pytest.approx(point.seconds, rel=0.35) and "measured on H200 SXM" in cost.source


@pytest.mark.parametrize(
    ("gpu", "dtype", "level", "source"),
    [("H100 SXM", "float32", "measured", "float32 measured on H100 SXM"),
     ("H200 SXM", "float32", "measured", "float32 measured on H200 SXM"),
     ("GH200 96GB", "float32", "measured", "float32 measured on H100 SXM, the same chip"),
     ("H100 SXM", "bfloat16", "measured", "products measured on H200 SXM, the same chip"),
     ("H100 SXM", "tf32", "measured", "products measured on H200 SXM, the same chip"),
     ("A100 SXM 80GB", "float32", "fp32", "published products of A100 SXM 80GB (torch-performance-test-data)"),
     ("A100 SXM 80GB", "bfloat16", "public", "published products of A100 SXM 80GB (AIConfigurator)"),
     ("V100 PCIe 32GB", "float32", "fp32", "95% of float32 on the datasheet of V100 PCIe 32GB, not measured"),
     ("A10", "float32", "fp32", "76% of float32 on the datasheet of A10, not measured")],
)  # fmt: skip
def test_what_is_known_of_products_goes_by_their_type(gpu: str, dtype: str, level: str, source: str) -> None:
    rates, one = rates_of(device_named(gpu)), product(4096, 4096, 4096, dtype=dtype)
    assert rates.of(one).source == source
    assert rates.level(step_time((one, attention(4096)), rates).product_type) == level


def test_rates_measured_in_one_type_leave_those_that_ship_in_others() -> None:
    h100 = device_named("H100 SXM")
    points = tuple(one for one in measured_operators() if one.kind == "product" and one.dtype == "bfloat16")
    here = tuple(one._replace(device_name="NVIDIA H100 80GB HBM3") for one in points)
    both = rates_of(h100), rates_with(h100, MeasuredRates(operators=here))
    one = product(2048, 2048, 2048, dtype="float32")
    assert both[0].of(one) == both[1].of(one)
    assert both[1].of(replace(one, dtype="bfloat16")).source == "products measured on H100 SXM"


def test_measured_launches_and_collectives_replace_what_ships() -> None:
    h200 = device_named("H200 SXM")
    links = {("H200 SXM", 2): {"all_reduce": [Point(1_000, 1e-3), Point(2_000_000, 1.0)]}}
    shipped, known = rates_of(h200), rates_with(h200, MeasuredRates(hosts={"H200 SXM": 2.0}, collectives=links))
    one = product(64, 64, 64)
    assert known.launch(one) == pytest.approx(2 * shipped.launch(one))
    assert known.hosts[1] / known.hosts[0] < 3 < shipped.hosts[1] / shipped.hosts[0]
    assert "measured, 2 times" in known.host_source and "assumed" in shipped.host_source
    assert known.collective("all_reduce", 2_000_000, ranks=2) == pytest.approx(1.0)
    assert known.collective("all_reduce", 2**20, ranks=4) == shipped.collective("all_reduce", 2**20, ranks=4)
    assert known.connects(2) and not rates_of(device_named("GB10")).connects(2), "a node has one"


def test_a_host_launches_casts_fast_recomputed_kernels_slowly_and_pays_for_each_call_of_compiled_code() -> None:
    rates = rates_of(device_named("H200 SXM"))
    plain = product(64, 64, 64)
    ways = (replace(plain, name="_to_copy"), replace(plain, is_compiled=True), plain, replace(plain, is_again=True))
    prices = [rates.launch(one) for one in ways]
    assert prices == sorted(prices) and prices[0] < 0.6 * prices[2] < prices[3]
    calls = rates.launch(replace(plain, is_compiled=True, calls=2)) - rates.launch(replace(plain, is_compiled=True))
    assert calls > 20 * prices[2], "guards and what wraps a graph"


def test_what_the_reference_did_not_measure_is_taken_from_another_gpu_by_their_bandwidths() -> None:
    known = next(one for one in measured_operators() if one.name == "mul")
    others = [known._replace(device_name="NVIDIA H100 80GB HBM3", name=name, seconds=1.0) for name in ("roll", "mul")]
    found = as_on_reference([*measured_operators(), *others])
    assert [one.name for one in found if one.seconds > 0.1] == ["roll"]
    slower = hardware_of(device_named("H100 SXM")).bandwidth / hardware_of(device_named("H200 SXM")).bandwidth
    assert found[-1].seconds == pytest.approx(slower) and slower < 0.8
    assert known in found


def test_a_product_in_float8_takes_longer_if_it_is_summed_in_float32() -> None:
    narrow = {"name": "_scaled_mm", "dtype": "float8_e4m3fn"}
    ways = ({"layout": "fast"} | narrow, {"layout": "exact"} | narrow, {"layout": "nt"})
    rates = rates_of(device_named("H200 SXM"))
    fast, exact, wide = (rates.of(product(8192, 8192, 8192, **way)).seconds for way in ways)
    assert fast < exact < wide < 2.2 * fast


def test_a_product_with_unaligned_rows_is_unsure_until_such_products_were_measured() -> None:
    h200 = device_named("H200 SXM")
    points = [one for one in measured_operators() if one.kind != "product" or not any(x % 8 for x in one.shapes[1])]
    rates = rates_with(h200, MeasuredRates(operators=tuple(points)))
    aligned, odd = (rates.of(product(16384, width, 768, layout="nt")) for width in (50304, 50257))
    assert aligned.unsure == (1, 1) and odd.seconds > 2 * aligned.seconds
    assert odd.unsure[0] * odd.seconds == pytest.approx(aligned.seconds, rel=0.1) and odd.unsure[1] > 1.5
    assert "not measured" in odd.source and "not measured" not in aligned.source
    time = step_time((product(16384, 50257, 768, layout="nt"), product(16384, 768, 768)), rates)
    assert time.at(1.0, 0) < 0.6 * time.seconds < 1.5 * time.seconds < time.at(1.0, 1)
    assert "an assumption" in source_of(time)
    rows = ((16384, 768), (768, 50257))
    linear = (one for one in measured_operators() if one.name == "mm" and one.device_name == "NVIDIA H200")
    one = next(one for one in linear if one.form == "forward" and one.dtype == "bfloat16")
    measured = [one._replace(shapes=rows, seconds=9e-3, bytes=1_749_181_952)] * 9
    found = rates_with(h200, MeasuredRates(operators=(*points, *measured)))
    again = found.of(product(16384, 50257, 768, layout="nt"))
    assert again.seconds == pytest.approx(9e-3, rel=0.1) and again.unsure == (1, 1)
    assert again.source == "products measured on H200 SXM"
    assert found.of(product(16384, 50304, 768, layout="nt")).seconds == pytest.approx(aligned.seconds)
    assert found.of(product(16384, 50258, 768, layout="nt")).unsure != (1, 1), "rows of 4 bytes were not measured"
    alone = ProductRates(hardware_of(h200), measured)
    shapes = ((16384, 768), (2, 768, 50257), (2,))
    grouped = product_of("_grouped_mm", shapes, bytes=measured[0].bytes, dtype="bfloat16", layouts=("nt",))
    assert alone.seconds(grouped).seconds < 1.5 * again.seconds, "what was measured is not assumed once more"


@pytest.mark.parametrize(
    ("dtype", "layout", "sizes", "alignment"),
    [
        ("bfloat16", "nt", (4095, 50304, 768), 16),  # no row is as long as the tokens are many
        ("bfloat16", "tn", (4095, 50304, 768), 2),
        ("bfloat16", "nt", (4096, 50260, 768), 8),
        ("tf32", "nn", (4096, 768, 50257), 4),
        ("float32", "nn", (4096, 768, 50257), 16),  # needs no tensor core
        ("bfloat16", "nn", (4096, 1, 768), 16),  # a vector has no rows
    ],
)
def test_rows_are_aligned_to_the_bytes_that_divide_all_of_them(
    dtype: str, layout: str, sizes: tuple[int, int, int], alignment: int
) -> None:
    m, n, k = sizes
    found = product_of("mm", ((m, k), (k, n)), bytes=1, dtype=dtype, layouts=(layout,))
    assert found.alignment(layout) == alignment


def test_attention_gains_less_from_an_a100_to_an_h100_than_products() -> None:
    a100, h100 = rates_of(device_named("A100 SXM 80GB")), rates_of(device_named("H100 SXM"))
    large = product(8192, 8192, 8192)
    of_products = a100.of(large).seconds / h100.of(large).seconds
    of_attention = a100.of(attention(8192)).seconds / h100.of(attention(8192)).seconds
    assert of_attention == pytest.approx(1.85, rel=0.1) and 2.3 < of_products < 3.2
    assert "published" in a100.of(large).source and "datasheet" in rates_of(device_named("L4")).of(large).source


def test_a_card_of_less_power_multiplies_slower_than_the_module_with_its_chip_by_tensor_cores_most() -> None:
    large, module = product(8192, 8192, 8192), rates_of(device_named("A100 SXM 80GB"))
    wide = replace(large, dtype="float32", bytes=2 * large.bytes)
    for name in ("A100 PCIe 40GB", "A100 PCIe 80GB"):
        card = rates_of(device_named(name))
        assert card.of(large).seconds / module.of(large).seconds == pytest.approx(1 / 0.88, rel=0.01)
        assert card.of(attention(8192)).seconds > 1.1 * module.of(attention(8192)).seconds
        assert card.of(large).source == "88% of the published products of A100 SXM 80GB (AIConfigurator)"
        assert card.of(wide).seconds / module.of(wide).seconds == pytest.approx(1 / 0.92, rel=0.01)
        assert card.of(wide).source == "92% of the published products of A100 SXM 80GB (torch-performance-test-data)"
        assert card.level() == "public"
    small = rates_of(device_named("A100 SXM 40GB"))
    assert small.level() == "public" and small.of(large).seconds == pytest.approx(module.of(large).seconds, rel=0.01)


def rate(name: str, operator: Operator) -> float:
    return operator.flops / rates_of(device_named(name)).of(operator).seconds


PUBLISHED = sorted({one.device_name for one in fastest_products() if one.dtype != "float8_e4m3fn"})


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_fastest_square_is_as_fast_as_users_published_it(name: str) -> None:
    card = find_device(name)
    for dtypes in (("bfloat16", "float16"), ("tf32",), ("float32",)):
        found = [one for one in fastest_products() if one.device_name == name and one.dtype in dtypes]
        squares = [product(n, n, n, dtype=dtypes[0]) for n in (1024, 2048, 4096, 8192, 10240)]
        fastest = max(rate(card.name, one) for one in squares) / 1e12
        for one in found:
            assert 0.85 < fastest / one.teraflops < 1.2, f"{name} {one.dtype}: {fastest:.0f} of {one.teraflops}"


BACKWARD = "_scaled_dot_product_flash_attention_backward"


# Published of an RTX 4090: 106 and 110 of 167.8 TFLOP/s.
@pytest.mark.parametrize(("name", "context"), [("RTX A6000", 2048), ("RTX 4090", 2048), ("L4", 2048), ("H20", 65536)])
def test_attention_of_a_card_runs_at_two_thirds_of_its_own_products(name: str, context: int) -> None:
    forward = attention(context)
    shape = forward.shapes[0]
    backward = replace(forward, name=BACKWARD, shapes=(shape,) * 5, flops=5 * forward.flops // 2, phase="backward")
    rates = rates_of(device_named(name))
    both = (forward.flops + backward.flops) / (rates.of(forward).seconds + rates.of(backward).seconds)
    assert 0.6 < both / rate(name, product(8192, 8192, 8192)) < 0.7
    assert "its products" in rates.of(forward).source
    through_cudnn = rates.of(replace(forward, name="_scaled_dot_product_cudnn_attention")).seconds
    assert forward.flops / through_cudnn < 0.95 * rate(name, product(8192, 8192, 8192)), "which it cannot exceed"


# apache/tvm, tl_doc/flash_perf.md, from which the share was learned; gpu-mode/ring-attention issue 10;
# gau-nernst/learn-cuda, 07_attention, at 400 W; flash-attention issue 1310
@pytest.mark.parametrize(
    ("name", "context", "head", "causal", "is_backward", "published"),
    [
        ("RTX 4090", 2048, 128, True, False, 151.2),
        ("RTX 4090", 2048, 64, True, True, 96.5),
        ("RTX A5000", 8192, 64, False, True, 77.4),
        ("RTX 5090", 8192, 128, False, False, 186.7),
        ("H20", 2048, 128, False, False, 83.7),
    ],
)
def test_attention_is_within_two_fifths_of_what_was_published_for_a_card(
    name: str, context: int, head: int, causal: bool, is_backward: bool, published: float
) -> None:
    shape = (max(1, 32768 // context), 2048 // head, context, head)
    flops = 4 * shape[0] * shape[1] * context**2 * head // (2 if causal else 1)
    fields = {"name": BACKWARD, "shapes": (shape,) * 5, "flops": 5 * flops // 2} if is_backward else {"flops": flops}
    one = attention(context, **{"shapes": (shape,) * 3, "is_causal": causal} | fields)
    assert 0.65 < rate(name, one) / (published * 1e12) < 1.4


def test_gpus_exchange_what_blocks_of_divided_layers_send_as_fast_as_published() -> None:
    rates = rates_of(device_named("B200 SXM"))
    small, between, large = (rates.collective("all_gather", size, ranks=8) for size in (2**25, 3 * 2**24, 2**26))
    assert large == pytest.approx(137e-6, rel=0.02), "231 µs between those of 16 and of 512 MiB"
    assert small < between < large


def test_cards_without_links_exchange_over_pcie() -> None:
    cards = ("RTX 4090", "RTX 5090")
    times = {name: rates_of(device_named(name)).collective("all_gather", 2**30, ranks=2) for name in cards}
    assert times["RTX 4090"] == pytest.approx(2**29 / 19.5e9, rel=0.05) and times["RTX 4090"] > 1.9 * times["RTX 5090"]
    assert "62% of PCIe 4's 31.5 GB/s" in rates_of(device_named("RTX 4090")).source_of_links(2)
    assert rates_of(device_named("RTX 4090")).collective("all_gather", 2**30, ranks=8) > 2 * times["RTX 4090"]


@pytest.mark.parametrize(("sizes", "published"), [((16384, 8192, 1280), 493e12), ((16384, 1024, 8192), 546.4e12)])
def test_products_of_llama_take_an_mi300x_as_long_as_published(sizes: tuple[int, int, int], published: float) -> None:
    m, n, k = sizes
    seconds = rates_of(device_named("MI300X")).of(product(m, n, k, layout="nt")).seconds
    assert 2 * m * n * k / seconds == pytest.approx(published, rel=0.1)


def test_small_operands_come_from_the_cache_and_large_ones_from_memory() -> None:
    rates = rates_of(device_named("H200 SXM"))
    add = replace(product(1, 1, 1), name="add", flops=0)
    small, large = (rates.of(replace(add, bytes=size)).seconds for size in (20 * 2**20, 2**31))
    assert 20 * 2**20 / small > 4.8e12 > 2**31 / large > 3.5e12


def test_an_operator_whose_operands_do_not_all_lie_alike_takes_as_long_as_its_addresses() -> None:
    def seconds(gpu: str, moves: int = 3, **fields: object) -> float:
        add = product(1, 1, 1, name="add", flops=0, dtype="float32", shapes=((2**13, 2**13),), bytes=moves * 2**28)
        return rates_of(device_named(gpu)).of(replace(add, **fields)).seconds  # type: ignore[arg-type]

    plain, of_row = seconds("H200 SXM"), seconds("H200 SXM", 2, layout="strided")
    strided, transposed = (seconds("H200 SXM", layout=layout) for layout in ("strided", "transposed"))
    assert plain < of_row < strided < transposed and 2.3 < transposed / plain < 3
    cast, both = (
        seconds("H200 SXM", dtype="bfloat16", bytes=10 * 2**26, layout=one) for one in ("cast", "strided_cast")
    )
    assert transposed < 2 * cast < 1.4 * both < 1.4 * transposed, "each element asks for its type"
    in_16_bits = seconds("H200 SXM", dtype="bfloat16", bytes=3 * 2**27, layout="strided")
    assert in_16_bits == pytest.approx(strided, rel=0.3), "half of the bytes need as many addresses"
    assert seconds("H100 SXM", layout="transposed") == pytest.approx(transposed), "the same chip, less bandwidth"
    assert 1.6 < seconds("A100 SXM 80GB", layout="transposed") / transposed < 1.8


@pytest.mark.parametrize(
    ("name", "like"), [("index_add_", "index_add"), ("_fused_rms_norm_backward", "native_layer_norm_backward")]
)
def test_an_operator_is_like_the_one_with_the_longest_name_that_its_own_begins_with(name: str, like: str) -> None:
    rates = rates_of(device_named("H200 SXM"))
    found = product(1, 1, 1, name=name, flops=0, bytes=2**28)
    assert rates.of(found).seconds == rates.of(replace(found, name=like)).seconds


def test_weights_in_4_bits_are_made_whole_at_half_the_bandwidth_and_adamw_moves_less_in_16_bits() -> None:
    h200 = rates_of(device_named("H200 SXM"))
    whole = product(1, 1, 1, name="lmsweep::dequantize_4bit", flops=0, bytes=172 * 2**20)
    assert 2.2e12 < whole.bytes / h200.of(whole).seconds < 2.5e12
    update = product(1, 1, 1, name="_fused_adamw_", flops=0, phase="optimizer", bytes=14 * 2**28)
    wide = replace(update, dtype="float32", bytes=28 * 2**28)
    assert 0.5 < h200.of(update).seconds / h200.of(wide).seconds < 0.7


def test_no_operator_is_faster_than_a_kernel_starts() -> None:
    for name in ("H200 SXM", "A100 SXM 80GB", "B200 SXM", "MI300X", "T4"):
        rates = rates_of(device_named(name))
        assert rates.of(product(16, 16, 16)).seconds > 1e-6
        assert rates.of(replace(product(1, 1, 1), name="relu", bytes=2)).seconds > 5e-7


def test_nodes_exchange_over_their_adapters_and_never_at_the_rate_of_nvlink() -> None:
    h100 = device_named("H100 SXM")
    eight, links = between_gpus(h100, 8), from_datasheet(450e9, "H100 SXM")
    assert eight is not None and "published" in eight.source
    size = 2**30
    alone = across("all_gather", size, local=8, nodes=1, links=eight, adapter=0.0)
    assert alone == pytest.approx(7 / 8 * size / 340e9, rel=0.15)
    far = across("all_gather", size, local=8, nodes=8, links=eight, adapter=50e9)
    assert far > size / (8 * 50e9)
    replicas = rates_of(h100, Network(gpus=8, bytes_per_second=50e9, source="given"))
    assert replicas.collective("all_reduce", size, ranks=8, stride=8) > 2 * 7 / 8 * size / 50e9
    assert across("all_reduce", size, local=8, nodes=2, links=links, adapter=50e9) > 2 * 7 / 8 * size / 450e9


def test_an_adapters_call_and_weights_in_4_bits_take_the_host_longer_than_a_kernel() -> None:
    launch, path = rates_of(device_named("H200 SXM")).launch, "layers.*.q_proj.lora_A.default"
    whole = product(64, 64, 64, name="lmsweep::dequantize_4bit", module="layers.*.q_proj.base_layer")
    assert launch(whole) == launch(replace(whole, phase="backward")) == LAUNCH_SECONDS["four_bits"]
    call = product(64, 16, 64, module=path)
    assert launch(call) == launch(replace(call, phase="backward", is_again=True)) == LAUNCH_SECONDS["adapter"]
    assert launch(replace(call, phase="backward")) == launch(product(64, 64, 64)) == LAUNCH_SECONDS["eager"]


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


@pytest.mark.parametrize("layout", ["nt", "nn", "tn"])
def test_without_a_kernel_of_its_own_a_grouped_product_is_a_loop_of_a_product_for_each_group(layout: str) -> None:
    for name, dtype in (("H100 SXM", "float32"), ("H100 SXM", "float16"), ("A100 SXM 80GB", "bfloat16")):
        rates = rates_of(device_named(name))
        each = (7168, 1024, 2048) if layout == "tn" else (2048, 7168, 1024)
        alone = 8 * rates.of(product(*each, dtype=dtype, layout=layout)).seconds
        one = grouped(8 * 2048, 8, *((1024, 7168) if layout == "tn" else (7168, 1024)), dtype, layout=layout)
        assert 0.98 * alone < rates.of(one).seconds < 1.35 * alone, (name, dtype)
        assert rates.launch(one) == 8 * LAUNCH_SECONDS["group"]


def test_one_kernel_takes_as_long_as_one_product_for_large_groups_and_longer_for_small_ones() -> None:
    rates, small = rates_of(device_named("H100 SXM")), grouped(256, 128, 64, 64, "float32")
    narrow = replace(small, dtype="bfloat16")
    assert rates.of(small).seconds >= 128 * LAUNCH_SECONDS["group"] > 4 * rates.of(narrow).seconds
    assert rates.launch(narrow) == LAUNCH_SECONDS["eager"]
    whole = rates.of(product(32768, 4096, 2048, layout="nt")).seconds
    assert whole < rates.of(grouped(32768, 8, 4096, 2048)).seconds < 1.1 * whole
    rows = rates.of(product(8192, 4096, 2048, layout="nt")).seconds
    assert rates.of(grouped(8192, 128, 4096, 2048)).seconds > 1.5 * rows, "half of each tile is empty"


@pytest.mark.parametrize(("dtype", "layout"), [("bfloat16", "nt"), ("float32", "tn")])
def test_the_load_of_the_groups_is_expected_and_its_interval_has_even_and_skewed_loads(dtype: str, layout: str) -> None:
    cost = rates_of(device_named("H100 SXM")).of(grouped(16384, 64, 1024, 2048, dtype, layout=layout))
    least, most = cost.unsure
    assert 0.5 < least <= 1 <= most < 2 and least < most
    assert "expected load" in cost.source


def test_measured_grouped_products_replace_the_formula() -> None:
    h200 = device_named("H200 SXM")
    one = grouped(16384, 128, 1536, 2048)
    point = MeasuredOperator(device_name="NVIDIA H200", kind="product", name="_grouped_mm", form="forward",
                             shapes=one.shapes, dtype="bfloat16", bytes=one.bytes, flops=one.flops, is_causal=False,
                             is_cold=True, seconds=4e-4)  # fmt: skip
    rates = rates_with(h200, MeasuredRates(operators=(point,) * 9))
    assert rates.of(one).seconds == pytest.approx(4e-4, rel=0.1)
    alone = product(16384, 1536, 2048, layout="nt")
    assert rates.of(alone).seconds < 3e-4, "a product of one group was not measured so"


def test_the_source_of_a_grouped_product_is_the_device_that_measured_grouped_ones_or_else_products() -> None:
    rates = rates_of(device_named("H100 SXM"))
    alone, together = product(16384, 1536, 2048, layout="nt"), grouped(16384, 128, 1536, 2048)
    assert rates.of(alone).source == "products measured on H200 SXM, the same chip"
    assert rates.of(together).source.startswith("products measured on H100 SXM, with an expected load")
    for dtype in ("float16", "tf32"):  # which loop over the groups
        assert rates.of(replace(together, dtype=dtype)).source.startswith("products measured on H200 SXM, the same")


@pytest.mark.parametrize(("rows", "seconds"), [(32, 1.79e-3), (4096, 0.12e-3)])
def test_rows_that_are_added_to_few_rows_wait_for_each_other(rows: int, seconds: float) -> None:
    """Gradients of gpt-oss: those of 32 biases were profiled on an H200; those of 4096 tokens cost what bytes do."""
    shapes = ((rows, 1440), (16384,), (16384, 1440))
    added = product(1, 1, 1, name="index_put_", shapes=shapes, bytes=6 * 16384 * 1440, flops=0, phase="backward")
    cost = rates_of(device_named("H200 SXM")).of(added)
    assert cost.seconds == pytest.approx(seconds, rel=0.25)
    least, most = cost.unsure
    assert (least, most) == (1.0, 1.0) if rows == 4096 else least < 0.3 and most == 2.0, "loads may be even or skewed"


def test_an_operator_measured_in_the_cache_alone_has_a_time_beyond_it_too() -> None:
    h200 = device_named("H200 SXM")
    points = [one for one in measured_operators() if one.device_name == "NVIDIA H200" and one.kind == "bytes"]
    rates = rates_with(h200, MeasuredRates(operators=tuple(one for one in points if not one.is_cold)))
    large = replace(product(1, 1, 1), name="mul", shapes=((2**30,),), bytes=3 * 2**31)
    assert rates.of(large).seconds > rates.of(replace(large, bytes=3 * 2**21)).seconds > 0
