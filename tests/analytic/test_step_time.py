"""The time of a step from its operators: of device or host, with what is exposed."""

import pytest

from lmsweep.orchestrator.features.explain.step_text import explained
from lmsweep.trials.analytic.rates.operators import Operator
from lmsweep.trials.analytic.rates.step_time import WAIT_PER_LAUNCH, Cost, in_tf32, step_time


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
    assert (slow.seconds, slow.is_host_bound) == (27, True)
    assert slow.at(2.0) == pytest.approx(36 + WAIT_PER_LAUNCH * 27) and slow.at(1.0, 1) == 54, (
        "a slow host takes twice as long"
    )
    assert step_time((PRODUCT, NORM, UPDATE, GATHER), Rates(0)).computing == 18, "of one process"


def test_the_update_follows_a_host_that_decides_and_is_hidden_by_its_own_launches_alone() -> None:
    backward, long = operator("mm", 1, count=10), operator("_fused_adamw_", 7, phase="optimizer", module="optimizer")
    time = step_time((backward, long), Rates(3.0))
    assert time.seconds == 33 + 7 - 3, "ten launches, then the update, which begins when the host gets there"
    many = operator("mul", 1, count=7, phase="optimizer", module="optimizer")
    assert step_time((backward, many), Rates(3.0)).seconds == 51, "seven launches, during which the update runs"


def test_a_step_is_explained_by_part_and_class_with_the_source_of_each() -> None:
    time = step_time((PRODUCT, NORM, UPDATE), Rates(0))
    assert {name: dict(by_class) for name, by_class in explained(time).items()} == {
        "layers.*": {"products": 12},
        "norm": {"bytes": 4},
        "optimizer": {"optimizer": 2},
    }
    assert time.sources == {"products": "measured mm", "bytes": "measured mul", "optimizer": "measured _fused_adamw_"}


def test_only_products_of_float32_become_tf32() -> None:
    narrow = operator("mm", 1, dtype="bfloat16")
    assert [one.dtype for one in in_tf32((PRODUCT, narrow, NORM))] == ["tf32", "bfloat16", "float32"]
