"""Where NVIDIA's nsys is, and whether trials can use it. Imports no torch."""

import shutil
from collections.abc import Sequence

from lmsweep.trials.spec.config import RequestError, Trial


def find_nsys() -> str:
    """Path of nsys. Raises RequestError if it is not installed."""
    found = shutil.which("nsys")
    if found is None:
        raise RequestError(
            "nsys is not installed here (no such command on the PATH); install NVIDIA Nsight Systems, or omit --nsys "
            "(or profiler: nsys): PyTorch's own profiler produces the same tables"
        )
    return found


def check_nsys(trials: Sequence[Trial], *, here: bool) -> None:
    """Raise RequestError if no trial has the workload profile, or if trials run `here` and nsys is not installed."""
    if not any("profile" in trial.workloads for trial in trials):
        raise RequestError("--nsys: no trial has the workload profile; try: lmsweep run profile --nsys")
    if here:
        find_nsys()
