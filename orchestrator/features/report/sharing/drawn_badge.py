"""A badge for a README: a small SVG with the headline of a store, or with one number of one of its cells."""

from collections.abc import Mapping
from html import escape

import pandas as pd

from lmsweep.analysis.comparison.claim import words
from lmsweep.analysis.data.selection import cells_of, select, unit_of
from lmsweep.analysis.tables.number_format import choose_unit
from lmsweep.analysis.tables.pivot import varying_keys
from lmsweep.orchestrator.features.report.answers.headline import headline_of, lead_of, options_of
from lmsweep.orchestrator.features.report.answers.store_answers import answers_of
from lmsweep.orchestrator.features.report.answers.verdicts import Answer
from lmsweep.orchestrator.features.report.drilled import value_text
from lmsweep.orchestrator.features.report.joined import joined
from lmsweep.trials.spec.config import RequestError

COLOURS = {"better": "#2a7d2e", "worse": "#b3372f", "unsure": "#5b6570", "number": "#1f6f8b"}
"""Each has a contrast of 4.5:1 with white."""

LETTER = 6.3
"""Width of a letter in pixels, on average; the SVG stretches its texts to that."""

ROOM = 12
"""Pixels around the text of each half: 6 to each side."""

_TEMPLATE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {message}">
<title>{title}</title>
<clipPath id="r"><rect width="{width}" height="20" rx="3"/></clipPath>
<g clip-path="url(#r)"><path fill="#3f444a" d="M0 0h{left}v20H0z"/>
<path fill="{colour}" d="M{left} 0h{right}v20H{left}z"/></g>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{middle_left}" y="14" textLength="{text_left}">{label}</text>
<text x="{middle_right}" y="14" textLength="{text_right}">{message}</text></g>
</svg>
"""


def badge(location: str, value: str = "", where: Mapping[str, str] | None = None) -> str:
    """Return the SVG of the headline of the store at this location, or of the median of a value in one cell.

    value: `PHASE.METRIC`; where: field -> value, which must select one result. Raises RequestError if they do not, and
    if the store has no such value or compares nothing.
    """
    results = joined(location)
    if value:
        number, title = _of_cell(select(results.measurements, dict(where or {})), value)
        return _drawn(value, number, title, "number")
    if where:
        raise RequestError(
            "--where selects the combination of a number; name the number with --value, such as step.time"
        )
    found = next(answers_of(results.attempts), None)
    if found is None:
        raise RequestError(
            f"{location} compares nothing; name a number of one combination: --value step.time --where ..."
        )
    message, kind = _short_headline(found)
    return _drawn(found.question.measure.name, message, headline_of(found)[0], kind)


def _short_headline(found: Answer) -> tuple[str, str]:
    """Return `10 % faster with bf16`, and better, worse or unsure."""
    if found.cells.empty:
        return "no combination in common", "unsure"
    lead, several = lead_of(found), len(options_of(found)) > 1
    claim = lead.claim
    if several and claim.verdict != "better":
        return f"nothing surely {'faster' if found.timed else 'smaller'} than {found.baseline}", "unsure"
    decided = claim.verdict in ("better", "worse")
    return words(claim, "badge") + (lead.place if decided else ""), claim.verdict if decided else "unsure"


def _of_cell(rows: pd.DataFrame, value: str) -> tuple[str, str]:
    """The number of the only cell, and with its interval."""
    cells = cells_of(rows, rows, value)
    known = cells[cells["median"].notna()]
    if len(known) != 1:
        names = varying_keys(cells, [], [])
        raise RequestError(
            f"--value {value}: {len(known)} results have one; select one of them with --where"
            f"{' by ' + ', '.join(names) if names else ''}"
        )
    low, median, high = (float(known[name].iloc[0]) for name in ("low", "median", "high"))
    unit = choose_unit(unit_of(known, value) or "1", [median])
    nothing = float("nan")
    return value_text(median, nothing, nothing, unit), f"{value} {value_text(median, low, high, unit)}"


def _drawn(label: str, message: str, title: str, kind: str) -> str:
    left, right = (round(LETTER * len(text)) + ROOM for text in (label, message))
    return _TEMPLATE.format(
        label=escape(label), message=escape(message), title=escape(title), colour=COLOURS[kind],
        width=left + right, left=left, right=right, text_left=left - ROOM, text_right=right - ROOM,
        middle_left=left / 2, middle_right=left + right / 2,
    )  # fmt: skip
