"""The answer as files to archive or to send: one HTML page without scripts, and the same as JSON."""

import json
import math
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from lmsweep import trials
from lmsweep.analysis.acceptance.accept_text import (
    advice,
    explanations,
    line_of,
    share_text,
    slowest_of,
    sources,
    telemetry_words,
    title_of,
)
from lmsweep.analysis.acceptance.acceptance import Acceptance
from lmsweep.analysis.acceptance.part_verdicts import PartVerdict
from lmsweep.trials.spec.config import RequestError

AXIS = 0.5
"""Largest difference that a part's bar shows, as a logarithm of the ratio of times."""


def as_json(acceptance: Acceptance) -> dict[str, Any]:
    """Return the answer in SI units; null is unknown, with a reason beside it."""
    return asdict(acceptance) | {
        "advice": advice(acceptance),
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "lmsweep_version": trials.__version__,
    }


def write_page(acceptance: Acceptance, path: Path) -> None:
    """Write the page, and the JSON beside it. Raises RequestError if they cannot be written."""
    content = as_json(acceptance)
    try:
        path.write_text(page_of(acceptance, made_at=content["made_at"]), "utf-8")
        path.with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise RequestError(f"-o {path}: cannot be written ({error.strerror})") from error


def page_of(acceptance: Acceptance, *, made_at: str) -> str:
    """Return the page as HTML."""
    text = files("lmsweep.analysis.acceptance").joinpath("accept.html").read_text("utf-8")
    templates = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return templates.from_string(text).render(
        title=title_of(acceptance),
        acceptance=acceptance,
        advice=advice(acceptance),
        sources=sources(acceptance),
        explanations=list(explanations(acceptance)),
        line=line_of,
        bar=bar_of,
        share=share_text,
        slowest=slowest_of,
        telemetry=telemetry_words,
        made_at=made_at,
        version=trials.__version__,
    )


def bar_of(part: PartVerdict) -> dict[str, float] | None:
    """Return the places of a part's marks, from 0 to 100: 50 is the expected time, to the right is slower."""
    if not (part.ratio and part.expected_low and part.expected_high and part.expected_seconds):
        return None

    def place(ratio: float) -> float:
        return round(50 * (1 + max(-1.0, min(1.0, math.log(ratio) / AXIS))), 1)

    low, high = (place(end / part.expected_seconds) for end in (part.expected_low, part.expected_high))
    return {"low": low, "width": round(high - low, 1), "at": place(part.ratio)}
