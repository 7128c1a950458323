"""Steps whose batches differ by the lengths of their documents: which batch each took, and what follows from it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

import numpy as np
import torch

from lmsweep.trials.lengths.batches import Batch, batches
from lmsweep.trials.machine.out_of_memory import ran_out_of_memory
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.results.measurement import Measurement, one_number

Step = tuple[Batch, ...]
"""The micro-batches of a step."""


class BatchesTaken:
    """Gives a step its batches, and notes them. `restart` begins with the first batch again, so that all trials of a
    comparison measure the same ones, however many steps each ran before."""

    def __init__(self, step: TrainingStep) -> None:
        self._step = step
        self.restart()

    def restart(self) -> None:
        self._step.draw_from(batches(self._step.config))
        self.taken: list[Step] = []  # of the steps since `restart`
        self._current = self._step.advance()

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """A context around one step, after which the next batch is there; says in which step memory ran out."""
        try:
            yield
        except Exception as error:
            if not ran_out_of_memory(error):
                raise
            shapes = " and ".join(f"{rows} x {width} tokens" for rows, width in (one.shape for one in self._current))
            said = str(error).strip().partition("\n")[0]
            raise torch.OutOfMemoryError(f"step {len(self.taken) + 1}, with {shapes}: {said}") from error
        self.taken.append(self._current)
        self._current = self._step.advance()


PARTS = 10
"""Samples of `token_time`. Each covers a tenth of the steps, because the time per token of one step varies with its
length. Of every ten steps each part gets one: the first ten from the first part to the last, the next ten from the last
to the first, because `grouped` batches are sorted by length."""


def token_rows(taken: Sequence[Step], seconds: Sequence[float]) -> Iterator[Measurement]:
    """Yield the tokens of each step, those of padding, and how many real ones a second has."""
    real = tuple(sum(batch.real_tokens for batch in step) for step in taken)
    padded = tuple(sum(batch.padded_tokens for batch in step) for step in taken)
    yield Measurement(phase="step", metric="real_tokens", unit="1", samples=real)
    yield Measurement(phase="step", metric="padded_tokens", unit="1", samples=padded)
    yield Measurement(phase="step", metric="token_time", unit="s", samples=_seconds_per_token(real, seconds))
    yield one_number("step", "padding", "share", 1 - sum(real) / sum(padded))
    yield one_number("step", "real_tokens_per_second", "tokens/s", sum(real) / sum(seconds))
    yield one_number("step", "padded_tokens_per_second", "tokens/s", sum(padded) / sum(seconds))
    yield one_number("step", "mean_time", "s", fmean(seconds))
    yield one_number("step", "p99_time", "s", float(np.quantile(seconds, 0.99)))


def _seconds_per_token(tokens: Sequence[int], seconds: Sequence[float]) -> tuple[float, ...]:
    part = [at % PARTS if at // PARTS % 2 == 0 else PARTS - 1 - at % PARTS for at in range(len(seconds))]
    each = np.bincount(part, weights=np.array(seconds)) / np.bincount(part, weights=np.array(tokens))
    return tuple(each.tolist())
