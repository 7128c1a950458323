"""The answer as files to archive or to send: one HTML page without scripts, and the same as JSON."""

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from lmsweep import trials
from lmsweep.orchestrator.features.accept import accept_text
from lmsweep.orchestrator.features.accept.acceptance import Acceptance
from lmsweep.trials.results.record_json import json_of
from lmsweep.trials.spec.config import RequestError


@dataclass(frozen=True, kw_only=True)
class AcceptOutput(Acceptance):
    """`accept`, and the file beside its page"""

    advice: str
    made_at: str
    lmsweep_version: str


def write_page(acceptance: Acceptance, path: Path) -> str:
    """Write the page and the JSON beside it, and return that. Raises RequestError if they cannot be written."""
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    advice = accept_text.advice(acceptance)
    text = json_of(AcceptOutput(**vars(acceptance), advice=advice, made_at=made_at, lmsweep_version=trials.__version__))
    try:
        path.write_text(page_of(acceptance, made_at=made_at), "utf-8")
        path.with_suffix(".json").write_text(text + "\n", "utf-8")
    except OSError as error:
        raise RequestError(f"-o {path}: cannot be written ({error.strerror})") from error
    return text


def page_of(acceptance: Acceptance, *, made_at: str) -> str:
    """Return the page as HTML."""
    text = (files(__package__) / "accept.html").read_text("utf-8")
    css = (files("lmsweep.analysis.report") / "report.css").read_text("utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    values = {"a": acceptance, "say": accept_text, "css": Markup(css), "made_at": made_at}
    return template.from_string(text).render(values, version=trials.__version__)
