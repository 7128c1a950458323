"""Answer questions about many configurations in parallel, with those that share a run in one process."""

import gc
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from typing import TypeVar

import torch

from lmsweep.trials.analytic.prediction_question import Question
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.processes import die_with_parent
from lmsweep.trials.machine.torch_private import JOINT_PASSES
from lmsweep.trials.prediction.shared_runs import one_run_for, one_trace_for
from lmsweep.trials.spec.config import TrialConfig

MOST_GRAPHS = 12
"""Graphs of one trace that one job holds at most, so that a trace of many graphs occupies several cores."""

Found = TypeVar("Found")
Batch = list[Question]
"""Questions that are answered by one call."""
Job = list[Batch]
"""Batches that one process answers, one after the other."""


def together(questions: Sequence[Question], shared: Callable[[Question], Hashable]) -> list[Batch]:
    batches: dict[object, Batch] = {}
    for question in questions:
        batches.setdefault(shared(question), []).append(question)
    return list(batches.values())


def answer_batches(
    answer: Callable[[Batch], list[Found]], batches: Sequence[Batch], *, forks_later: bool
) -> Iterator[tuple[int, Found]]:
    """Yield each answer as it comes, with the index of its question; one call answers a batch. Batches whose largest
    (last) question shares a trace go to the same process, whose caches then hold the trace.

    forks_later: compute nothing in this process, which will fork again. Where there is a GPU, PyTorch's autograd starts
    threads at the first backward pass of a process, and refuses to compute in what that process forks."""
    job_of_trace: dict[TrialConfig, Job] = {}
    for batch in batches:
        job_of_trace.setdefault(one_trace_for(one_run_for(batch[-1].config)), []).append(batch)
    # Compiled configurations take longest, so they come first.
    compiled = [job for trace, job in job_of_trace.items() if trace.compile != "none"]  # each batch has a graph
    jobs = [job[i : i + MOST_GRAPHS] for job in compiled for i in range(0, len(job), MOST_GRAPHS)]
    jobs += [job for trace, job in job_of_trace.items() if trace.compile == "none"]
    if compiled and len(jobs) > 1:
        import_module(JOINT_PASSES)  # before the fork, so that it is imported once
    yield from _answer_jobs(answer, jobs, forks_later)


def _answer_jobs(
    answer: Callable[[Batch], list[Found]], jobs: Sequence[Job], forks_later: bool
) -> Iterator[tuple[int, Found]]:
    """Yield the answers as they come, using one process per core."""
    torch.set_num_threads(1)
    do = partial(_answer_job, answer)
    workers = min(len(usable_cores()), len(jobs))
    if workers < 2 and not (forks_later and jobs):
        for job in jobs:
            yield from do(job)
        return
    gc.freeze()  # else garbage collection in each process would traverse, and so copy, all of PyTorch
    with ProcessPoolExecutor(
        workers, mp_context=get_context("fork"), initializer=die_with_parent, initargs=(os.getpid(),)
    ) as pool:
        for done in as_completed([pool.submit(do, job) for job in jobs]):
            yield from done.result()


def _answer_job(answer: Callable[[Batch], list[Found]], job: Job) -> list[tuple[int, Found]]:
    return [(one.index, found) for batch in job for one, found in zip(batch, answer(batch), strict=True)]
