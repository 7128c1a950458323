"""The documents that sequence packing puts into one sequence: their lengths, and the scores that their mask leaves.

Real lengths vary widely. Here they are evenly spaced quantiles of an exponential distribution, in an order drawn with a
fixed seed: every trial and every sequence has the same documents.
"""

import math
import random
from functools import lru_cache
from itertools import accumulate, pairwise

from lmsweep.trials.analytic.flop_conventions import FlopConvention, share_of_scores


@lru_cache(maxsize=256)
def document_lengths(context_length: int, document_length: int) -> tuple[int, ...]:
    """Return the tokens of each document in a sequence, in order; document_length is about their mean."""
    count = max(1, round(context_length / document_length))
    parts = [-math.log(1 - (i + 0.5) / count) for i in range(count)]
    drawn = random.Random(0)
    parts.sort(key=lambda part: drawn.random())
    # Each document has a token of its own; the other tokens are divided in these proportions.
    ends = list(accumulate(parts, initial=0.0))
    borders = [round((context_length - count) * end / ends[-1]) for end in ends]
    return tuple(1 + end - begin for begin, end in pairwise(borders))


def share_of_packed_scores(
    convention: FlopConvention, *, context_length: int, document_length: int, causal: bool, window: int | None = None
) -> float:
    """Return the share of all context_length² scores that is counted: what counts in each document's square."""
    counted = sum(
        length**2 * share_of_scores(convention, causal=causal, window=min(window or length, length) / length)
        for length in document_lengths(context_length, document_length)
    )
    return float(counted / context_length**2)
