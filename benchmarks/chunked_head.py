"""The head of prime-rl's reinforcement learning: logits in pieces of the vocabulary, read and written many times."""

import math
from dataclasses import replace

from lmsweep.trials.analytic.rates.operators import Operator, Operators

PIECE = 8192
"""Words of a piece."""
FORWARD = (("_to_copy", 6), ("mul_", 8), ("amax", 4), ("sub", 8), ("exp", 8), ("sum", 4), ("mul", 12), ("sum", 4))
BACKWARD = (*(("_to_copy", 6), ("mul_", 8), ("sub", 8), ("exp", 8)),
            *(("mul", 8), ("mul_", 8), ("_to_copy", 6), ("_to_copy", 6)))  # fmt: skip
"""Operators of a piece, and the bytes that each moves for a logit: `_ChunkedLogProbEntropyFn` of prime-rl at a1271501b
(src/prime_rl/trainer/models/layers/lm_head.py), of the days of its baselines."""


def with_chunked_head(operators: Operators, vocabulary: int) -> Operators:
    """Return the operators of a step with this head in place of logits that are there at once. Backward computes the
    logits again, and the head's gradient also where adapters do not need it."""
    kept = [one for one in operators if not (one.module == "loss" and _has_logits(one, vocabulary))]
    head = next(one for one in kept if one.name == "mm" and one.shapes[-1][-1] == vocabulary)
    (tokens, width), _ = head.shapes
    pieces = math.ceil(vocabulary / PIECE)
    for phase, passes in (("forward", FORWARD), ("backward", BACKWARD)):
        for name, size in passes:
            moved = size * tokens * vocabulary // pieces
            shapes = ((tokens, PIECE),)
            kept.append(replace(head, name=name, shapes=shapes, dtype="float32", bytes=moved, flops=0, layout="",
                                phase=phase, count=head.count * pieces))  # type: ignore[arg-type] # fmt: skip
    kept.append(replace(head, phase="backward", is_again=True))
    if not any(one.name == "mm" and one.shapes[0] == (vocabulary, tokens) for one in kept):
        gradient = ((vocabulary, tokens), (tokens, width))
        kept.append(replace(head, phase="backward", shapes=gradient, layout="tn"))
    return tuple(kept)


def _has_logits(one: Operator, vocabulary: int) -> bool:
    return one.stream == "compute" and any(shape[-1:] == (vocabulary,) for shape in one.shapes)
