"""The record of the workload `precision`."""

from lmsweep.trials.spec.workloads import Workload

records = (Workload(name="precision", module=f"{__package__}.number_formats", iterations=6, tables=("dtypes",)),)
