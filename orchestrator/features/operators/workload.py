"""The record of the workload `operators`; only the process of a trial imports its module, which needs torch."""

from lmsweep.trials.spec.workloads import Workload

records = (
    Workload(
        name="operators",
        module=f"{__package__}.operator_times",
        needs="width",
        autocasts=False,
        iterations=0,
        least_seconds=60.0,  # of a trial of the sweep
        tables=("operator_times",),
    ),
)
