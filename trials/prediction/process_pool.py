"""Answer questions about many configurations in parallel, with those that share a run in one process."""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from typing import Protocol, TypeVar

import torch

from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.processes import die_with_parent
from lmsweep.trials.machine.torch_private import JOINT_PASSES
from lmsweep.trials.prediction.shared_runs import one_run_for, one_trace_for
from lmsweep.trials.spec.config import TrialConfig

MOST_GRAPHS = 12
"""Graphs of one trace that one job holds at most."""


class Question(Protocol):
    """A question about one configuration."""

    @property
    def config(self) -> TrialConfig: ...


Q = TypeVar("Q", bound=Question)
Answer = TypeVar("Answer")
Batch = list[tuple[int, Q]]
"""Questions that are answered by one call, each with its index."""
Job = list[Batch[Q]]
"""Batches that one process answers, one after the other."""


def by_run(questions: Sequence[Q]) -> list[Batch[Q]]:
    """Put questions that one run on meta tensors serves together; each about the user's code is alone."""
    runs: dict[object, Batch[Q]] = {}
    for i, question in enumerate(questions):
        runs.setdefault(i if question.config.references else one_run_for(question.config), []).append((i, question))
    return list(runs.values())


def answer_batches(
    answer: Callable[[list[Q]], list[Answer]], batches: Sequence[Batch[Q]]
) -> Iterator[tuple[int, Answer]]:
    """Yield each answer as it comes, with the index of its question; one call answers a batch. Batches whose largest
    (last) question shares a trace go to the same process, whose caches then hold the trace."""
    traces: dict[TrialConfig, Job[Q]] = {}
    for batch in batches:
        traces.setdefault(one_trace_for(one_run_for(batch[-1][1].config)), []).append(batch)
    # Compiled configurations take longest, so they come first.
    compiled = [graphs for trace, graphs in traces.items() if trace.compile != "none"]
    jobs = [graphs[i : i + MOST_GRAPHS] for graphs in compiled for i in range(0, len(graphs), MOST_GRAPHS)]
    jobs += [eager for trace, eager in traces.items() if trace.compile == "none"]
    if compiled and len(jobs) > 1:
        import_module(JOINT_PASSES)  # before the fork, so that it is imported once
    yield from _answer_jobs(answer, jobs)


def _answer_jobs(answer: Callable[[list[Q]], list[Answer]], jobs: Sequence[Job[Q]]) -> Iterator[tuple[int, Answer]]:
    """Yield the answers as they come, using one process per core."""
    torch.set_num_threads(1)
    do = partial(_answer_job, answer)
    workers = min(len(usable_cores()), len(jobs))
    if workers < 2:
        for job in jobs:
            yield from do(job)
        return
    gc.freeze()  # else garbage collection in each process would traverse, and so copy, all of PyTorch
    with ProcessPoolExecutor(
        workers, mp_context=get_context("fork"), initializer=die_with_parent, initargs=(os.getpid(),)
    ) as pool:
        for done in as_completed([pool.submit(do, job) for job in jobs]):
            yield from done.result()


def _answer_job(answer: Callable[[list[Q]], list[Answer]], job: Job[Q]) -> list[tuple[int, Answer]]:
    answered: list[tuple[int, Answer]] = []
    for batch in job:
        indices, questions = [index for index, _ in batch], [question for _, question in batch]
        answered += zip(indices, answer(questions), strict=True)
    return answered
