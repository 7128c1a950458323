"""The operators of larger models, from those of smaller ones: more layers, another batch."""

from dataclasses import replace
from functools import lru_cache

from lmsweep.trials.analytic.rates.operators import Operator, Operators


def deepened(small: Operators, larger: Operators, layers: int) -> Operators | None:
    """Return the operators of a model with `layers` more layers than the small one; `larger` has one more. None if the
    additional layer changes more than how often operators run and how much those over all layers move."""
    few, more = ({replace(one, count=1): one.count for one in side} for side in (small, larger))
    # Operators over all layers, such as updates of weights, change their sizes: each is paired with what it became.
    changed = [one for one in small if replace(one, count=1) not in more]
    # The layer may also bring operators that the small one has none of: those behind the first trained weights.
    kinds = sorted(map(_kind, changed))
    into = [one for one in larger if replace(one, count=1) not in few and _kind(one) in kinds]
    if sorted(map(_kind, into)) != kinds:
        return None
    grown = dict(zip(sorted(into, key=_kind), sorted(changed, key=_kind), strict=True))
    found = []
    for one in larger:
        alone = replace(one, count=1)
        if alone in few:  # of the same size: each layer adds as many runs as the one did
            count = few[alone] + layers * (one.count - few[alone])
            if count > 0:
                found.append(replace(one, count=count))
        elif one in grown:  # it runs over all layers
            found.append(_grown(grown[one], one, layers))
        else:  # only the additional layer has it
            found.append(replace(one, count=layers * one.count))
    return tuple(found)


def _kind(one: Operator) -> tuple[str, str, int]:
    return one.name, one.phase, one.count


def regrouped(operators: Operators, small: Operators, merged: Operators, times: int) -> Operators | None:
    """Return the operators of a model in which `times` more blocks share a checkpoint with the one before; `merged` has
    one such block, `small` none. None if that changes more than how often operators run."""
    counts = {replace(one, count=1): one.count for one in operators}
    for side, sign in ((small, -1), (merged, 1)):
        for one in side:
            alone = replace(one, count=1)
            counts[alone] = counts.get(alone, 0) + sign * times * one.count
    if any(count < 0 for count in counts.values()):
        return None
    return tuple(replace(one, count=count) for one, count in counts.items() if count)


def operators_grown(small: Operators, larger: Operators, more: int) -> Operators | None:
    """Return the operators of `more` sequences than the small batch has; the larger has one more. None if the two run
    different operators."""
    if [_form(one) for one in small] != [_form(one) for one in larger]:
        return None
    return tuple(_grown(one, other, more) for one, other in zip(small, larger, strict=True))


def _form(one: Operator) -> Operator:
    return replace(one, shapes=tuple((0,) * len(shape) for shape in one.shapes), bytes=0, flops=0)


def _grown(small: Operator, larger: Operator, times: int) -> Operator:
    """Return the operator whose sizes differ from the small one's `times` as much as the larger one's."""
    pairs = zip(small.shapes, larger.shapes, strict=True)
    return replace(
        larger,
        shapes=tuple(tuple(grown(*lengths, times) for lengths in zip(*shapes, strict=True)) for shapes in pairs),
        bytes=grown(small.bytes, larger.bytes, times),
        flops=grown(small.flops, larger.flops, times),
    )


def grown(small: int, larger: int, times: int) -> int:
    """Return the size that differs from the small one `times` as much as the larger one."""
    return small + times * (larger - small)


@lru_cache(maxsize=256)
def scaled(operators: Operators, batch: int, wanted: int) -> Operators:
    """Return the operators with another batch; each size of theirs is a multiple of `batch` plus less than it."""

    def scale(size: int) -> int:
        times, rest = divmod(size, batch)
        return times * wanted + rest

    return tuple(
        replace(
            one,
            shapes=tuple(tuple(map(scale, shape)) for shape in one.shapes),
            bytes=scale(one.bytes),
            flops=scale(one.flops),
        )
        for one in operators
    )
