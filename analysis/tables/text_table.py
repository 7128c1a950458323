"""The texts of a pivot or a listing: caption, cells and notes, in the markup of any output format."""

import html
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import NO_VALUE, is_null, label
from lmsweep.analysis.tables.listing import HIGH, LOW, Listing
from lmsweep.analysis.tables.number_format import choose_unit, interval_texts, p_text
from lmsweep.analysis.tables.pivot import Table
from lmsweep.trials.results.flag_meanings import ADVICE_OF
from lmsweep.trials.results.metrics import Unit
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.spec.reference import REFERENCES, short_names

UNKNOWN = "n/a"
"""Printed in a cell whose trial succeeded but whose value is unknown."""

SHORTENED = (*REFERENCES, "workload")
"""Keys whose values may be references. Those are shown by their last part, unless two have the same."""

MORE_ON_FLAGS = "More on a flag: lmsweep doctor FLAG."


def flag_lines(counts: Mapping[str, int] | Mapping[Flag, int]) -> list[str]:
    """Return a sentence for each flag with the number of its results: the most frequent first, then by name."""
    return [f"{flag} ({n}): {_meaning(flag)}" for flag, n in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]


def _meaning(flag: str) -> str:
    return ADVICE_OF.get(flag, "this lmsweep does not know it").partition(". ")[0].rstrip(".") + "."


@dataclass(frozen=True, kw_only=True)
class Markup:
    """How an output format writes text and marks."""

    escape: Callable[[str], str] = str
    mark: str = " ({})"
    """Template for the letters that refer from a cell to its notes."""


HTML = Markup(escape=html.escape, mark="<sup>{}</sup>")


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """The texts of a table, escaped for an output format."""

    caption: str
    conditions: str
    """The keys that have the same value in all cells; may be empty."""
    cells: pd.DataFrame
    """Texts; index and columns are MultiIndexes of texts."""
    notes: list[str]
    """The explanations of the letters in the cells, then the table's own notes."""
    words: tuple[str, ...] = ()
    """Labels of the columns of a listing that hold words."""
    has_flags: bool = False


def sheet_of(table: Table | Listing, markup: Markup) -> Sheet:
    return _of_pivot(table, markup) if isinstance(table, Table) else _of_listing(table, markup)


def _of_pivot(table: Table, markup: Markup) -> Sheet:
    """Return a sheet with the row keys as index, and columns of the column keys and the value; each cell has a row in
    `table.cells`, with the columns of `lmsweep.analysis.data.selection.cells_of`."""
    cells, escape = table.cells, markup.escape
    units = {value: choose_unit(unit, _numbers(table, value)) for value, unit in table.units.items() if unit}
    letters = _letters([*chain.from_iterable(cells["flags"]), *cells["reason"]])
    contents = cells[["value", "status", "median", "low", "high", "flags", "reason"]].itertuples(index=False, name=None)
    texts = [_cell(*cell, unit=units.get(value), letters=letters, markup=markup) for value, *cell in contents]
    written = cells.assign(text=pd.Series(texts, cells.index, dtype=object))
    wide = replace(table, cells=written).wide("text", escape(NO_VALUE))
    names = {value: f"{value} ({units[value].name})" if value in units else value for value in table.units}
    columns, levels = _column_heads(wide, names)
    in_caption = [] if "value" in levels else [*names.values()]
    if "mode" in table.conditions and any(value.startswith("step.") for value in table.units):
        in_caption.append(f"mode {table.conditions['mode']}")  # it says how much of a training step `step` covers
    measured = f"median [95 % interval]{' (notes below)' if letters else ''}"
    measured = f"{', '.join(in_caption)}: {measured}" if in_caption else measured
    # A user's model is called by its model_code in the key `model`, so that condition would repeat it.
    models = cells["model"].unique() if "model" in table.rows else ()
    conditions = _conditions(table.conditions, [*in_caption, *(f"model_code {model}" for model in models)])
    heads = _labels(columns, levels, escape)
    differing = ", ".join(f"{name} ({some})" for name, some in table.differing.items())
    return Sheet(
        caption=escape("; ".join(filter(None, (table.title, measured, table.counted)))),
        conditions=escape("; ".join(filter(None, [conditions, differing and f"cells differ in {differing}"]))),
        cells=wide.set_axis(_labels(wide.index, table.rows, escape)).set_axis(heads, axis="columns"),
        notes=_explained(letters, markup) + [escape(note) for note in table.notes],
        has_flags=not letters.keys().isdisjoint(ADVICE_OF),
    )


def _column_heads(wide: pd.DataFrame, names: Mapping[str, str]) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Return the keys of each column and what they are called: without a single value, which the caption names."""
    keys: list[Any] = wide.columns.to_list()
    levels = axis_names(wide.columns)
    if len(names) == 1 and len(levels) > 1:
        return [key[:-1] for key in keys], levels[:-1]
    return [(*key[:-1], names[key[-1]]) for key in keys], levels


def _of_listing(listing: Listing, markup: Markup) -> Sheet:
    frame, escape = listing.frame, markup.escape
    intervals = [f"{name}{end}" for name in listing.units for end in (LOW, HIGH)]
    sources = ("flags", "reason", *chain.from_iterable(listing.footnotes.values()))
    without_column = {*listing.keys, "status", *intervals, *sources}  # they are in other cells, or in notes
    shown = [name for name in frame.columns if name not in without_column]
    footnotes = listing.footnotes or {shown[0]: tuple(name for name in ("flags", "reason") if name in frame)}
    noted = {name: _footnotes(frame, named) for name, named in footnotes.items() if named}
    letters = _letters(word for of_lines in noted.values() for words in of_lines for word in words)
    units = {}
    for name, unit in listing.units.items():
        together = listing.together if name in listing.together else (name,)
        units[name] = choose_unit(unit, frame[list(together)].to_numpy(float, na_value=np.nan).ravel())
    texts = {name: _column_texts(listing, name, units.get(name), escape) for name in shown}
    for line, status in enumerate(frame.get("status", ())):
        if not is_null(status) and status != Status.OK:  # a line without numbers says how its trial ended
            texts[shown[0]][line] = escape(status)
    for name, of_lines in noted.items():
        marks = [_mark(words, letters, markup) for words in of_lines]
        texts[name] = [text + mark for text, mark in zip(texts[name], marks, strict=True)]
    cells = pd.DataFrame(texts, dtype=object)
    names = [f"{name} ({units[name].name})" if name in units and units[name].name != "1" else name for name in shown]
    heads = _labels([(name,) for name in names], [""], escape)
    lines = _labels(frame[listing.keys].itertuples(index=False), listing.keys, escape)
    return Sheet(
        caption=escape(listing.title),
        conditions=escape(_conditions(listing.conditions)),
        cells=cells.set_axis(lines).set_axis(heads, axis="columns"),
        notes=_explained(letters, markup) + [escape(note) for note in listing.notes],
        has_flags=not letters.keys().isdisjoint(ADVICE_OF),
        words=tuple(escape(name) for name in shown if name not in units),
    )


def _column_texts(listing: Listing, name: str, unit: Unit | None, escape: Callable[[str], str]) -> list[str]:
    """Return the texts of a column of a listing: of numbers if it has a unit, else of words."""
    column = listing.frame[name]
    if unit is None:
        short = short_names(column) if name in SHORTENED else {}
        return [escape(short.get(value, label(value))) for value in column]
    if name in listing.decimals:
        return [f"{number:.{listing.decimals[name]}f}" for number in column / unit.size]
    if name in listing.p_values:
        return [NO_VALUE if np.isnan(p) else escape(p_text(p)) for p in column.to_numpy(float)]
    ends = [listing.frame.get(f"{name}{end}", column * np.nan).to_numpy(float) for end in (LOW, HIGH)]
    return [
        NO_VALUE if np.isnan(number) else escape(_number(number, low, high, unit))
        for number, low, high in zip(column.to_numpy(float), *ends, strict=True)
    ]


def _letters(marks: Iterable[str]) -> dict[str, str]:
    """Return a letter for each flag and each reason, the most frequent first, then by name; a number from the 27th."""
    counts = Counter(filter(None, marks))
    noted = sorted(counts, key=lambda what: (-counts[what], what))
    return {what: chr(ord("a") + i) if i < 26 else str(i) for i, what in enumerate(noted)}


def _footnotes(frame: pd.DataFrame, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the footnotes of each line, from columns of sentences ("" is none) or of tuples of words."""
    lines: Iterable[tuple[Any, ...]] = zip(*(frame[name].to_list() for name in columns), strict=True)
    words_of_lines = [[(cell,) if isinstance(cell, str) else cell or () for cell in line] for line in lines]
    return [tuple(filter(None, chain.from_iterable(words))) for words in words_of_lines]


def _explained(letters: dict[str, str], markup: Markup) -> list[str]:
    said = {what: f"{what}: {_meaning(what)}" if what in ADVICE_OF else what for what in letters}
    return [f"{markup.mark.format(letter).strip()} {markup.escape(said[what])}" for what, letter in letters.items()]


def _cell(
    status: str,
    median: float,
    low: float,
    high: float,
    flags: tuple[str, ...],
    reason: str,
    *,
    unit: Unit | None,
    letters: dict[str, str],
    markup: Markup,
) -> str:
    if status != Status.OK:
        text = markup.escape(status)
    elif reason:
        text = markup.escape(UNKNOWN)
    else:
        assert unit is not None, "a value that has numbers has a unit"
        text = markup.escape(_number(median, low, high, unit))
    return text + _mark([*flags, reason], letters, markup)


def _mark(words: Iterable[str], letters: dict[str, str], markup: Markup) -> str:
    """Return the letters of the notes on these flags and reasons; empty without any."""
    found = sorted({letters[word] for word in words if word})
    return markup.mark.format(", ".join(found)) if found else ""


def _number(median: float, low: float, high: float, unit: Unit) -> str:
    number, interval = interval_texts(median / unit.size, low / unit.size, high / unit.size)
    return number if interval is None else f"{number} {interval}"


def _numbers(table: Table, value: str) -> np.ndarray:
    values = table.together if value in table.together else (value,)
    return table.cells["median"][table.cells["value"].isin(values)].to_numpy()


def axis_names(axis: pd.Index) -> list[str]:
    return [str(name) for name in axis.names]


def header_of_keys(keys: list[str], levels: list[str]) -> list[list[str]]:
    """Return the lines of the header of each row key. Names of column keys (`levels`) stand above the last one:
    ["", "model"] and ["precision", "context"]. A listing has no such keys, and `levels` [""]."""
    if levels == [""]:
        return [[name] for name in keys]
    return [*([*[""] * len(levels), name] for name in keys[:-1]), [*levels, keys[-1]]]


def _labels(keys: Iterable[tuple[Any, ...]], names: list[str], escape: Callable[[str], str]) -> pd.MultiIndex:
    listed = [*keys]
    short = [short_names(key[level] for key in listed) if name in SHORTENED else {} for level, name in enumerate(names)]
    texts = [
        tuple(escape(known.get(value, label(value))) for known, value in zip(short, key, strict=True)) for key in listed
    ]
    return pd.MultiIndex.from_tuples(texts, names=[escape(name) for name in names])


def _conditions(found: dict[str, str], left_out: Collection[str] = ()) -> str:
    words = {name: short_names([text]).get(text, text) if name in SHORTENED else text for name, text in found.items()}
    return ", ".join(f"{name} {text}" for name, text in words.items() if f"{name} {text}" not in left_out)
