"""Assembles the report: one HTML file with a store's results, their charts, and the scripts that show them."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from lmsweep import trials
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.report.answer_tables import FOREST_WIDTH, SIGNS, field_text, with_code
from lmsweep.analysis.report.first_answer import first_answer, priced_here, stores_beside
from lmsweep.analysis.report.page_data import Json, page_data
from lmsweep.analysis.report.sections import beside_section, sections_of
from lmsweep.analysis.report.summary import summarize
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.spec.config import RequestError

_SCRIPTS = (
    *("numbers", "results", "csv", "tables", "state", "matrix", "charts", "series", "controls", "explore"),
    *("drill", "answer", "report"),
)
_HERE = files("lmsweep.analysis.report")


def write_report(
    location: str,
    output: str | Path,
    others: Sequence[str] = (),
    prices: Sequence[Price] = (),
    across: Sequence[str] = (),
) -> int:
    """Write the page to a file and return its size in bytes. Arguments and errors: as for `page_of`."""
    page, output = page_of(location, others, prices, across), Path(output)
    try:
        with output.open("w", encoding="utf-8") as file:
            file.writelines(page)
    except OSError as error:
        raise RequestError(f"-o {output}: cannot be written ({error.strerror})") from error
    return output.stat().st_size


def page_of(
    location: str, others: Sequence[str] = (), prices: Sequence[Price] = (), across: Sequence[str] = ()
) -> Iterator[str]:
    """Return the page of the store at this location, in pieces.

    others: names for `side_by_side`, shown beside the store. across: keys in which compared devices may differ, besides
    those of their software. Raises RequestError without store or results, and for a price that fits no device.
    """
    results = Results(location, {})
    frame = results.measurements
    if frame.empty:
        raise RequestError(f"{location} holds no results; add some with: lmsweep run quick --store {location}")
    beside = beside_section(results, others)
    stores = {location: results} | stores_beside(others)
    answer = first_answer(stores, prices, across)
    results.prices = priced_here(prices, frame)
    sections = sections_of(results, answer)
    everything = [*beside, *sections]
    figures = {section.id: [figure._asdict() for figure in section.figures] for section in everything}
    tables = {table.name: table.csv for section in everything for table in section.tables}
    scripts = [_asset("plotly-basic.min.js"), "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)]
    templates = Environment(loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined)
    templates.globals.update(signs=SIGNS, field_text=field_text, with_code=with_code, forest_width=FOREST_WIDTH)
    page = templates.get_template("template.html")
    return page.stream(
        name=location.rstrip("/").rpartition("/")[2] or location,
        version=trials.__version__,
        made_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        policy=_policy(scripts),
        css=Markup(_text("report.css")),
        summary=summarize(frame),
        others=[(name, summarize(one.measurements).lead) for name, one in stores.items() if name != location],
        answer=answer,
        compared=_json(answer.data() if answer else None),
        contents=[(section.id, section.title) for section in sections],
        beside=beside,
        sections=sections,
        data=_json([{**page_data(one.measurements), "store": name} for name, one in stores.items()]),
        figures=_json(figures),
        tables=_json(tables),
        scripts=[Markup(script) for script in scripts],
    )


def _policy(scripts: list[str]) -> str:
    """The Content Security Policy: only these scripts run, whatever a store contains, and nothing else is loaded."""
    digests = (b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _json(content: Json) -> Markup:
    """JSON for a script element: no markup in it can end the element."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _asset(name: str) -> str:
    return _HERE.joinpath("assets", name).read_text(encoding="utf-8").strip()


def _text(name: str) -> str:
    return _HERE.joinpath(name).read_text(encoding="utf-8")
