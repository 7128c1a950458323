"""Finds the shallow models from which a deep one is extrapolated.

Layers of one kind allocate and compute alike. So a deep model follows from two shallow ones that differ by one layer,
or by one period if layers of several kinds alternate.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

import torch

from lmsweep.trials.code.calling import arguments_of
from lmsweep.trials.code.importing import code_in_use
from lmsweep.trials.model.users.hugging_face import from_hugging_face, layers_of_configuration, with_layers
from lmsweep.trials.model.users.layer_kinds import UnalikeError, weights_of
from lmsweep.trials.prediction.depth.operator_growth import grown
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import Code

Found = TypeVar("Found")
MOST_PERIODS = 2
"""Maximum number of periods in the smaller model of a pair; one more if a period is a single layer."""
WORTH_NESTING = 6
"""Repetitions from which two shallow models are tried even if they have as many layers as the whole: the layers before
or after may repeat as well, so that each is extrapolated in turn."""


class ShallowPair(NamedTuple):
    """Two models that a deep one is extrapolated from."""

    small: TrialConfig
    larger: TrialConfig
    times: int
    """Number of times that the difference of the two models is added to the small one to give the deep one."""


class Periods(NamedTuple):
    """A sequence of layers as a beginning, a period that repeats, and an end."""

    before: int
    period: int
    times: int
    after: int

    def kept(self, times: int) -> list[int]:
        """Return the indices of the layers that remain if the period is repeated only this many times."""
        whole = self.before + self.period * self.times + self.after
        return [*range(self.before + self.period * times), *range(whole - self.after, whole)]

    @property
    def shallow_layers(self) -> int:
        """Return the layers of the models with one period and with two, together."""
        return 2 * (self.before + self.after) + 3 * self.period


def at_full_depth(
    config: TrialConfig,
    run: Callable[[TrialConfig], Found],
    extrapolate: Callable[[Found, Found, int], Found | None],
    *,
    fewest: int,
) -> Found:
    """Return the result of `run` for the whole model, from those of two shallow models if possible, which may follow
    from shallower ones in turn. extrapolate: takes both results and `ShallowPair.times`; None if they do not
    extrapolate. fewest: minimum number of layers of lmsweep's own shallow models. Raises what `run` raises."""
    for small, larger, times in pairs_of(config, fewest):
        try:
            few, more = (at_full_depth(one, run, extrapolate, fewest=fewest) for one in (small, larger))
            found = extrapolate(few, more, times)
        except (RequestError, UnsupportedError, UnpredictableError):
            raise
        except Exception:  # a model may need layers that a shallow one lacks; other errors recur with the whole model
            if not config.is_hugging_face:
                raise
            break
        if found is not None:
            return found
    return run(config)


def pairs_of(config: TrialConfig, fewest: int) -> Iterator[ShallowPair]:
    """Return pairs of shallow models, of at least `fewest` layers; empty for a model of the user's own."""
    if config.is_hugging_face:
        return _hugging_face_pairs(config)
    return _own_pairs(config, fewest) if config.model_code is None else iter(())


def _own_pairs(config: TrialConfig, fewest: int) -> Iterator[ShallowPair]:
    """Yield pairs of shallow models of lmsweep's own. They differ by a layer, or a group that shares a checkpoint."""
    layers = config.num_layers or 0
    way = config.recomputation
    size = 1 if way.grows_with_layers else way.group_size(layers)
    if way.nested or not size:  # nested: the groups of a shallow model are smaller
        return
    if size > 1:  # "sqrt" would give a shallow model smaller groups
        config = replace(config, checkpointing=str(size))
    for first in (fewest, fewest + 1):
        few = first + (layers - first) % size  # the other layers are whole groups
        if few + max(size, 2) >= layers:  # the larger would have all layers or all but one: the whole costs no more
            return
        small, larger = (replace(config, num_layers=number) for number in (few, few + size))
        yield ShallowPair(small, larger, (layers - few) // size)


def _hugging_face_pairs(config: TrialConfig) -> Iterator[ShallowPair]:
    """Yield pairs from which number and bytes of all weights extrapolate exactly. Raises what building them raises."""
    layers = layers_of_configuration(config)
    if layers is None:
        return
    found = periods_of(layers.kinds)
    if found is None:
        return
    most = MOST_PERIODS + 1 if found.period == 1 else MOST_PERIODS
    for few in range(1, min(most, found.times - 2) + 1):  # the larger model has fewer periods than the whole
        kept, more = found.kept(few), found.kept(few + 1)
        if len(kept) < 2:
            continue  # checkpointing and sharding need a list of layers
        saves_layers = len(kept) + len(more) < len(layers.kinds)
        if not saves_layers and found.times < WORTH_NESTING:
            return
        pair = ShallowPair(with_layers(config, kept), with_layers(config, more), found.times - few)
        try:
            small, larger, whole = map(_weights, (pair.small, pair.larger, config))
        except UnalikeError:
            return
        extrapolated = tuple(grown(low, high, pair.times) for low, high in zip(small, larger, strict=True))
        if extrapolated == whole:
            yield pair


def periods_of(kinds: Sequence[Hashable]) -> Periods | None:
    """Return the division into periods whose shallow models have the fewest layers; None without three repetitions."""
    found: list[Periods] = []
    for period in range(1, len(kinds) // 3 + 1):
        for begin in range(len(kinds) - 3 * period + 1):
            end = begin + period  # of the layers from `begin` that repeat, with those of an incomplete period
            while end < len(kinds) and kinds[end] == kinds[end - period]:
                end += 1
            times = (end - begin) // period
            if times >= 3:
                after = len(kinds) - begin - times * period
                found.append(Periods(before=begin, period=period, times=times, after=after))
    return min(found, key=lambda one: (one.shallow_layers, one.period), default=None)


def _weights(config: TrialConfig) -> tuple[int, int]:
    """Return number and bytes of all weights."""
    return _weights_of(code_in_use(), str(config.model_code), config.model_args, config.attention)


@lru_cache(maxsize=16)
def _weights_of(code: Code, model_code: str, model_args: str | None, attention: str) -> tuple[int, int]:
    config = TrialConfig(model_code=model_code, attention=attention)
    with torch.device("meta"):
        return weights_of(from_hugging_face(config, arguments_of(model_args), dtype=torch.bfloat16))
