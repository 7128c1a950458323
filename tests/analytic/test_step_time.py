"""The time of a step from its operators: of device or host, with what is exposed."""

import json
from itertools import permutations
from statistics import geometric_mean, median

import pytest

from lmsweep.trials.analytic.datasheets import device_named
from lmsweep.trials.analytic.model_operators.model_parts import model_parts, seconds_of
from lmsweep.trials.analytic.rates.intervals import spread_for
from lmsweep.trials.analytic.rates.operators import Operator
from lmsweep.trials.analytic.rates.rate_set import LAUNCHES, MEASURED_HOSTS, rates_of
from lmsweep.trials.analytic.rates.step_time import (
    NO_ASSUMPTION,
    WAIT_PER_LAUNCH,
    Cost,
    StepPart,
    StepTime,
    in_tf32,
    step_time,
)
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES
from tests.support.command import ROOT
from tests.support.measured_steps import STEPS, measured_steps, operators_of


class Rates:
    """A second per byte on the device; `host` seconds for a launch."""

    def __init__(self, host: float) -> None:
        self.host = host

    def of(self, operator: Operator) -> Cost:
        return Cost(float(operator.bytes), f"measured {operator.name}")

    def launch(self, operator: Operator) -> float:
        return self.host

    hosts = 0.5, 2.0
    host_source = "measured"


def operator(name: str, seconds: int, **fields: object) -> Operator:
    more = {"shapes": (), "dtype": "float32", "flops": 0, "phase": "forward", "module": "layers.*"} | fields
    return Operator(name=name, bytes=seconds, **more)  # type: ignore[arg-type]


PRODUCT = operator("mm", 3, count=4)
NORM = operator("mul", 1, count=4, module="norm")
UPDATE = operator("_fused_adamw_", 2, phase="optimizer", module="optimizer")
GATHER = operator("all_gather", 5, stream="communication", ranks=2)


def test_a_step_takes_as_long_as_the_slower_of_device_and_host() -> None:
    fast, slow = (step_time((PRODUCT, NORM, UPDATE), Rates(host)) for host in (0.1, 3.0))
    assert (fast.seconds, fast.computing, fast.is_host_bound) == (pytest.approx(18 + WAIT_PER_LAUNCH * 0.9), 18, False)
    assert fast.launching == pytest.approx(0.9)
    assert (slow.seconds, slow.is_host_bound) == (27, True), "its launches hide the update"
    assert slow.at(2.0) == pytest.approx(36 + WAIT_PER_LAUNCH * 27) and slow.at(1.0, 1) == 54, "a slow host"
    assert step_time((PRODUCT, NORM, UPDATE, GATHER), Rates(0)).computing == 18, "of one process"


def test_the_host_decides_if_a_step_takes_what_it_launches_and_the_update_after_that() -> None:
    update = operator("_fused_adamw_", 29, phase="optimizer", module="optimizer")
    late = step_time((operator("mm", 8, count=9), update), Rates(10))
    assert (late.launching, late.computing, late.seconds, late.is_host_bound) == (100, 101, 100 + 29 - 10, True)
    waiting = step_time((operator("mm", 19),), Rates(20))
    assert (waiting.seconds, waiting.is_host_bound) == (pytest.approx(19 + WAIT_PER_LAUNCH * 20), False)


def test_what_is_assumed_of_a_class_is_named_beside_what_was_measured_whatever_the_order() -> None:
    def sources(*given: tuple[float, str, bool]) -> str:
        parts = [
            StepPart(operator=PRODUCT, kind="products", seconds=seconds, launching=0.0, source=source,
                     unsure=(0.5, 2.0) if is_assumed else NO_ASSUMPTION)
            for seconds, source, is_assumed in given
        ]  # fmt: skip
        nothing = {"computing": 0, "launching": 0, "hosts": (1, 1), "host_source": ""}
        found = {StepTime(parts=order, **nothing).sources["products"] for order in permutations(parts)}
        (words,) = found
        return words

    short, long, measured = (1.0, "one guess", True), (2.0, "another", True), (1.0, "a table", False)
    assert sources(short, long) == "another (33% of their time: one guess)"
    assert sources(short, long, measured) == "a table (25% of their time: one guess) (50% of their time: another)"


def test_only_products_of_float32_become_tf32() -> None:
    narrow = operator("mm", 1, dtype="bfloat16")
    assert [one.dtype for one in in_tf32((PRODUCT, narrow, NORM))] == ["tf32", "bfloat16", "float32"]


H100 = rates_of(device_named("H100 SXM"))


def large(**fields: object) -> TrialConfig:
    size = {name: getattr(SIZES["large"], name) for name in ("d_model", "d_ff", "num_layers", "num_heads")}
    values = {"model": "large", "context_length": 1024, "batch_size": 4, "device": "cuda"} | size | fields
    return TrialConfig(**values)  # type: ignore[arg-type]


def time_of(config: TrialConfig) -> StepTime:
    return step_time(operators_of(model_parts(config)), H100)


@pytest.mark.parametrize("name", STEPS)
def test_nearly_all_measured_steps_are_within_a_fifth_of_what_is_expected(name: str) -> None:
    off = [abs(expected / took - 1) for expected, took in measured_steps(name)]
    assert sum(one <= 0.2 for one in off) >= 0.9 * len(off) > 0
    assert sorted(off)[len(off) // 2] <= 0.035


def test_steps_in_float32_take_as_long_as_products_of_other_models_let_expect() -> None:
    # The rates are from profiled steps of `small` and `large` at 256 tokens.
    models = ("medium", "xl", "2.7b")
    steps = measured_steps("h100-cs336-2025", precision=("fp32",), model=models, compile=("none",))
    off = sorted(abs(expected / took - 1) for expected, took in steps if took > 0.03)
    assert len(off) >= 20 and off[len(off) // 2] <= 0.025 and off[-1] <= 0.08


@pytest.mark.slow
def test_the_mask_of_packed_documents_costs_what_was_measured() -> None:
    # The share that a mask costs was measured on an H200, these steps on an H100.
    for expected, took in measured_steps("h100-packing", attention=("sdpa",), lengths=("1024",)):
        assert expected == pytest.approx(took, rel=0.1)
    packed = large(precision="bf16", attention="sdpa", lengths="256", batching="packed")
    names = {one.name for one in step_operators(packed)}
    assert names > {"sdpa_cudnn_masked", "sdpa_cudnn_masked_backward"}, "whatever the number of sequences"


EXPERTS = {"num_experts": 64, "active_experts": 8, "d_ff": 768}


WAYS: list[dict[str, object]] = [
    {"precision": "bf16_pure", "attention": "sdpa", "compile": "block"},
    {"precision": "bf16", "attention": "sdpa_flash", "compile": "model", "loss": "cross_entropy"},
    {"precision": "bf16", "attention": "sdpa_math", "checkpointing": "block"},
    {"precision": "bf16", "attention": "flex", "lengths": "256", "batching": "packed", "loss": "compiled"},
    {"precision": "fp8_tensorwise", "attention": "sdpa"},
    {"precision": "fp8_rowwise", "attention": "sdpa", "compile": "block"},
    {"precision": "bf16", "num_kv_heads": 4, "qk_norm": True, "feed_forward": "gelu", "attention": "sdpa"},
    {"precision": "bf16_pure", **EXPERTS, "compile": "block"},
    {"precision": "bf16", "accumulate": 2, "optimizer": "adamw_foreach"},
    {"precision": "bf16", **EXPERTS, "attention": "sdpa"},
]


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "bf16"},
        {"precision": "bf16", "attention": "sdpa", "lengths": "256", "batching": "packed", "compile": "block"},
        *(pytest.param(one, marks=pytest.mark.slow) for one in WAYS),
    ],
    ids=str,
)
def test_the_operators_in_closed_form_take_as_long_as_those_of_a_run(fields: dict[str, object]) -> None:
    config = large(**fields)
    recorded, closed = step_time(step_operators(config), H100), time_of(config)
    assert closed.computing == pytest.approx(recorded.computing, rel=0.07)
    assert closed.launching == pytest.approx(recorded.launching, rel=0.15)


def test_the_parts_of_a_step_take_as_long_as_its_operators() -> None:
    for config in (large(precision="bf16"), large(context_length=64, batch_size=1), large(checkpointing="block")):
        for factor in (1.0, 1.3):
            whole = time_of(config).at(factor)
            assert seconds_of(model_parts(config), H100, factor) == pytest.approx(whole, rel=1e-9)


RECORDED = json.loads((ROOT / "tests" / "support" / "recordings" / "finetuning-steps.json").read_text())
"""Steps on an H200 that ran after they were predicted, with the launches of its host."""
H200 = spread_for("H200 SXM", "measured")


@pytest.mark.parametrize(("names", "count"), [([*RECORDED], 77), (["third"], 26)], ids=["all", "unseen"])
def test_intervals_hold_in_nine_of_ten_steps_that_ran_after_they_were_predicted(names: list[str], count: int) -> None:
    held = []
    for name in names:  # of the launches the fastest count, as where `plan` takes them from a store
        launches = RECORDED[name]["launches"]
        host = min(geometric_mean(one[kind] / usual for kind, usual in LAUNCHES.items()) for one in launches)
        for one in RECORDED[name]["steps"]:
            computing, launching, (less, more) = one["predicted"]["time"]
            unsure = (1 + less, 1 + more)
            part = StepPart(operator=PRODUCT, kind="", seconds=1.0, launching=0.0, source="", unsure=unsure)
            times = {"computing": computing, "launching": host * launching, "hosts": MEASURED_HOSTS}
            sure = H200.of(StepTime(parts=(part,), host_source="", **times))
            held.append(sure.low <= one["measured"]["seconds"] <= sure.high)
    assert len(held) == count and sum(held) >= 0.9 * count


def test_the_device_takes_as_long_as_predicted_in_steps_that_no_rule_was_fitted_to() -> None:
    steps = [one for one in RECORDED["third"]["steps"] if not any("offload" in way for way in one["cell"][2])]
    device = [(one["predicted"]["time"][0], one["measured"]["device_seconds"]) for one in steps]
    off = [abs(H200.factor * predicted / measured - 1) for predicted, measured in device]
    assert len(off) == 24 and median(off) < 0.04 and max(off) < 0.12
