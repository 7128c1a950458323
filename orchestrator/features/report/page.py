"""Assembles the report: one HTML file with the answer to a store's question, charts, tables, and their script."""

import hashlib
import json
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from lmsweep import trials
from lmsweep.analysis.tables.render import page_css, plain_json
from lmsweep.orchestrator.features.report.answers.question import DEVICE
from lmsweep.orchestrator.features.report.answers.verdicts import Answer
from lmsweep.orchestrator.features.report.content import Content, content_of
from lmsweep.orchestrator.features.report.drilled import Json, drilled
from lmsweep.orchestrator.features.report.joined import text_as_objects
from lmsweep.orchestrator.features.report.views import STRIP
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.spec.config import RequestError

_SCRIPTS = ("state", "tables", "charts", "drill", "views", "report")
_HERE = files(__package__)


def write_report(
    location: str,
    output: str | Path,
    others: Sequence[str] = (),
    prices: Sequence[Price] = (),
    across: Sequence[str] = (),
    *,
    history: bool = False,
) -> int:
    """Write the page to a file and return its size in bytes. Arguments and errors are those of `content_of`."""
    return write_page(page_with(content_of(location, others, prices, across, history=history)), Path(output))


def write_page(page: Iterable[str], output: Path) -> int:
    """Write the pieces of a page to a file and return its size in bytes. Raises RequestError if it cannot."""
    try:
        with output.open("w", encoding="utf-8") as file:
            file.writelines(page)
    except OSError as error:
        raise RequestError(f"-o {output}: cannot be written ({error.strerror})") from error
    return output.stat().st_size


@text_as_objects()
def page_with(content: Content) -> Iterator[str]:
    """Return the page with this content, in pieces."""
    first, views, sections = content.first, content.views, content.sections
    figures = {section.id: [figure._asdict() for figure in section.figures] for section in sections}
    tables = {table.name: table.csv for section in sections for table in section.tables}
    tables |= {view.name: view.csv for view in views if view.csv}
    scripts = [_asset("plotly-basic.min.js"), "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)]
    templates = Environment(loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined)
    templates.globals.update(with_code=with_code, strip=STRIP)
    return templates.get_template("template.html").stream(
        name=" and ".join(content.results.named),
        question=content.question,
        version=trials.__version__,
        made_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        policy=_policy(scripts),
        css=Markup(page_css()),
        summary=content.summary,
        headline=content.headline,
        details=content.details,
        apart=first.apart if first else (),
        sides=[option.name for option in first.question.options] if first else [],
        prices=_prices(content.dollars, first),
        views=views,
        sections=sections,
        data=_json(drilled(content.results.measurements)),
        drawn=_json([view.data() for view in views]),
        figures=_json(figures),
        tables=_json({name: b64encode(zlib.compress(text.encode())).decode() for name, text in tables.items()}),
        scripts=[Markup(script) for script in scripts],
    )


class Priced(NamedTuple):
    """A device of the first answer with its price."""

    name: str
    hourly: float | None
    """Dollars per hour; None if unknown."""
    speed: float
    """How many times as fast its steps are as the first device's, by wall time: that is what is paid for."""
    by_device: float
    """The same by device time: what hosts alike would leave of it; NaN if unknown."""
    speeds: list[float]
    """By wall time in each cell."""


def _prices(dollars: Mapping[str, float], first: Answer | None) -> list[Priced]:
    """Return the devices of the first answer."""
    if first is None or first.question.fields != (DEVICE,) or not first.timed or first.cells.empty:
        return []
    priced = []
    for place, option in enumerate(first.question.options):  # the baseline first, which has no cells
        cells = first.of(option.name)
        ratios = cells["wall_ratio"].fillna(cells["ratio"]) if "wall_ratio" in cells else cells["ratio"]
        speeds = (1 / ratios[ratios > 0]).tolist() if place else []  # a ratio is of times
        claim = first.claim(option.name) if place else None
        by_wall, by_device = (claim.of_steps.mean, claim.of_gpu.mean) if claim else (1.0, 1.0)
        priced.append(Priced(option.name, dollars.get(option.values[DEVICE]), by_wall, by_device, speeds))
    return priced


def with_code(text: str) -> Markup:
    """Return the text as HTML, with what stands between backticks as code."""
    parts = text.split("`")  # every second one stood between backticks
    return Markup("").join(Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts))


def _policy(scripts: list[str]) -> str:
    """The Content Security Policy: only these scripts run, whatever a store contains, and nothing else is loaded."""
    digests = (b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _json(content: Json) -> Markup:
    """JSON for a script element: no markup in it can end the element."""
    try:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:  # a statistic of samples near the largest number is infinite
        text = json.dumps(plain_json(content), ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _asset(name: str) -> str:
    return _HERE.joinpath("assets", name).read_text(encoding="utf-8").strip()


def _text(name: str) -> str:
    return _HERE.joinpath(name).read_text(encoding="utf-8")
