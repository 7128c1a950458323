"""A trial, run in this process: its workloads in turn, on one workbench."""

import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module

import torch

from trials.attempt import Attempt
from trials.fingerprint import fingerprint, present_devices
from trials.record import Fingerprint, Measurement, Record
from trials.spec import Status, Trial, UnsupportedError
from trials.workbench import Workbench


def run_workload(bench: Workbench, workload: str) -> Iterator[Measurement]:
    """What the workload measures, then where its time went."""
    before = dict(bench.seconds)
    yield from import_module(f"trials.workloads.{workload}").measure(bench)
    for what, seconds in bench.seconds.items():
        yield Measurement(phase="trial", metric=f"{what}_time", unit="s", samples=(seconds - before[what],))


def run_trial(
    attempt: Attempt,
    fallback: Fingerprint,
    emit: Callable[[list[Record]], object],
    *,
    requested_at: float,
    keep: bool = False,
) -> bool:
    """Emits the rows of each workload in turn; a failure is a row too, and leaves the workloads after it to another
    process. Returns whether this process is as good as new and may run another trial, which takes `keep`.

    This is the one place that catches what a trial raises. `fallback` describes the environment in case the trial
    fails before it can look for itself.
    """
    met = fallback
    bench = None
    for workload in attempt.trial.workloads:
        try:
            bench = bench or Workbench(attempt.trial.config, requested_at=requested_at)
            met = bench.fingerprint(workload)
            rows = attempt.records(workload, list(run_workload(bench, workload)), met)
        except Exception as error:  # noqa: BLE001 - a trial may fail in any way, and each way is a row
            emit([attempt.failure(workload, status_of(error), describe(error), met)])
            return False
        emit(rows)
    return keep and bench is not None and bench.clear()


def run_here(trial: Trial) -> list[Record]:
    """The rows of a trial run in this very process; after a failure the workloads that follow are not run."""
    rows: list[Record] = []
    expected = fingerprint("cpu" if trial.config.device_type not in present_devices() else trial.config.device_type)
    run_trial(Attempt.begin(trial), expected, rows.extend, requested_at=time.monotonic())
    return rows


def status_of(error: Exception) -> Status:
    """The status word for what a trial raised."""
    if isinstance(error, UnsupportedError):
        return Status.UNSUPPORTED
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return Status.OOM
    # Allocators other than CUDA's caching one have no exception type of their own.
    out_of_memory = (
        "can't allocate memory",
        "out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_ALLOC_FAILED",
    )
    if isinstance(error, RuntimeError) and any(text in str(error) for text in out_of_memory):
        return Status.OOM
    return Status.ERROR


def describe(error: Exception) -> str:
    """One line for an expected failure, the traceback for any other."""
    if status_of(error) == Status.ERROR:
        return "".join(traceback.format_exception(error))[-8000:]
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
