"""Answers questions that import the user's own code, each batch in a process of its own with a time limit.

The code may hang, exit, crash or print; none of these may disturb the plan.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

import torch

from lmsweep.trials.code.importing import use_code
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.processes import die_with_parent
from lmsweep.trials.prediction.process_pool import Batch
from lmsweep.trials.spec.reference import Code

LIMIT_SECONDS = 90.0
"""Time that one batch may take, imports included; an assumption."""

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class _Running:
    """A batch that is being answered."""

    batch: Batch
    process: BaseProcess
    answers: Connection
    until: float
    """When it is ended, by time.monotonic()."""


def answer_with_code(
    answer: Callable[[Batch], list[Found]],
    batches: Sequence[Batch],
    code: Code,
    failed: Callable[[str], Found],
    *,
    limit: float = LIMIT_SECONDS,
) -> Iterator[tuple[int, Found]]:
    """Yield the answers to all batches as they come, each with its index, using one process per core. `failed` makes
    the answer to each question of a batch whose process ends without one, from the reason."""
    context = get_context("fork")
    waiting, running = list(batches), list[_Running]()
    while waiting or running:
        while waiting and len(running) < len(usable_cores()):
            ours, theirs = context.Pipe(duplex=False)
            batch = waiting.pop(0)
            process = context.Process(target=_answer, args=(answer, batch, code, theirs, os.getpid()), daemon=True)
            process.start()
            theirs.close()
            running.append(_Running(batch=batch, process=process, answers=ours, until=time.monotonic() + limit))
        first = min(one.until for one in running)
        ready = wait([one.answers for one in running], timeout=max(first - time.monotonic(), 0.0))
        for one in [one for one in running if one.answers in ready or time.monotonic() >= one.until]:
            running.remove(one)
            yield from _collect(one, failed, timed_out=one.answers not in ready, limit=limit)


def _collect(
    one: _Running, failed: Callable[[str], Found], *, timed_out: bool, limit: float
) -> Iterator[tuple[int, Found]]:
    """Yield the answers of a process that has them, has ended, or has run out of time; then end it."""
    indices = [asked.index for asked in one.batch]
    reason = f"your code did not finish on fake tensors within {limit:g} s"
    if not timed_out:
        try:
            yield from zip(indices, one.answers.recv(), strict=True)
            reason = ""
        except EOFError:
            one.process.join()
            reason = f"your code ended the process that predicts (exit code {one.process.exitcode})"
    if reason:
        yield from ((index, failed(reason)) for index in indices)
    one.process.kill()
    one.process.join()
    one.answers.close()


def _answer(answer: Callable[[Batch], list[Found]], batch: Batch, code: Code, answers: Connection, parent: int) -> None:
    die_with_parent(parent)
    silent = os.open(os.devnull, os.O_WRONLY)  # what the code prints would be read as answers, or cover the plan
    os.dup2(silent, sys.stdout.fileno())
    os.dup2(silent, sys.stderr.fileno())
    torch.set_num_threads(1)
    use_code(code)
    answers.send(answer(batch))
