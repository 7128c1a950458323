"""The operators of larger models, from those of smaller ones: more layers, another batch."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from lmsweep.trials.analytic.rates.operators import Operator, Operators


def deepened(small: Operators, larger: Operators, layers: int) -> Operators | None:
    """Return the operators of a model with `layers` more layers than the small one; `larger` has one more. None if the
    additional layer changes more than how often operators run and how much those over all layers move."""
    count_in_small = {_once(one): one.count for one in small}
    in_larger = {_once(one) for one in larger}
    counterparts = _counterparts(
        [one for one in larger if _once(one) not in count_in_small],
        [one for one in small if _once(one) not in in_larger],
    )
    if counterparts is None:
        return None
    deep = []
    for one in larger:
        if _once(one) in count_in_small:  # of the same size: each layer adds as many runs
            count = grown(count_in_small[_once(one)], one.count, layers)
            if count > 0:
                deep.append(replace(one, count=count))
        elif one in counterparts:  # it runs over all layers
            deep.append(_grown(counterparts[one], one, layers))
        else:  # only further layers have it, such as gradients of inputs behind the first trained weights
            deep.append(replace(one, count=layers * one.count))
    return tuple(deep)


def _once(one: Operator) -> Operator:
    return replace(one, count=1)


def _counterparts(
    only_in_larger: Sequence[Operator], only_in_small: Sequence[Operator]
) -> dict[Operator, Operator] | None:
    """Return operator over all layers of the larger model, such as an update of weights -> that of the small model,
    which has other sizes; None if one of the small model has no counterpart."""
    kinds = Counter(map(_kind, only_in_small))
    over_all_layers = [one for one in only_in_larger if _kind(one) in kinds]
    if Counter(map(_kind, over_all_layers)) != kinds:
        return None
    # Those of one kind correspond in the order in which they run, which sorting keeps.
    return dict(zip(sorted(over_all_layers, key=_kind), sorted(only_in_small, key=_kind), strict=True))


def _kind(one: Operator) -> tuple[str, str, int]:
    """Return what an operator over all layers has in common in models of both depths."""
    return one.name, one.phase, one.count


def regrouped(operators: Operators, small: Operators, merged: Operators, times: int) -> Operators | None:
    """Return the operators of a model in which `times` more blocks share a checkpoint with the block before them: those
    given plus `times` what `merged`, with one such block, has more than `small`. None if a count becomes negative."""
    counts = Counter({_once(one): one.count for one in operators})
    for side, sign in ((small, -1), (merged, 1)):
        for one in side:
            counts[_once(one)] += sign * times * one.count
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
    """Return the operators with `wanted` sequences instead of `batch`, which exceeds all that does not grow with it."""

    def scale(size: int) -> int:
        times, rest = divmod(size, batch)
        return times * wanted + rest  # of 3 * batch + 7, 3 * wanted + 7

    return tuple(
        replace(
            one,
            shapes=tuple(tuple(map(scale, shape)) for shape in one.shapes),
            bytes=scale(one.bytes),
            flops=scale(one.flops),
        )
        for one in operators
    )
