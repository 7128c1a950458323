"""The operators of larger models, from those of smaller ones: more layers, another batch."""

from dataclasses import replace
from functools import lru_cache

from lmsweep.trials.analytic.rates.operators import Operator, Operators


def deepened(small: Operators, larger: Operators, layers: int) -> Operators | None:
    """Return the operators of a model with `layers` more layers than the small one; `larger` has one more. None if the
    additional layer changes more than how often operators run and how much those over all layers move."""
    counts, larger_counts = ({replace(one, count=1): one.count for one in side} for side in (small, larger))
    # Operators over all layers, such as updates of weights, change their sizes: each is paired with what it became.
    changed = [one for one in small if replace(one, count=1) not in larger_counts]
    kinds = sorted(map(_kind, changed))
    became = [one for one in larger if replace(one, count=1) not in counts and _kind(one) in kinds]
    if sorted(map(_kind, became)) != kinds:
        return None
    was = dict(zip(sorted(became, key=_kind), sorted(changed, key=_kind), strict=True))
    deep = []
    for one in larger:
        single = replace(one, count=1)
        if single in counts:  # of the same size: each layer adds as many runs as the additional one did
            count = counts[single] + layers * (one.count - counts[single])
            if count > 0:
                deep.append(replace(one, count=count))
        elif one in was:  # it runs over all layers
            deep.append(_grown(was[one], one, layers))
        else:  # only further layers have it, such as gradients of inputs behind the first trained weights
            deep.append(replace(one, count=layers * one.count))
    return tuple(deep)


def _kind(one: Operator) -> tuple[str, str, int]:
    """Return what an operator over all layers has in common in models of both depths."""
    return one.name, one.phase, one.count


def regrouped(operators: Operators, small: Operators, merged: Operators, times: int) -> Operators | None:
    """Return the operators of a model in which `times` more blocks share a checkpoint with the block before them: those
    given plus `times` what `merged`, with one such block, has more than `small`. None if a count becomes negative."""
    counts = {replace(one, count=1): one.count for one in operators}
    for side, sign in ((small, -1), (merged, 1)):
        for one in side:
            single = replace(one, count=1)
            counts[single] = counts.get(single, 0) + sign * times * one.count
    if any(count < 0 for count in counts.values()):
        return None
    return tuple(replace(one, count=count) for one, count in counts.items() if count)


def operators_grown(small: Operators, larger: Operators, more: int) -> Operators | None:
    """Return the operators with `more` sequences; the larger batch has one more. None if the two run different ones."""
    if [_form(one) for one in small] != [_form(one) for one in larger]:
        return None
    return tuple(_grown(one, other, more) for one, other in zip(small, larger, strict=True))


def _form(one: Operator) -> Operator:
    """Return the operator without its sizes."""
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
    """Return the operators with `wanted` sequences instead of `batch`, which is so large that each size of theirs is a
    multiple of it plus a rest that does not depend on the batch."""

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
