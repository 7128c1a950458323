"""Extrapolate the allocations of a deep model from those of two shallow ones, since all layers are alike.

A model with one more layer has the events of the smaller one, with those of one layer inserted. That layer's events can
then be inserted any number of times. Each copy frees the pieces of the next layer: the layer after in forward, and the
layer before in backward, which visits layers from last to first.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import NamedTuple

from lmsweep.trials.prediction.depth.operator_growth import grown
from lmsweep.trials.prediction.without_device.allocation_trace import Event, Stretch, Trace


class Name(NamedTuple):
    """Names a piece: the part of the trace that allocates it, and its index among that part's allocations."""

    part: int
    place: int


NO_PIECE = -1
"""In `_outside`, a piece whose parts differ in the two models; `_frees_what_is_there` refuses to free it."""


@dataclass(kw_only=True)
class Part:
    """Part of a stretch in both models; the additional layer is inserted at one place of it."""

    stretch: int
    """Index of the stretch in the trace."""
    backwards: bool
    """Whether layers are visited from last to first."""
    small: list[Event]
    """Events in the smaller model."""
    larger: list[Event]
    """Events in the larger model."""


def deepen(small: Trace, larger: Trace, layers: int) -> Trace | None:
    """The trace of a model with `layers` more layers than the small one; `larger` has one more. None if its events are
    not the small one's with those of one layer inserted, or if the deep model would free what it never allocated."""
    if any(one.first_product != other.first_product for one, other in zip(small, larger, strict=True)):
        return None
    deep = [Stretch(phase=stretch.phase, first_product=stretch.first_product) for stretch in small]
    model = _DeepModel(list(_parts(small, larger)), layers)
    for part in model.divided():
        found = model.events_of(part)
        if found is None:
            return None
        deep[part.stretch].events += found
    return deep if _frees_what_is_there(deep) else None


class _DeepModel:
    """The events of a model with `layers` more layers, from those of both models.

    For example, forward allocates a piece in each layer and one in the head, and backward frees each after it has
    allocated a gradient. With three more layers than the small model::

                 forward            backward
        small    0+ 1+              2+ 1- 3+ 0- 4+
        larger   0+ [1+] 2+         3+ 2- 4+ 1- [5+ 0-] 6+
        deep     0+ [1+ 2+ 3+] 4+   5+ 4- 6+ 3- [7+ 2- 8+ 1- 9+ 0-] 10+

    In forward, 1+ is inserted: copies 0, 1, 2 of the layer allocate 1, 2, 3, and the head, in place 1 or 2, is in place
    1 + 3 * (2 - 1) = 4. In backward, 5+ 0- is inserted: the copies allocate 7, 8, 9 and free 2, 1, 0.
    """

    def __init__(self, parts: list[Part], layers: int) -> None:
        self._parts = parts
        self._layers = layers
        small, larger = [one.small for one in parts], [one.larger for one in parts]
        self._names, self._larger_names = _names(small), _names(larger)
        self._added = [_allocations(more) - _allocations(few) for few, more in zip(small, larger, strict=True)]
        """Allocations that one more layer adds to each part."""
        in_deep = (_allocations(few) + layers * added for few, added in zip(small, self._added, strict=True))
        self._first_piece = [0, *accumulate(in_deep)]
        """Number of the first piece that each part allocates."""

    def divided(self) -> Iterator[Part]:
        """Yield the parts. What only frees may do so in any order: divide it by where its pieces are from, and sort."""
        for part in self._parts:
            if _allocations(part.larger):
                yield part
                continue
            small, larger = _by_origin(part.small, self._names), _by_origin(part.larger, self._larger_names)
            for number in sorted(small.keys() | larger.keys()):
                yield replace(part, small=small[number], larger=larger[number])

    def events_of(self, part: Part) -> list[Event] | None:
        """Return the events of a part; None if the larger model's are not the small one's with a layer inserted."""
        small, larger = part.small, part.larger
        added = len(larger) - len(small)
        if added == 0:  # nothing is inserted, and what works on all layers changes sizes
            return list(self._outside(small, larger))
        # The layer begins where both first differ: in the example's backward at 5+. It might as well begin earlier.
        both = enumerate(zip(small, larger, strict=False))
        begin = next((i for i, (one, other) in both if not self._alike(one, other)), len(small))
        end = begin + added
        if added < 0 or not all(map(self._alike, small[begin:], larger[end:])):
            return None
        before, after = self._outside(small[:begin], larger[:begin]), self._outside(small[begin:], larger[end:])
        copies = (event for copy in range(self._layers) for event in self._inside(part, larger[begin:end], copy))
        return [*before, *copies, *after]

    def _alike(self, event: Event, larger_event: Event) -> bool:
        """Whether both allocate or free the same size, and the same piece or, as the head's, that of the next layer."""
        name, larger_name = self._names[event[0]], self._larger_names[larger_event[0]]
        offset = larger_name.place - name.place
        is_same_or_next = name.part == larger_name.part and offset in (0, self._added[name.part])
        return is_same_or_next and event[1] == larger_event[1]

    def _outside(self, events: Iterable[Event], larger_events: Iterable[Event]) -> Iterator[Event]:
        """Events that all depths have, with the numbers and sizes of the deep model."""
        for (piece, change), (other, larger_change) in zip(events, larger_events, strict=True):
            name, larger_name = self._names[piece], self._larger_names[other]
            number = NO_PIECE
            if name.part == larger_name.part:
                place = grown(name.place, larger_name.place, self._layers)  # small + layers * (larger - small)
                number = self._first_piece[name.part] + place
            yield number, grown(change, larger_change, self._layers)

    def _inside(self, part: Part, layer: list[Event], copy: int) -> Iterator[Event]:
        """Events of a copy of the additional layer. Backward visits the copies from last to first, so what it frees of
        forward (or the reverse) is from the copy counted from the other end: in the example copy 0 frees 0 + 2 * 1."""
        for piece, change in layer:
            made_in, place = self._larger_names[piece]
            made_by = copy if self._parts[made_in].backwards == part.backwards else self._layers - 1 - copy
            yield self._first_piece[made_in] + place + made_by * self._added[made_in], change


def _parts(small: Trace, larger: Trace) -> Iterator[Part]:
    for number, (one, other) in enumerate(zip(small, larger, strict=True)):
        runs, larger_runs = _runs(one.events), _runs(other.events)
        if len(runs) != len(larger_runs):
            runs, larger_runs = _three(runs), _three(larger_runs)
        for events, larger_events in zip(runs, larger_runs, strict=True):
            yield Part(stretch=number, backwards=one.phase == "backward", small=events, larger=larger_events)


def _by_origin(events: list[Event], names: dict[int, Name]) -> defaultdict[int, list[Event]]:
    """Part -> the events that free its pieces, in the order in which it allocated them."""
    groups = defaultdict(list)
    for event in sorted(events, key=lambda event: names[event[0]]):
        groups[names[event[0]].part].append(event)
    return groups


def _allocations(events: list[Event]) -> int:
    return sum(change > 0 for _, change in events)


def _runs(events: list[Event]) -> list[list[Event]]:
    """Divide into runs of allocations and of frees; what works on all layers at once has as many at any depth."""
    return [list(run) for _, run in groupby(events, key=lambda event: event[1] > 0)]


def _three(runs: list[list[Event]]) -> list[list[Event]]:
    """Divide into the frees at the start (gradients of the last iteration), the middle, and the frees at the end."""
    middle = list(runs)
    leading = middle.pop(0) if middle and not _allocations(middle[0]) else []
    trailing = middle.pop() if middle and not _allocations(middle[-1]) else []
    return [leading, [event for run in middle for event in run], trailing]


def _names(parts: list[list[Event]]) -> dict[int, Name]:
    names = {}
    for number, events in enumerate(parts):
        made = (piece for piece, change in events if change > 0)
        names.update({piece: Name(number, place) for place, piece in enumerate(made)})
    return names


def _frees_what_is_there(trace: Trace) -> bool:
    alive: dict[int, int] = {}
    for stretch in trace:
        for piece, change in stretch.events:
            if change > 0:
                alive[piece] = change
            elif alive.pop(piece, None) != -change:
                return False
    return True
