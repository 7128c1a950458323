"""The page of the answers: the best in one sentence, and their table with bars."""

from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from lmsweep import trials
from lmsweep.orchestrator.features.fits.fit import Fit, FitsOutput
from lmsweep.orchestrator.features.fits.fit_listing import answered_lines, fits_listing

WIDTH = 100
"""Of the longest bar, in pixels."""


def fits_page(answer: FitsOutput) -> str:
    """Return the answer as HTML."""
    listing = fits_listing(answer)
    lines = answered_lines(answer)
    best = _headline(lines)
    most = max((one.tokens_per_second_between[1] for one in lines if one.tokens_per_second_between), default=1.0)
    bars = [[WIDTH * rate / most for rate in _rates(one)] for one in lines]
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_text(__package__, "fits.html"))
    return template.render(
        title=listing.title,
        headline=best,
        lines=list(zip(listing.frame.to_dict("records"), bars, strict=True)),
        spent=[name for name in ("hours", "dollars") if name in listing.frame],
        notes=listing.notes,
        width=WIDTH,
        css=Markup(_text("lmsweep.analysis.report", "report.css")),
        version=trials.__version__,
    )


def _headline(lines: Sequence[Fit]) -> str:
    best = next((one for one in lines if one.fits is not None), None)
    if best is None:
        return "Nothing is predicted; the reasons are below."
    name = f"{best.gpus} × {best.device_name}" if best.gpus > 1 else best.device_name
    if not best.fits:
        return f"No GPU asked about holds it; nearest is {best.method} on {name}."
    words = f"{name} by {best.method}, {best.batch} sequences a GPU"
    if not _rates(best):
        return f"{words}."
    rate, low, high = _rates(best)
    words += f": {rate:,.0f} tokens a second ({low:,.0f} to {high:,.0f})"
    hours = f", {best.hours:,.3g} hours" if best.hours is not None else ""
    return words + hours + (f", ${best.dollars:,.0f}." if best.dollars is not None else ".")


def _rates(one: Fit) -> list[float]:
    between = one.tokens_per_second_between
    return [one.tokens_per_second, *between] if one.tokens_per_second and between else []


def _text(package: str, name: str) -> str:
    return (files(package) / name).read_text("utf-8")
