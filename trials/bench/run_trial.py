"""Runs a trial in this process: its workloads in turn, each turned into rows."""

import signal
import traceback
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module

from lmsweep.trials.bench.own_workload import measure_outside, measure_own
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.code.traceback_text import CodeError, needs_gpu, said_by, user_line, what_it_says
from lmsweep.trials.distributed.ranks.process_group import leave
from lmsweep.trials.distributed.ranks.ranks import (
    Emit,
    Part,
    Rank,
    RankDiedError,
    Start,
    has_failed,
    parts_of,
    run_ranks,
)
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.gpu.accelerator import capabilities
from lmsweep.trials.machine.out_of_memory import ran_out_of_memory
from lmsweep.trials.machine.processes import exits_raise
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.measurement import Measurement, Yielded
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Attempt, Row
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import Code, is_reference
from lmsweep.trials.spec.rules.combination_rules import why_not
from lmsweep.trials.spec.rules.device_rules import why_not_on
from lmsweep.trials.spec.workloads import our_workloads, workload_named


def run_workload(bench: Workbench, workload: str) -> Iterator[Yielded]:
    """Yield what the workload measures, then the time that each part of the work took."""
    record = workload_named(workload)
    if reason := why_not_on(bench.config, workload, capabilities(bench.config.device_type)):
        raise UnsupportedError(reason)
    before = dict(bench.seconds)
    if is_reference(workload):
        yield from measure_own(workload, bench)
    elif workload in our_workloads():
        yield from import_module(record.module).measure(bench)
    else:
        yield from measure_outside(record, bench)
    if bench.config.memory_budget is not None:
        yield Measurement(phase="step", metric="saved_share", unit="1", samples=(bench.saved_share,))
    for what, seconds in bench.seconds.items():
        yield Measurement(phase="trial", metric=f"{what}_time", unit="s", samples=(seconds - before.get(what, 0.0),))


def run_trial(
    attempt: Attempt,
    fallback: Fingerprint,
    emit: Emit,
    *,
    requested_at: float,
    keep: bool = False,
    part: Part | None = None,
    rank: Rank | None = None,
    start: Start = "fork",
) -> bool:
    """Run the workloads of a trial and emit the rows of each. Return whether this process may run another trial.

    A failure is a row, too, and the workloads after it are left to another process; nothing else catches what a trial
    raises. fallback: the environment of a trial that fails before it knows its own. rank: set in the ranks, where
    this is called again; part: the ranks on this machine. keep: clean this process up for another trial.
    """
    environment = fallback
    bench = None
    for workload in attempt.trial.workloads:
        try:
            if reason := why_not(attempt.trial.config, workload):
                raise UnsupportedError(reason)
            if workload_named(workload).has_ranks and rank is None:
                if bench and start == "fork":
                    return False  # a process that has touched the device must not fork; a new one runs the rest
                rows = _rows_of_ranks(attempt, workload, fallback, part, requested_at=requested_at, start=start)
            else:
                trial = attempt.trial
                bench = bench or Workbench(
                    trial.config,
                    requested_at=requested_at,
                    rank=rank,
                    code=trial.code,
                    references=trial.references,
                    flops=trial.flops,
                    keeps_traces=trial.keeps_traces,
                )
                environment = bench.fingerprint(workload)
                with exits_raise():
                    found = list(run_workload(bench, workload))
                    rows = attempt.rows(workload, found, replace(environment, repeated_layers=bench.repeated_layers))
        except BaseException as raised:  # a trial may fail in any way, and each is a row
            if isinstance(raised, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
                raise  # Ctrl-C; processes of trials ignore it, so there it is the user's code that raises it
            error = as_unsupported(raised, attempt.trial.config, attempt.trial.code)
            emit([attempt.failure(workload, status_of(error), describe(error, attempt.trial.code), environment)])
            return False
        emit(rows)
        if has_failed(rows):
            return False
    return keep and bench is not None and bench.clear()


def _rows_of_ranks(
    attempt: Attempt, workload: str, fallback: Fingerprint, part: Part | None, *, requested_at: float, start: Start
) -> list[Row]:
    parts = [part] if part else parts_of(attempt.trial.config)
    if len(parts) > 1:
        raise UnsupportedError(f"nodes is {len(parts)}, but this is one machine; lmsweep run --address joins a cluster")
    alone = replace(attempt, trial=replace(attempt.trial, workloads=(workload,)))
    body = partial(_run_rank, attempt=alone, fallback=fallback, requested_at=requested_at)
    return run_ranks(parts[0], body, cores=tuple(usable_cores()), start=start)


def _run_rank(rank: Rank, emit: Emit, *, attempt: Attempt, fallback: Fingerprint, requested_at: float) -> bool:
    """Run the trial in one rank. Rank 0 emits its rows; any other emits only a failure."""
    ended_well = True

    def pass_on(rows: list[Row]) -> None:
        nonlocal ended_well
        ended_well = not has_failed(rows)
        if rank.index == 0 or not ended_well:
            emit(rows)

    run_trial(attempt, fallback, pass_on, requested_at=requested_at, rank=rank)
    if ended_well:  # else its connections stay open, as `_main` of ranks.py says
        leave()
    return ended_well


def status_of(error: BaseException) -> Status:
    if isinstance(error, UnsupportedError):
        return Status.UNSUPPORTED
    if isinstance(error, RankDiedError):
        return Status.LOST
    if ran_out_of_memory(error):
        return Status.OOM
    return Status.ERROR


def as_unsupported(error: BaseException, config: TrialConfig, code: Code | None) -> BaseException:
    """Return what the user's code raised, as UnsupportedError if it is a kernel that a CPU cannot run."""
    if code is None or config.device_type not in ("cpu", "mps") or not needs_gpu(error):
        return error
    line = str(error) if isinstance(error, CodeError) else user_line(error, code) or said_by(error)
    what = "Triton" if any(word in line.lower() for word in ("triton", "active drivers")) else "it"
    return UnsupportedError(f"{line.partition(';')[0].rstrip('.')}; {what} runs on a GPU; use device: cuda")


def describe(error: BaseException, code: Code | None = None) -> str:
    """Return a row's error: one line if the failure is expected, else the traceback, the user's line first."""
    status, said = status_of(error), what_it_says(error)
    if status == Status.ERROR:
        says_where = isinstance(error, RequestError | CodeError)
        own = user_line(error, code) if code and not says_where else None
        first = [said] if says_where else [own] if own else []
        return "\n".join([*first, "".join(traceback.format_exception(error))])
    if status == Status.OOM and said:
        return said
    return said.splitlines()[0] if said else type(error).__name__
