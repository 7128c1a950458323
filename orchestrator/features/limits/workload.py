"""The records of the workloads `ceiling` and `energy`, and the combinations that no machine runs in `ceiling`."""

from collections.abc import Iterator

from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.rules.step_rules import FLOAT8_MULTIPLE
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS
from lmsweep.trials.spec.workloads import STEPS, Workload


def of_ceiling(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.precision == "fp8_rowwise_gw_hp":
        yield "the product of fp8_rowwise_gw_hp is that of fp8_rowwise, or bfloat16's for weights"
    if c.precision in FLOAT8_PRECISIONS and c.d_model % FLOAT8_MULTIPLE:
        yield f"float8 needs dimensions divisible by {FLOAT8_MULTIPLE}, and d_model is {c.d_model}"


records = (
    Workload(
        name="ceiling",
        module=f"{__package__}.ceiling",
        needs="width",
        protocol=STEPS,
        autocasts=False,
        rules=(of_ceiling,),
    ),
    Workload(
        name="energy",
        module=f"{__package__}.energy",
        protocol=("mode",),
        holds="model",
        may_follow=True,
        accumulates=True,
        takes_own_step=True,
        iterations=10,  # for the estimate alone: a trial has 4, then as many as fit in ENERGY_SECONDS
        least_seconds=2.0,  # as ENERGY_SECONDS of energy.py
    ),
)
