"""Whether the user's wrapper or sharded optimizer works: in ranks with a tiny model, on the CPU."""

import inspect
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from lmsweep.orchestrator.features.check.finding import Finding, Question
from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.bench.run_trial import as_unsupported, describe, status_of
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.code.importing import code_in_use, load
from lmsweep.trials.distributed.ranks.process_group import leave
from lmsweep.trials.distributed.ranks.ranks import Emit, Rank, RankDiedError, has_failed, parts_of, run_ranks
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag, Status, error_line
from lmsweep.trials.results.record import Attempt, Record, records_of
from lmsweep.trials.results.roles import PARTITION, arguments_for
from lmsweep.trials.spec.config import CONFIG_FIELDS, Trial, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import FINISH, is_reference
from lmsweep.trials.spec.rules.combination_rules import why_not
from lmsweep.trials.spec.workloads import workloads

MOST_RANKS = 2
"""Ranks that are tried at most: two show whether ranks work together."""

_OF_RANKS = (
    *(name for name in PARTITION if name not in ("reshard", "shards")),  # they may need more ranks than MOST_RANKS
    *("accumulate", "mode", "zero_grad", "optimizer", *arguments_for("optimizer")),
)
"""Fields that decide how ranks work together."""

_MISUSED = ("RequestError: ", "CodeError: ")
"""What a traceback ends with if the code cannot be called as it must be, on any device."""


def check_in_ranks(question: Question) -> Iterator[Finding]:
    """Yield the findings about a wrapper or a sharded optimizer, by the workload that measures it."""
    if "ddp" not in workloads():
        yield Finding(what="ranks", found="the workload ddp is not here", kind="cannot")
        return
    checks = import_module(workloads()["ddp"].module).checks
    config = _tiny(question.config)
    attempt = Attempt.begin(Trial(config=config, workloads=("ddp",), sweep="check", code=code_in_use()))
    (part,) = parts_of(config)
    body = partial(_run_rank, attempt=attempt, met=fingerprint("cpu"), checks=checks)
    try:
        rows = run_ranks(part, body, cores=tuple(usable_cores()), start="fork")
    except RankDiedError as error:
        yield Finding(what="ranks", found=str(error), kind="wrong")
        return
    records = records_of(rows)
    if has_failed(rows):  # then there is one, of the rank that failed
        (failure,) = records
        yield _failure(failure, question)
        return
    yield Finding(what="ranks", found=f"{config.world_size}, with a tiny model")
    yield from (_error(row) for row in records)
    own = load(question.config.ddp) if question.field == "ddp" else None
    if inspect.isclass(own):
        words = "is called after backward" if hasattr(own, FINISH) else "it has none: backward must wait for the ranks"
        yield Finding(what=FINISH, found=words)


def _run_rank(
    rank: Rank,
    emit: Emit,
    *,
    attempt: Attempt,
    met: Fingerprint,
    checks: Callable[[Workbench], Iterator[Measurement]],
) -> bool:
    """Run the workload's checks in one rank, and emit the rows of the first rank. Return whether it succeeded."""
    config, code = attempt.trial.config, attempt.trial.code
    try:
        if reason := why_not(config, "ddp"):
            raise UnsupportedError(reason)
        bench = Workbench(config, requested_at=time.monotonic(), rank=rank, code=code)
        measurements = list(checks(bench))
        if rank.index == 0:
            emit(attempt.rows("ddp", measurements, met))
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises is the finding
        problem = as_unsupported(error, config, code)
        emit([attempt.failure("ddp", status_of(problem), describe(problem, code), met)])
        return False
    leave()
    return True


def _tiny(config: TrialConfig) -> TrialConfig:
    """Return the configuration of a step that takes an instant, and whose ranks work together as the trial's do."""
    given: dict[str, Any] = {name: getattr(config, name) for name in _OF_RANKS}
    if not is_reference(config.optimizer):
        given["optimizer"] = CONFIG_FIELDS["optimizer"].default  # another need not run on a CPU
    return TrialConfig(
        **given,
        d_model=32,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        vocab_size=50,
        context_length=8,
        batch_size=2 * config.accumulate,  # two sequences in each of the backward passes that a step accumulates
        precision="bf16" if config.gather == "bf16" else "fp32",
        world_size=min(config.world_size, MOST_RANKS),
        warmup_steps=0,
        measure_steps=1,
    )


def _failure(row: Record, question: Question) -> Finding:
    """Return the finding about ranks that failed: `wrong` if the trial's own ranks would fail as well."""
    words = error_line(row.error or "")
    if row.status == Status.UNSUPPORTED or any(misuse in (row.error or "") for misuse in _MISUSED):
        return Finding(what="ranks", found=words, kind="wrong")
    if question.config.model_code:  # the wrapper may know that model only
        return Finding(what="ranks", found=f"{words}, with lmsweep's tiny model in place of yours", kind="cannot")
    on_cpu = question.config.device_type == "cpu"  # else it may need the GPU that the trial has
    return Finding(what="ranks", found=words, kind="wrong" if on_cpu else "cannot")


def _error(row: Record) -> Finding:
    of = "gradients" if row.phase == "gradients" else "weights"
    what = f"relative error of {of}"
    if row.samples is None:
        return Finding(what=what, found=str(row.reason), kind="cannot")
    error = f"{row.samples[0]:.1e}"
    if Flag.DISAGREES not in row.flags:
        return Finding(what=what, found=error)
    words = f"error {error} of the {of} against one process on the whole batch; are they averaged over all ranks?"
    return Finding(what=what, found=words, kind="wrong")
