"""The record of the workload `precision`."""

from lmsweep.trials.spec.workloads import Workload

records = (
    Workload(
        name="precision",
        module=f"{__package__}.number_formats",
        iterations=6,  # one or two in the trial's precision; the one in float64 takes as long as several
        tables=("dtypes",),
    ),
)
