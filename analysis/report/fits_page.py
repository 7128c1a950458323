"""The page of what `lmsweep fits --format json` printed: its answer in one sentence, and its table with bars."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from lmsweep import trials
from lmsweep.analysis.tables.fit_listing import answered_lines, fits_listing
from lmsweep.trials.spec.config import RequestError

WIDTH = 100
"""Of the longest bar, in pixels."""
_HERE = files("lmsweep.analysis.report")


def fits_page(location: str) -> str:
    """Return the page of the answer in this JSON file. Raises RequestError if it holds none."""
    try:
        return _page(json.loads(Path(location).expanduser().read_text("utf-8")))
    except OSError as error:
        raise RequestError(f"{location}: cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RequestError(
            f"{location}: not what `lmsweep fits --format json` prints; write `lmsweep fits MODEL --format json > FILE`"
        ) from error


def _page(answer: dict[str, Any]) -> str:
    listing = fits_listing(answer)
    lines = answered_lines(answer)
    best = _headline(lines)
    most = max((one["tokens_per_second_between"][1] for one in lines if one["tokens_per_second_between"]), default=1.0)
    bars = [[WIDTH * rate / most for rate in _rates(one)] for one in lines]
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_text("fits.html"))
    return template.render(
        title=listing.title,
        headline=best,
        lines=list(zip(listing.frame.to_dict("records"), bars, strict=True)),
        spent=[name for name in ("hours", "dollars") if name in listing.frame],
        notes=listing.notes,
        width=WIDTH,
        css=Markup(_text("report.css")),
        version=trials.__version__,
    )


def _headline(lines: Sequence[Mapping[str, Any]]) -> str:
    best = next((one for one in lines if one["fits"] is not None), None)
    if best is None:
        return "Nothing is predicted; the reasons are below."
    name = f"{best['gpus']} × {best['device_name']}" if best["gpus"] > 1 else best["device_name"]
    if not best["fits"]:
        return f"No GPU asked about holds it; nearest is {best['method']} on {name}."
    words = f"{name} by {best['method']}, {best['batch']} sequences a GPU"
    if not best["tokens_per_second"]:
        return f"{words}."
    low, high = best["tokens_per_second_between"]
    words += f": {best['tokens_per_second']:,.0f} tokens a second ({low:,.0f} to {high:,.0f})"
    hours = f", {best['hours']:,.3g} hours" if best["hours"] is not None else ""
    return words + hours + (f", ${best['dollars']:,.0f}." if best["dollars"] is not None else ".")


def _rates(one: Mapping[str, Any]) -> list[float]:
    between = one["tokens_per_second_between"]
    return [one["tokens_per_second"], *between] if between else []


def _text(name: str) -> str:
    return _HERE.joinpath(name).read_text(encoding="utf-8")
