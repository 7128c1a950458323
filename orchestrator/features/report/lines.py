"""A chart of points: which key is its x axis, which points make a line, and each line's panel, colour and dash."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.analysis.data.columns import NO_VALUE, label, natural_ranks
from lmsweep.analysis.tables.measured_grids import independent
from lmsweep.orchestrator.features.report.drilled import JsonObject
from lmsweep.trials.results.roles import Role, fields_with

COLOURS, DASHES = 7, 4
"""How many colours and dashes tell lines apart; page.css and charts.js have as many."""

Codes: TypeAlias = dict[str, NDArray[np.int64]]
"""Name of a key -> the rank of its value at each point."""
Line: TypeAlias = tuple[int, ...]
"""What distinguishes a line from others: the rank of its value for each of the keys in which lines differ."""

UNUSED_LABELS = {"none", NO_VALUE}
"""Labels of a field that a configuration does not use."""
MOST_LINES, MOST_PANELS = 8, 12
"""Lines of one panel, and panels of a chart; the lines that are left out are counted below it."""
LEAST_POINTS = 1.5
"""If lines have at least so many points on average, most of them have several."""
FEW_LINES, FEW_PANELS = 6, 6
"""So many lines a reader can follow in one panel, and so many panels fit on a screen."""


class _Lines(NamedTuple):
    keys: Sequence[str]
    """The keys in which lines differ."""
    rows: Mapping[Line, NDArray[np.int64]]
    """The rows of the points of each line."""

    def part(self, line: Line, names: Sequence[str]) -> Line:
        """What distinguishes the line by these keys alone."""
        return tuple(line[self.keys.index(name)] for name in names)

    def parts(self, names: Sequence[str]) -> list[Line]:
        return sorted({self.part(line, names) for line in self.rows})


def chart_of(
    points: pd.DataFrame,
    keys: Sequence[str],
    *,
    title: str,
    unit: str,
    colour: str = "",
    order: Sequence[str] = (),
    over: str = "",
) -> JsonObject:
    """Return the lines of these points as JSON for the page's script and `chart_files`; empty if there are none.

    points: the columns `keys`, `y`, `low`, `high` in the printed unit, `text`, `cell` (its number on the page) and
    `limit`, the y of a cross for what ran out of memory, else NaN. colour: the key that colours show if it is a line's;
    order: its values as the legend lists them. over: the key of the x axis, if it is known.

    The object has `x` (name of the key), `ticks` and their `labels`, `numeric` (whether x has numbers), `ordered`
    (whether points are joined), `legend` (its title), `panels` (their titles), `left` (number of lines left out), and
    `traces`, one for each line: its `name`, `panel`, `colour` and `dash` by number, and for each point `x`, `y`, the
    distances `above` and `below` of the interval's ends, `text` and `cell`; `out` has the places of crosses.
    """
    shown = points[points["y"].notna() | points["limit"].notna()]
    codes = {name: natural_ranks(shown, name) for name in keys} if len(shown) else {}
    if order and colour in codes:
        codes[colour] = shown[colour].map(list(order).index).to_numpy()
    differing = _differing(shown, codes)
    if shown["y"].notna().sum() < 2 or not differing:
        return {}
    x = over if over in differing else max(differing, key=partial(_rank_as_x, shown, codes, differing, colour=colour))
    lines = _lines(codes, [name for name in differing if name != x], len(shown))
    panel_keys = _facets(lines)
    panels, left_out = _panels(lines, panel_keys)
    in_panels = _Lines(lines.keys, {line: lines.rows[line] for of_panel in panels.values() for line in of_panel})
    label_of = {name: dict(zip(codes[name], map(label, shown[name]), strict=True)) for name in lines.keys}
    named_by = _without_protocol([name for name in lines.keys if name not in panel_keys], lines)
    can_be_off = [name for name in named_by if not UNUSED_LABELS.isdisjoint(label_of[name].values())]
    names = _line_names(lines, named_by, label_of, can_be_off)

    numbers = _numbers(shown, x)  # by code, as the labels
    is_ordered = numbers is not None or x in ("model", over)
    labels = dict(sorted(zip(codes[x], map(label, shown[x]), strict=True)))
    return {
        "title": title,
        "unit": unit,
        "x": x,
        "ticks": [numbers[code] for code in labels] if numbers is not None else list(map(int, labels)),
        "labels": list(labels.values()),
        "numeric": numbers is not None,
        "ordered": is_ordered,
        "legend": ", ".join([name for name in named_by if name not in can_be_off] or named_by),
        "panels": [
            ", ".join(_panel_part(name, label_of[name][code]) for name, code in zip(panel_keys, one, strict=True))
            for one in panels
        ],
        "traces": _traces(
            shown.assign(x=codes[x]),
            [*panels.values()],
            rows_of=lines.rows,
            names=names,
            looks=_looks(in_panels, named_by, colour),
            numbers=numbers,
            shifts=dict.fromkeys(names.values(), 0.0) if is_ordered else _shifts(names.values()),
        ),
        "left": left_out,
    }


def _differing(points: pd.DataFrame, codes: Codes) -> list[str]:
    """Return the keys that can distinguish lines or be the x axis."""
    # A number that another key determines, such as the batch size at a fixed number of tokens, distinguishes no lines;
    # the table shows it.
    free = independent(codes)
    kept = [name for name in codes if name in free or not pd.api.types.is_numeric_dtype(points[name])]
    return [name for name in kept if len(set(codes[name])) > 1]


def _rank_as_x(
    points: pd.DataFrame, codes: Codes, names: Sequence[str], name: str, *, colour: str
) -> tuple[bool, bool, int]:
    """Rank a key as x axis, the largest first: any key but that of the colours, then one with several points for most
    lines, then the customary one.
    """
    has_no_other_use = name != colour or len(names) == 1
    line_keys = [codes[other] for other in names if other != name]
    lines = len(set(zip(*line_keys, strict=True))) if line_keys else 1
    has_several_points = len(points) / lines >= LEAST_POINTS
    has_numbers = _numbers(points, name) is not None
    return has_no_other_use, has_several_points, {"context_length": 3, "model": 2}.get(name, int(has_numbers))


def _numbers(points: pd.DataFrame, name: str) -> dict[int, float] | None:
    """Return the numbers of a key by its code; None unless all its values are numbers."""
    column = points[name]
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column) or column.isna().any():
        return None
    return dict(zip(natural_ranks(points, name).tolist(), map(float, column), strict=True))


def _lines(codes: Codes, names: Sequence[str], count: int) -> _Lines:
    """Return the lines. names: the keys that distinguish them. count: of points."""
    found: dict[Line, list[int]] = {}
    for place in range(count):
        found.setdefault(tuple(int(codes[name][place]) for name in names), []).append(place)
    return _Lines(names, {line: np.array(places) for line, places in found.items()})


def _facets(lines: _Lines) -> list[str]:
    """Return the keys, at most two, that divide many lines into panels: first so that the legend has at most MOST_LINES
    lines, then so that the panels fit on a screen, then so that both are few.
    """
    if len(lines.rows) <= FEW_LINES:
        return []
    possible = [chosen for size in range(3) for chosen in combinations(lines.keys, size)]

    def panels_of(chosen: Sequence[str]) -> int:
        return len(lines.parts(chosen))

    def rank(chosen: Sequence[str]) -> tuple[int, bool, int]:
        panels, legend = panels_of(chosen), len(lines.parts([name for name in lines.keys if name not in chosen]))
        left_out = max(legend - MOST_LINES, 0)
        return left_out, panels > FEW_PANELS, panels + legend

    best = min((chosen for chosen in possible if panels_of(chosen) <= MOST_PANELS), key=rank)
    return list(best)


def _without_protocol(names: list[str], lines: _Lines) -> list[str]:
    """Return the keys by which lines are named: without how long each was measured, if the others distinguish them."""
    kept = [name for name in names if name not in fields_with(Role.PROTOCOL)]
    return kept if len(lines.parts(kept)) == len(lines.rows) else names


def _panels(lines: _Lines, panel_keys: Sequence[str]) -> tuple[dict[Line, list[Line]], int]:
    """Return the lines of each panel, and how many are left out."""
    panels: dict[Line, list[Line]] = {}
    left_out = 0
    for line in sorted(lines.rows):
        panel = lines.part(line, panel_keys)
        if panel not in panels and len(panels) == MOST_PANELS:
            left_out += 1
            continue
        of_panel = panels.setdefault(panel, [])
        if len(of_panel) == MOST_LINES:
            left_out += 1
        else:
            of_panel.append(line)
    return panels, left_out


def _line_names(
    lines: _Lines, named_by: Sequence[str], label_of: Mapping[str, Mapping[int, str]], can_be_off: Sequence[str]
) -> dict[Line, str]:
    """Name each line by its values without `none`. A value comes with its field's name if the field can be off (has
    such a value in some line), or another field has the same value.

    label_of: the labels of each field's values. can_be_off: the fields that can be off.
    """
    texts = {
        line: {name: label_of[name][code] for name, code in zip(named_by, lines.part(line, named_by), strict=True)}
        for line in lines.rows
    }
    texts_of_fields = [{of_line[name] for of_line in texts.values()} for name in named_by]
    fields_with_text = Counter(text for of_field in texts_of_fields for text in of_field)  # text -> how many have it

    def name_of(of_line: dict[str, str]) -> str:
        used = {name: text for name, text in of_line.items() if text not in UNUSED_LABELS} or of_line
        return ", ".join(
            f"{name} {text}" if name in can_be_off or fields_with_text[text] > 1 else text
            for name, text in used.items()
        )

    return {line: name_of(of_line) for line, of_line in texts.items()}


def _panel_part(name: str, text: str) -> str:
    return text if name in ("model", "mode", "option", "part", "value") else f"{name} {text}"


def _traces(
    points: pd.DataFrame,
    panels: Sequence[Sequence[Line]],
    *,
    rows_of: Mapping[Line, NDArray[np.int64]],
    names: Mapping[Line, str],
    looks: Mapping[Line, tuple[int, int]],
    numbers: dict[int, float] | None,
    shifts: Mapping[str, float],
) -> list[dict[str, Any]]:
    """Return the `traces` of `chart_of`, whose columns `points` has, and `x`, the code on the x axis. rows_of: the rows
    of each line. numbers: code -> position on a numeric x axis."""
    at = points["x"].to_numpy()
    drawn = {name: points[name].to_numpy(float) for name in ("y", "low", "high", "limit")}
    out = np.isnan(drawn["y"])  # ran out of memory: a cross
    drawn["y"] = np.where(out, drawn["limit"], drawn["y"])
    texts, cells, traces = points["text"].to_numpy(), points["cell"].to_numpy(int), []
    for place, of_panel in enumerate(panels):
        for line in of_panel:
            name, (hue, dash) = names[line], looks[line]
            rows = rows_of[line][np.argsort(at[rows_of[line]], kind="stable")]
            crosses = np.flatnonzero(out[rows]).tolist()
            traces.append(
                _trace({end: of_points[rows] for end, of_points in drawn.items()}, at[rows], numbers, shifts[name])
                | {"text": texts[rows].tolist(), "cell": cells[rows].tolist(), "out": crosses}
                | {"name": name, "panel": place, "colour": hue, "dash": dash}
            )
    return traces


def _trace(
    points: dict[str, NDArray[np.float64]], codes: NDArray[np.int64], numbers: dict[int, float] | None, shift: float
) -> dict[str, Any]:
    at = [numbers[int(code)] if numbers is not None else int(code) + shift for code in codes]

    def reach(end: NDArray[np.float64]) -> list[float]:
        return [0 if np.isnan(one) else _short(abs(one)) for one in end - points["y"]]

    return {
        "x": [_short(one) for one in at],
        "y": [_short(one) for one in points["y"]],
        "above": reach(points["high"]),
        "below": reach(points["low"]),
    }


def _short(value: float) -> float:
    """Six digits: more than a screen can show."""
    return float(f"{value:.6g}")


def _looks(lines: _Lines, names: Sequence[str], colour: str) -> dict[Line, tuple[int, int]]:
    """Return the colour and dash of each line: the same for the same values in every panel. names: keys in the legend.

    attention                  colour and dash by attention
    attention and precision    colour by attention, which has more values; dash by precision
    more keys than dashes      the first line 0, 0, the second 1, 0, ..., the eighth 0, 1, ...
    """

    def index_by(keys: Sequence[str]) -> dict[Line, int]:
        """The index of each line's values of these keys among those of all lines."""
        index_of = {part: index for index, part in enumerate(lines.parts(keys))}
        return {line: index_of[lines.part(line, keys)] for line in lines.rows}

    count = {name: len(lines.parts([name])) for name in names}
    few = [name for name in names if count[name] <= COLOURS]
    shade = colour if colour in few else max(few, key=lambda name: count[name], default=None)
    rest = [name for name in names if name != shade]
    hues, dashes = index_by([shade] if shade else []), index_by(rest)
    most_dashes = len(lines.parts(rest))
    if most_dashes <= 1:
        return {line: (hue, hue % DASHES) for line, hue in hues.items()}
    if most_dashes <= DASHES:
        return {line: (hue, dashes[line]) for line, hue in hues.items()}
    return {line: (index % COLOURS, index // COLOURS % DASHES) for line, index in index_by(names).items()}


def _shifts(names: Iterable[str]) -> dict[str, float]:
    """Return how far each line is moved along an axis of names, so that intervals do not cover each other: by 9 % of
    the distance between two names of the axis, and by 60 % for all lines together at most.
    """
    each = list(dict.fromkeys(names))
    step = min(0.09, 0.6 / len(each))
    return {name: step * (place - (len(each) - 1) / 2) for place, name in enumerate(each)}
