"""The lengths of a comparison, drawn once by the seed: they depend on nothing else of a trial."""

import math
import random
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, chain, count, islice, pairwise

import numpy as np

from lmsweep.trials.lengths.length_files import Lengths, counts_in, digest_of
from lmsweep.trials.lengths.length_forms import LengthFile, read_lengths
from lmsweep.trials.spec.errors import RequestError

DRAWN_AT_ONCE = 4096
"""Lengths of each array that `stream` yields."""


def draw(lengths: str, seed: int, number: int) -> Lengths:
    """Return the tokens of the first `number` documents of `stream`; a larger number begins with the same ones."""
    documents = chain.from_iterable(part.tolist() for part in stream(lengths, seed))
    return np.fromiter(islice(documents, number), np.int64, number)


def stream(lengths: str, seed: int) -> Iterator[Lengths]:
    """Yield the lengths of documents without end. Those of a file are shuffled, and again in each further epoch, as the
    samplers of PyTorch do. Raises RequestError if the file has changed since it was read first."""
    read = read_lengths(lengths)
    if isinstance(read, LengthFile):
        counts = counts_in(read.path, read.column)
        if read.digest and digest_of(read.path) != read.digest:
            raise RequestError(f"lengths: {read.path} has changed since the trial was planned; plan it again")
        for epoch in count():
            shuffled = np.random.default_rng((seed, epoch)).permutation(counts)
            yield from (shuffled[i : i + DRAWN_AT_ONCE] for i in range(0, len(shuffled), DRAWN_AT_ONCE))
        return
    source = np.random.default_rng(seed)
    while True:
        if read.name == "uniform":
            yield source.integers(int(read.numbers[0]), read.longest, DRAWN_AT_ONCE, endpoint=True)
        else:
            drawn = source.lognormal(math.log(read.numbers[0]), read.numbers[1], DRAWN_AT_ONCE)
            yield np.clip(np.rint(drawn), 1, read.longest).astype(np.int64)


@lru_cache(maxsize=256)
def document_lengths(context_length: int, document_length: int) -> tuple[int, ...]:
    """Return the tokens of each document in a packed sequence, in order; document_length is about their mean.

    They are evenly spaced quantiles of an exponential distribution, in an order drawn with a fixed seed.
    """
    number = max(1, round(context_length / document_length))
    parts = [-math.log(1 - (i + 0.5) / number) for i in range(number)]
    drawn = random.Random(0)
    parts.sort(key=lambda part: drawn.random())
    # Each document has a token of its own; the other tokens are divided in these proportions.
    ends = list(accumulate(parts, initial=0.0))
    borders = [round((context_length - number) * end / ends[-1]) for end in ends]
    return tuple(1 + end - begin for begin, end in pairwise(borders))
