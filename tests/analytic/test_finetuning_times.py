"""Times of fine-tuning steps that were predicted before they ran on three machines with H200.

The sets and what was measured: docs/lab/2026-11-25-finetuning.md.
"""

import json
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Any, Literal, NamedTuple

import pytest

from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.rates.intervals import Spread, Sure, spread_for
from lmsweep.trials.analytic.rates.rate_set import LAUNCHES, MEASURED_HOSTS, rates_of
from lmsweep.trials.analytic.rates.step_time import StepTime
from tests.support.command import ROOT

SETS = json.loads((ROOT / "tests" / "support" / "recordings" / "finetuning-steps.json").read_text())


class Step(NamedTuple):
    seconds: float
    unknown: Sure
    """As predicted before it ran, on a host that nobody had measured."""
    known: Sure
    """With the launches of that host."""
    device_off: float | None
    """None where the prediction includes what the host does."""
    peak_off: float


@dataclass(frozen=True)
class Recorded:
    """The parts of a StepTime, as recorded."""

    computing: float
    launching: float
    unsure: tuple[float, float]
    """What assumptions about operators change at least and at most, in seconds."""

    def at(self, factor: float, end: Literal[0, 1] | None = None) -> float:
        more = 0.0 if end is None else self.unsure[end]
        return StepTime(
            parts=(), computing=self.computing + more, launching=self.launching, hosts=MEASURED_HOSTS, host_source=""
        ).at(factor, end)


def steps_of(name: str) -> list[Step]:
    # As `plan` takes it from a store.
    host = min(geometric_mean(one[name] / usual for name, usual in LAUNCHES.items()) for one in SETS[name]["launches"])
    return [step_of(one["cell"][2], one["predicted"], one["measured"], host) for one in SETS[name]["steps"]]


def step_of(settings: list[str], predicted: dict[str, Any], measured: dict[str, Any], host: float) -> Step:
    computing, launching, unsure = predicted["time"]
    is_offloaded = any("offload" in one for one in settings)
    return Step(
        seconds=measured["seconds"],
        unknown=Sure(*predicted["seconds"]),
        known=spread().of(Recorded(computing, host * launching, unsure)),
        device_off=None if is_offloaded else spread().factor * computing / measured["device_seconds"] - 1,
        peak_off=predicted["peak"] / measured["peak"] - 1,
    )


def spread() -> Spread:
    device = find_device("NVIDIA H200")
    assert device is not None
    return spread_for(device.name, rates_of(device).level())


@pytest.mark.parametrize("host", ["unknown", "known"])
@pytest.mark.parametrize(("names", "count"), [([*SETS], 77), (["third"], 26)], ids=["all", "unseen"])
def test_intervals_hold_in_nine_of_ten_steps_that_ran_after_they_were_predicted(
    names: list[str], count: int, host: str
) -> None:
    steps = [step for name in names for step in steps_of(name)]
    predicted: list[Sure] = [getattr(step, host) for step in steps]
    held = sum(sure.low <= step.seconds <= sure.high for step, sure in zip(steps, predicted, strict=True))
    assert len(steps) == count and held >= 0.9 * count
    assert max(abs(step.peak_off) for step in steps) < 0.005


def test_the_device_takes_as_long_as_predicted_in_steps_that_no_rule_was_fitted_to() -> None:
    off = [abs(step.device_off) for step in steps_of("third") if step.device_off is not None]
    assert len(off) == 24 and median(off) < 0.04 and max(off) < 0.12
