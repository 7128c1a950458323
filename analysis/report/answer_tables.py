"""The tables of the first answer: the heat maps of a pair, the fields in which its sides differ, and the choices."""

import re
from collections.abc import Iterator, Mapping, Sequence
from math import isnan, log
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from markupsafe import Markup

from lmsweep.analysis.comparison.compare import Comparison, ResultKey
from lmsweep.analysis.data.columns import label, natural_ranks
from lmsweep.analysis.tables.number_format import choose_unit

SIGNS = {
    "faster": ("▲", "better"),
    "slower": ("▼", "worse"),
    "less": ("▼", "better"),
    "more": ("▲", "worse"),
    "same": ("=", "same"),
    "host-limited": ("h", "unsure"),
    "ambiguous": ("?", "unsure"),
    "failed": ("✕", "worse"),
    "fixed": ("✓", "better"),
    "no result": ("", "unsure"),
}
"""Verdict -> its sign and its CSS class: colour alone would not reach every reader."""

FOREST_WIDTH, _FOREST_ROOM = 190, 6
"""Pixels of the drawing beside each choice, and left free at its ends."""

_DEEPEST = log(1.6)
_ROUND = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 5, 10, 20, 50, 100)


class MeanRatio(NamedTuple):
    """The geometric mean over cells of how many times as fast, or as much, one side is, and its 95 % interval."""

    mean: float
    low: float | None
    high: float | None

    def text(self, times: str = "x") -> str:
        """Return `1.38x [1.31, 1.46]`."""
        interval = "" if self.low is None or self.high is None else f" [{three(self.low)}, {three(self.high)}]"
        return f"{three(self.mean)}{times}{interval}"


class HeatCell(NamedTuple):
    """A cell of a heat map; `results` are the numbers of both results in their stores, -1 if there is none."""

    sign: str
    kind: str
    text: str
    depth: int | None = None
    title: str = ""
    words: str = ""
    results: tuple[int, ...] = ()


class HeatRow(NamedTuple):
    """Its keys, each with whether all keys so far are those of the row above, and its cells."""

    heads: list[tuple[str, bool]]
    cells: list[HeatCell | None]


class HeatMap(NamedTuple):
    value: str
    column: str | None
    names: list[str]
    columns: list[str]
    rows: list[HeatRow]


class ForestLine(NamedTuple):
    field: str
    again: bool
    contrast: str
    baseline: str
    ratio: MeanRatio
    kind: str
    at: list[float]
    counts: dict[str, int]
    pair: int


ForestEntry: TypeAlias = tuple[int, str, str, str, MeanRatio, dict[str, int]]
"""Of a pair: its number, the field, the names of contrast and baseline, their ratio and its verdicts."""


class Forest(NamedTuple):
    measure: str
    timed: bool
    one: float
    ticks: list[tuple[float, str]]
    lines: list[ForestLine]


def heat_maps(
    found: Comparison, rows: pd.DataFrame, numbers: Sequence[Mapping[ResultKey, int]], names: tuple[str, str]
) -> list[HeatMap]:
    """Return a heat map for each value. rows: those of both sides; names: of the sides, the baseline first."""
    frame = found.frame
    labels = {name: _labels(frame, rows, name) for name in found.keys}
    codes = {name: [labels[name].index(label(value)) for value in frame[name]] for name in found.keys}
    cells = list(_cells(found, numbers, names))
    column = _column({name: labels[name] for name in found.keys if name != "value"}, codes)
    others = [name for name in found.keys if name not in ("value", column)]
    maps = []
    for code in sorted(set(codes["value"])):
        at = [place for place, one in enumerate(codes["value"]) if one == code]
        columns = sorted({codes[column][place] for place in at}) if column else [0]
        lines: dict[tuple[int, ...], dict[int, HeatCell]] = {}
        for place in at:
            line = lines.setdefault(tuple(codes[name][place] for name in others), {})
            line[codes[column][place] if column else 0] = cells[place]
        above: tuple[int, ...] = ()
        made = []
        for key, line in sorted(lines.items()):
            heads = [
                (labels[name][key[level]], key[: level + 1] == above[: level + 1]) for level, name in enumerate(others)
            ]
            made.append(HeatRow(heads, [line.get(one) for one in columns]))
            above = key
        texts = [labels[column][one] for one in columns] if column else ["ratio"]
        maps.append(HeatMap(labels["value"][code], column, others, texts, made))
    return maps


def _labels(frame: pd.DataFrame, rows: pd.DataFrame, name: str) -> list[str]:
    """The values of a key in their natural order."""
    if name == "value":
        return list(dict.fromkeys(frame[name]))
    first = np.unique(natural_ranks(rows, name), return_index=True)[1]
    return list(dict.fromkeys(map(label, rows[name].iloc[first])))


def _column(labels: Mapping[str, Sequence[str]], codes: Mapping[str, Sequence[int]]) -> str | None:
    """The key for the columns: of those with two to ten values, numbers first, then the one with most."""
    used = {name: len(set(codes[name])) for name in labels}
    fit = [name for name in labels if 2 <= used[name] <= 10]
    return max(fit, key=lambda name: (all(map(_is_number, labels[name])), used[name]), default=None)


def _is_number(text: str) -> bool:
    try:
        return not isnan(float(text))
    except ValueError:
        return False


def _cells(found: Comparison, numbers: Sequence[Mapping[ResultKey, int]], names: tuple[str, str]) -> Iterator[HeatCell]:
    timed = found.unit == "s"
    columns = ["verdict", "ratio", "ratio_low", "ratio_high", "baseline", "contrast", "flags"]
    sides = [
        [-1 if key is None else known.get(key, -1) for key in of_side]
        for of_side, known in zip(found.results, numbers, strict=False)
    ]
    for place, (word, *three_ratios, baseline, contrast, flags) in enumerate(
        found.frame[columns].astype(object).itertuples(index=False, name=None)
    ):
        sign, kind = SIGNS[word]
        ratio, *ends = (float("nan") if pd.isna(one) else 1 / one if timed else float(one) for one in three_ratios)
        if isnan(ratio):
            yield HeatCell(sign, kind, word)
            continue
        known = sorted(end for end in ends if not isnan(end))
        interval = f" [{', '.join(map(three, known))}]" if known else ""
        sizes = [
            f"{name} {_number(number, found.unit)}" for name, number in zip(names, (baseline, contrast), strict=True)
        ]
        yield HeatCell(
            sign,
            kind,
            f"{three(ratio)}×",
            round(15 + 40 * min(1.0, abs(log(ratio)) / _DEEPEST)) if ratio > 0 else None,
            f"{word}{interval}{'; ' if flags else ''}{', '.join(flags)}",
            f"{sizes[1]} against {sizes[0]}: {word}, {three(ratio)}×{interval} as {'fast' if timed else 'much'}",
            tuple(side[place] for side in sides),
        )


def _number(value: float, unit: str) -> str:
    if pd.isna(value):
        return "no number"
    shown = choose_unit(unit, [value])
    return f"{three(value / shown.size)} {shown.name}"


def forest(measure: str, lines: Sequence[ForestEntry], *, timed: bool) -> Forest:
    """Return what the choices change in a measure, the field of the largest change first."""

    def effect(ratio: MeanRatio) -> float:
        return abs(log(ratio.mean))

    largest: dict[str, float] = {}
    for _, field, _, _, ratio, _ in lines:
        largest[field] = max(effect(ratio), largest.get(field, 0.0))
    ends = [end for *_, ratio, _ in lines for end in ratio if end is not None]
    low, high = min(0.9, *ends), max(1.1, *ends)

    def place(value: float) -> float:
        return round(_FOREST_ROOM + (FOREST_WIDTH - 2 * _FOREST_ROOM) * log(value / low) / log(high / low), 2)

    made: list[ForestLine] = []
    for number, field, contrast, baseline, ratio, counts in sorted(
        lines, key=lambda line: (-largest[line[1]], -effect(line[4]))
    ):
        decided = any(SIGNS[word][1] in ("better", "worse") and word not in ("failed", "fixed") for word in counts)
        known = ratio.low is not None and ratio.high is not None
        sure = decided and ratio.low is not None and ratio.high is not None and (ratio.low > 1 or ratio.high < 1)
        kind = "unsure" if not sure else "better" if (ratio.mean > 1) == timed else "worse"
        at = [place(end) for end in ratio if end is not None] if known else [place(ratio.mean)]
        again = bool(made) and made[-1].field == field
        made.append(ForestLine(field, again, contrast, baseline, ratio, kind, at, counts, number))
    ticks = [(place(tick), f"{tick:g}×") for tick in _ticks(low, high)]
    return Forest(measure, timed, place(1), ticks, made)


def _ticks(low: float, high: float) -> list[float]:
    """1 and, far enough apart that they do not touch, round numbers on both sides of it."""
    least = log(high / low) * 34 / FOREST_WIDTH
    kept: list[float] = [1]
    for tick in sorted((one for one in _ROUND if low <= one <= high), key=lambda one: -abs(log(one))):
        if all(abs(log(one / tick)) > least for one in kept):
            kept.append(tick)
    return kept


def with_code(text: str) -> Markup:
    """Return the text as HTML, with what stands between backticks as code."""
    parts = text.split("`")
    return Markup("").join(Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts))


def field_text(field: str, text: str) -> str:
    """Return the value of a field, bytes as GiB and commits by their first digits."""
    if "memory" in field:
        return re.sub(r"\d{6,}", lambda found: f"{three(int(found[0]) / 2**30)} GiB", text)
    return re.sub(r"\b[0-9a-f]{40}\b", lambda found: found[0][:10], text)


def three(value: float) -> str:
    """Return a number with three digits, trailing zeros included; whole from 1000 on."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:#.3g}".removesuffix(".")
