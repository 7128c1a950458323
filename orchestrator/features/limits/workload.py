"""The records of the workloads `ceiling` and `energy`."""

from lmsweep.trials.spec.workloads import STEPS, Workload

records = (
    Workload(name="ceiling", module=f"{__package__}.ceiling", needs="width", protocol=STEPS, autocasts=False),
    Workload(
        name="energy",
        module=f"{__package__}.energy",
        protocol=("mode",),
        holds="model",
        may_follow=True,
        accumulates=True,
        takes_own_step=True,
        iterations=10,
        least_seconds=2.0,
    ),
)
