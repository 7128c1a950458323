"""The page's first answer: devices against each other, and within the page's store the values of each choice."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import NamedTuple

import pandas as pd

from lmsweep.analysis.comparison.compare import ResultKey
from lmsweep.analysis.comparison.environment_diff import environment_diff
from lmsweep.analysis.comparison.side_by_side import PUBLISHED
from lmsweep.analysis.data.code_states import LATEST, PREVIOUS
from lmsweep.analysis.data.columns import NO_VALUE, in_order, label
from lmsweep.analysis.data.load import of_present_devices
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.reference import stores
from lmsweep.analysis.report.answer_tables import Forest, ForestEntry, forest
from lmsweep.analysis.report.page_data import JsonObject, result_numbers
from lmsweep.analysis.report.pairs import DEVICE, Measure, Pair, Side, pair_of
from lmsweep.trials.analytic.prices import Price, hourly_dollars
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.results.roles import Role, fields_with
from lmsweep.trials.spec.config import CONFIG_FIELDS

MOST_EACH_WAY = 4
"""If there are more devices, each is compared with the first alone; if a choice has more values, so is each of them."""

MOST_ATTEMPTS = 3000
"""Choices of a store with more attempts are not compared: the page would take too long to make and to read."""

MOST_VALUES = 8
"""A field with more values is an axis of a chart, and no choice."""

MEASURES = (
    Measure("training step", ("timing",), None),
    Measure("data-parallel step", ("ddp",), None),
    Measure("attention", ("attention",), None),
    Measure("energy", ("energy",), ["step.energy"]),
    Measure("peak memory", ("memory",), ["step.peak_allocated"]),
)
"""What sides are compared by; the page shows the first of these that a store has."""

ANYTHING = Measure("value", (), None)
"""What sides are compared by if they have none of MEASURES in common."""

CHOICES = (
    *(name for name in fields_with(Role.WAY, Role.PARTITION) if name != "device"),  # other devices have their own part
    "torch_version",
)
"""The fields that are choices, besides the state of the user's code."""


_SOFTWARE = tuple(name for name in ENVIRONMENT_FIELDS if name.endswith("_version") and name != "measuring_version")
"""May differ between two stores; a version of the measuring code that measures otherwise may not."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    sides: list[Side]
    pairs: list[Pair]
    first: Pair
    """The pair that the page shows first."""

    def of_devices(self) -> bool:
        return self.is_of_devices(self.first)

    def is_of_devices(self, pair: Pair) -> bool:
        return self.sides[pair.baseline].key == DEVICE

    def forests(self) -> list[Forest]:
        firsts = {side.key: place for place, side in reversed(list(enumerate(self.sides)))}
        lines: dict[tuple[str, bool], list[ForestEntry]] = {}
        for number, pair in enumerate(self.pairs):
            one, other = self.sides[pair.baseline], self.sides[pair.contrast]
            if one.key != DEVICE and pair.ratio and firsts[one.key] == pair.baseline:
                entry = (number, one.key, other.name, one.name, pair.ratio, pair.counts)
                lines.setdefault((pair.measure, pair.unit == "s"), []).append(entry)
        return [forest(measure, entries, timed=timed) for (measure, timed), entries in lines.items()]

    def data(self) -> JsonObject:
        return {
            "sides": [
                {"key": side.key, "name": side.name, "store": side.store, "price": side.price} for side in self.sides
            ],
            "pairs": [pair.data() for pair in self.pairs],
            "first": self.pairs.index(self.first),
        }


class Choice(NamedTuple):
    """A field and the sides that its values are, the default first, the others in their natural order."""

    field: str
    sides: list[Side]


def choices_of(frame: pd.DataFrame) -> Iterator[Choice]:
    """Yield the fields with two values or more; frame: rows of `lmsweep.load(..., pooled=False)`."""
    latest = of_latest_code(frame)
    for field in CHOICES:
        values = in_order(latest.drop_duplicates(field), [field])[field].map(label).to_list()
        if not 2 <= len(values) <= MOST_VALUES:
            continue
        default = label(CONFIG_FIELDS[field].default) if field in CONFIG_FIELDS else NO_VALUE
        labels = latest[field].map(label)
        ordered = sorted(values, key=lambda value: value != default)  # used within this iteration
        yield Choice(field, [Side(key=field, name=value, rows=latest[labels == value]) for value in ordered])
    states = [frame[frame["code"] == state] for state in (PREVIOUS, LATEST)]
    if all(len(rows) for rows in states):
        sides = [Side(key="code", name=name, rows=rows) for name, rows in zip((PREVIOUS, LATEST), states, strict=True)]
        yield Choice("code", sides)


def of_latest_code(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without those of earlier states of the user's code."""
    return frame[frame["code"].isna() | (frame["code"] == LATEST)]


def measures_of(one: pd.DataFrame, other: pd.DataFrame) -> list[Measure]:
    """Return what two sides can be compared by: MEASURES that both have, or ANYTHING."""
    workloads = set(one["workload"]) & set(other["workload"])
    return [measure for measure in MEASURES if workloads & set(measure.workloads)] or [ANYTHING]


def stores_beside(others: Sequence[str]) -> dict[str, Results]:
    return {name: Results(stores().get(name, name)) for name in others if name != PUBLISHED}


def first_answer(
    every: Mapping[str, Results], prices: Sequence[Price] = (), across: Sequence[str] = ()
) -> Answer | None:
    """Return how the devices of all stores compare, and what each choice changes; None: nothing can be compared.

    every: the page's store and those beside it, by name. across: further keys in which two devices may differ. Raises
    RequestError for a price that fits no device, and for two that fit one.
    """
    frames = [of_present_devices(one.attempts) for one in every.values()]
    numbers = [result_numbers(one.measurements) for one in every.values()]
    names = [name.rstrip("/").rpartition("/")[2] for name in every]
    sides = _devices([of_latest_code(frame) for frame in frames], names, prices)
    pairs = list(_pairs_of_devices(sides, across, numbers))
    if frames[0]["attempt_id"].nunique() <= MOST_ATTEMPTS:
        pairs += _pairs_of_choices(frames[0], sides, numbers)
    if not pairs:
        return None
    return Answer(sides=sides, pairs=pairs, first=_first(sides, pairs))


def _first(sides: Sequence[Side], pairs: Sequence[Pair]) -> Pair:
    """The pair of devices that can be compared, else the choice that surely changes most, by the first measure."""
    of_devices = [pair for pair in pairs if sides[pair.baseline].key == DEVICE]
    if of_devices:
        return next((pair for pair in of_devices if pair.maps), of_devices[0])
    of_measure = [pair for pair in pairs if pair.measure == pairs[0].measure]
    return max(of_measure, key=_change)


def _change(pair: Pair) -> tuple[float, float]:
    """How far the nearer end of the interval of the ratio is from 1, 0 if it contains 1; then how far the mean is."""
    if pair.ratio is None:
        return 0.0, 0.0
    ends = [log(end) for end in (pair.ratio.low, pair.ratio.high) if end is not None]
    sure = min(map(abs, ends)) if len(ends) == 2 and ends[0] * ends[1] > 0 else 0.0
    return sure, abs(log(pair.ratio.mean))


def _pairs_of_devices(
    sides: Sequence[Side], across: Sequence[str], numbers: Sequence[Mapping[ResultKey, int]]
) -> Iterator[Pair]:
    both_ways = len(sides) <= MOST_EACH_WAY
    for one, baseline in enumerate(sides):
        for other, contrast in enumerate(sides):
            if one == other or not (both_ways or one == 0):
                continue
            environment = environment_diff(baseline.rows, contrast.rows, (baseline.name, contrast.name)).frame
            lines = [list(map(str, line)) for line in environment.to_numpy()]
            # Within a store only the driver may differ. Another store was asked for by name, whatever it ran on.
            free = ("driver_version",) if baseline.store == contrast.store else _SOFTWARE
            found = [
                pair_of(sides, one, other, measure, across=(*free, *across), environment=lines, numbers=numbers)
                for measure in measures_of(baseline.rows, contrast.rows)
            ]
            yield from [pair for pair in found if pair.maps] or [_with_sweeps(found[0], baseline, contrast)]


def _with_sweeps(pair: Pair, baseline: Side, contrast: Side) -> Pair:
    """The pair without a common cell, with the advice to run one sweep on both devices if they ran different ones."""
    ran = [sorted(set(map(str, side.rows["sweep"]))) for side in (baseline, contrast)]
    if set(ran[0]) & set(ran[1]):
        return pair
    words = [f"{side.name} ran {', '.join(names)}" for side, names in zip((baseline, contrast), ran, strict=True)]
    advice = f"They ran different sweeps: {'; '.join(words)}. Run one of them on both."
    return replace(pair, details=[advice, *pair.details])


def _pairs_of_choices(frame: pd.DataFrame, sides: list[Side], numbers: Sequence[Mapping[ResultKey, int]]) -> list[Pair]:
    """The pairs of values of each choice that have a cell in common; adds the values to `sides`."""
    found = []
    for choice in choices_of(frame):
        first = len(sides)
        sides.extend(choice.sides)
        places = range(first, len(sides))
        for one in places if len(places) <= MOST_EACH_WAY else places[:1]:
            for other in range(one + 1, len(sides)):
                measures = measures_of(sides[one].rows, sides[other].rows)
                measures = [measure for measure in measures if measure != ANYTHING]
                found += [pair_of(sides, one, other, measure, numbers=numbers) for measure in measures]
    known = [pair for pair in found if pair.ratio]
    order = {name: place for place, name in enumerate(Counter(pair.measure for pair in known))}
    return sorted(known, key=lambda pair: order[pair.measure])


def _devices(frames: Sequence[pd.DataFrame], names: Sequence[str], prices: Sequence[Price]) -> list[Side]:
    dollars = hourly_dollars(prices, [device for rows in frames for device in _devices_of(rows)])
    by_name = {device: hourly for (device, _), hourly in dollars.items()}
    found = [
        (device, kind, store, frame[frame["device_name"] == device])
        for store, frame in enumerate(frames)
        for device, kind in _in_order(frame)
    ]
    kinds = Counter(kind for _, kind in {(device, kind) for device, kind, *_ in found})
    short = [kind if kind and kinds[kind] == 1 else device for device, kind, *_ in found]
    counts = Counter(short)
    return [
        Side(
            key=DEVICE,
            name=name if store == 0 or counts[name] == 1 else f"{name} ({names[store]})",
            rows=rows,
            store=store,
            price=by_name.get(device),
        )
        for name, (device, _, store, rows) in zip(short, found, strict=True)
    ]


def _in_order(frame: pd.DataFrame) -> list[tuple[str, str | None]]:
    kinds = dict(_devices_of(frame))
    names = in_order(frame.drop_duplicates("device_name"), ["device_name"])["device_name"]
    return [(str(name), kinds[str(name)]) for name in names]


def _devices_of(frame: pd.DataFrame) -> list[tuple[str, str | None]]:
    types = frame["accelerator_type"].astype(object).where(frame["accelerator_type"].notna(), None)
    return sorted(set(zip(frame["device_name"], types, strict=True)), key=str)


def priced_here(prices: Sequence[Price], frame: pd.DataFrame) -> list[Price]:
    """Return the prices of devices in the frame; the others are of devices in the stores beside it."""
    return [price for price in prices if any(price.is_of(*device) for device in _devices_of(frame))]
