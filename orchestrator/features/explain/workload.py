"""The record of the workload `profile`."""

from lmsweep.trials.spec.workloads import Workload

records = (
    Workload(
        name="profile",
        module=f"{__package__}.profiled_steps",
        protocol=("mode", "profiler"),
        holds="model",
        may_follow=True,
        preloads=True,
        iterations=7,  # 1 that compiles, 3 to warm up, and 3 that are profiled
        least_seconds=1.0,  # however short the iterations are
        tables=("kernels", "operators"),
    ),
)
