"""The answer as files to archive or to send: one HTML page without scripts, and the same as JSON."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from lmsweep import trials
from lmsweep.analysis.acceptance.accept_text import advice, compared_with, explanations, line_of, telemetry, title_of
from lmsweep.analysis.acceptance.acceptance import Acceptance
from lmsweep.trials.spec.config import RequestError


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
        about=[*compared_with(acceptance), *telemetry(acceptance)],
        explanations=explanations(acceptance),
        line=line_of,
        made_at=made_at,
        version=trials.__version__,
    )
