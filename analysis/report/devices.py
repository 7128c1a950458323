"""The page's first answer: each device of the store, and of the stores beside it, against each other."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from lmsweep.analysis.comparison.compare import VERDICTS, Comparison, compare
from lmsweep.analysis.comparison.device_first import HOST_LIMITED
from lmsweep.analysis.comparison.environment_diff import environment_diff
from lmsweep.analysis.comparison.side_by_side import PUBLISHED
from lmsweep.analysis.data.columns import in_order, label, natural_ranks
from lmsweep.analysis.data.load import load, of_present_devices
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.reference import stores
from lmsweep.analysis.report.data import JsonObject
from lmsweep.analysis.tables.listing import Listing
from lmsweep.trials.analytic.prices import Price, hourly_dollars
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.spec.config import RequestError

MOST_EACH_WAY = 4
"""If there are more devices, each is compared with the first alone."""

_SOFTWARE = tuple(name for name in ENVIRONMENT_FIELDS if name.endswith("_version") and name != "measuring_version")
"""May differ between two stores; a version of the measuring code that measures otherwise may not."""

_DIGITS = 5
"""Significant digits of the numbers in the heat map, which shows three."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """A device of the store, or of a store beside it."""

    name: str
    """The device, followed by the store beside this one that measured it."""
    device: str
    rows: pd.DataFrame
    """Its rows of `lmsweep.load(..., pooled=False)`."""
    own: bool
    """Whether the page's store measured it."""
    price: float | None
    """Dollars per hour, if given."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How many times as fast one side is: the geometric mean over cells, and its 95 % interval."""

    mean: float
    low: float | None
    """None below three cells."""
    high: float | None

    def data(self) -> JsonObject:
        """Return what the page's script needs."""
        return {"mean": self.mean, "low": self.low, "high": self.high}

    def text(self) -> str:
        """Return `1.38x [1.31, 1.46]`."""
        interval = "" if self.low is None or self.high is None else f" [{_three(self.low)}, {_three(self.high)}]"
        return f"{_three(self.mean)}x{interval}"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One side against another."""

    baseline: int
    """Its index among the sides."""
    contrast: int
    headline: str
    """The answer in one line."""
    details: list[str]
    """What limits the answer, a sentence each."""
    speed: Speed | None
    """None if no time of both is known."""
    counts: dict[str, int]
    """Verdict -> number of cells."""
    cells: JsonObject | None
    """The cells for the heat map; None if the sides cannot be compared."""
    environment: list[list[str]]
    """Lines of field, baseline, contrast."""
    listing: Listing | None
    """The table that `lmsweep compare` prints; None if the sides cannot be compared."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """All sides and how they compare."""

    sides: list[Side]
    pairs: list[Pair]
    first: Pair
    """The pair that the page shows first."""

    def data(self) -> JsonObject:
        """Return what the page's script needs."""
        return {
            "verdicts": list(VERDICTS),
            "sides": [{"name": side.name, "device": side.device, "own": side.own, "price": side.price}
                      for side in self.sides],
            "pairs": [
                {
                    "baseline": pair.baseline, "contrast": pair.contrast, "headline": pair.headline,
                    "details": pair.details, "counts": pair.counts, "cells": pair.cells,
                    "environment": pair.environment,
                    "speed": pair.speed.data() if pair.speed else None,
                }
                for pair in self.pairs
            ],
        }  # fmt: skip


def compare_devices(results: Results, others: Sequence[str] = (), prices: Sequence[Price] = ()) -> Answer | None:
    """Return how the store's devices, and those of the stores `others`, compare; None if there is a single side.

    others: names of references or locations of stores. Raises RequestError for a price that fits no device, and for two
    that fit one.
    """
    sides = _sides(results, others, prices)
    if len(sides) < 2:
        return None
    both_ways = len(sides) <= MOST_EACH_WAY
    asked = [
        (one, other)
        for one in range(len(sides))
        for other in range(len(sides))
        if one != other and (both_ways or one == 0)
    ]
    pairs = [_pair(sides, one, other) for one, other in asked]
    first = next((pair for pair in pairs if pair.cells), pairs[0])
    return Answer(sides=sides, pairs=pairs, first=first)


def _sides(results: Results, others: Sequence[str], prices: Sequence[Price]) -> list[Side]:
    stores_beside = {name: stores().get(name, name) for name in others if name != PUBLISHED}
    frames = {"": of_present_devices(load(results.store, pooled=False, flops=results.flops))}
    for name, location in stores_beside.items():
        frames[name] = of_present_devices(load(location, pooled=False, flops=results.flops))
    dollars = hourly_dollars(prices, [device for rows in frames.values() for device in _devices_of(rows)])
    by_name = {device: hourly for (device, _), hourly in dollars.items()}
    return [
        Side(
            name=f"{device} ({name.rstrip('/').rpartition('/')[2]})" if name else device,
            device=device,
            rows=rows,
            own=not name,
            price=by_name.get(device),
        )
        for name, frame in frames.items()
        for device, rows in _by_device(frame)
    ]


def priced_here(prices: Sequence[Price], frame: pd.DataFrame) -> list[Price]:
    """Return the prices of devices in the frame; the others are of devices in the stores beside it."""
    return [price for price in prices if any(price.is_of(*device) for device in _devices_of(frame))]


def _devices_of(frame: pd.DataFrame) -> list[tuple[str, str | None]]:
    """Full name and accelerator type of each device."""
    types = frame["accelerator_type"].astype(object).where(frame["accelerator_type"].notna(), None)
    return sorted(set(zip(frame["device_name"], types, strict=True)), key=str)


def _by_device(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    names = in_order(frame.drop_duplicates("device_name"), ["device_name"])["device_name"]
    return [(str(name), frame[frame["device_name"] == name]) for name in names]


def _pair(sides: list[Side], one: int, other: int) -> Pair:
    baseline, contrast = sides[one], sides[other]
    against = f"{contrast.name} against {baseline.name}"
    environment = environment_diff(baseline.rows, contrast.rows, (baseline.name, contrast.name)).frame
    lines = [list(map(str, line)) for line in environment.to_numpy()]
    # Within a store only the driver may differ. Another store was asked for by name, whatever software it ran on.
    across = ("driver_version",) if baseline.own and contrast.own else _SOFTWARE
    try:
        found = compare(
            baseline.rows, contrast.rows, between={"device_name": (baseline.name, contrast.name)}, across=across
        )
    except RequestError as error:
        return Pair(
            baseline=one, contrast=other, headline=f"{against}: no cell can be compared", details=[f"{error}."],
            speed=None, counts={}, cells=None, environment=lines, listing=None,
        )  # fmt: skip
    details = [found.summary] if found.summary else []
    differing = [name for name, *_ in lines if name in across and name != "driver_version"]
    if differing:
        details.append(f"They also differ in {', '.join(differing)}")
    if any(found.unpaired):
        details.append(f"Only one of them has {found.unpaired[0]} and {found.unpaired[1]} more cells")
    speed = _speed(found)
    return Pair(
        baseline=one,
        contrast=other,
        headline=_headline(against, found, speed),
        details=[*(f"{text}." for text in details), *found.floors, *found.warnings],
        speed=speed,
        counts={word: n for word in VERDICTS if (n := Counter(found.frame["verdict"])[word])},
        cells=_cells(found, pd.concat([baseline.rows, contrast.rows])),
        environment=lines,
        listing=found.listing(),
    )


def _headline(against: str, found: Comparison, speed: Speed | None) -> str:
    cells = f"{len(found.frame)} cell{'s' if len(found.frame) > 1 else ''}"
    if speed is None:
        return f"{against}, {cells}"
    by_device = found.frame["value"].str.endswith(".device_time")
    clock = (
        "device time" if by_device.all() else "device time (wall time if unknown)" if by_device.any() else "wall time"
    )
    limited = int((found.frame["verdict"] == HOST_LIMITED).sum())
    return f"{against}, {cells}: {speed.text()} as fast by {clock}" + (f"; {limited} host-limited" if limited else "")


def _speed(found: Comparison) -> Speed | None:
    """The geometric mean of the inverted ratios of times, with the Student t interval of their logarithms."""
    ratios = found.frame["ratio"].to_numpy(float)
    logs = -np.log(ratios[ratios > 0])
    if found.unit != "s" or not len(logs):
        return None
    mean = float(logs.mean())
    if len(logs) < 3:
        return Speed(mean=float(np.exp(mean)), low=None, high=None)
    reach = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs)))
    return Speed(mean=float(np.exp(mean)), low=float(np.exp(mean - reach)), high=float(np.exp(mean + reach)))


def _cells(found: Comparison, rows: pd.DataFrame) -> JsonObject:
    """The columns of `Comparison.frame`, its keys and flags as codes of their labels."""
    frame = found.frame
    keys: dict[str, JsonObject] = {}
    for name in found.keys:
        if name == "value":
            order = list(dict.fromkeys(frame[name]))
        else:
            ranks = natural_ranks(rows, name)
            order = list(rows[name].iloc[np.unique(ranks, return_index=True)[1]])
        labels = list(dict.fromkeys(map(label, order)))
        keys[name] = {"labels": labels, "codes": [labels.index(label(value)) for value in frame[name]]}
    flags: dict[str, int] = {"": 0}
    codes = [flags.setdefault(" ".join(words), len(flags)) for words in frame["flags"]]
    numbers = [
        name for name in ("ratio", "ratio_low", "ratio_high", "wall_ratio", "baseline", "contrast") if name in frame
    ]
    return {
        "keys": keys,
        "unit": found.unit,
        "conditions": [f"{name} {text}" for name, text in found.conditions.items()],
        "verdict": [VERDICTS.index(word) for word in frame["verdict"]],
        "flags": [words.split() for words in flags],
        "flag": codes,
        **{name: [_rounded(value) for value in frame[name]] for name in numbers},
    }


def _three(value: float) -> str:
    """Three digits, trailing zeros included."""
    return f"{value:#.3g}".removesuffix(".")


def _rounded(value: float) -> float | None:
    return None if pd.isna(value) else float(f"{value:.{_DIGITS}g}")
