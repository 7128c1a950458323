"""Assembles the report: one HTML file with the answer to a store's question, charts, tables, and their script."""

import hashlib
import json
import warnings
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from lmsweep import trials
from lmsweep.analysis.comparison.side_by_side import PUBLISHED
from lmsweep.analysis.data.process_variation import known_variation
from lmsweep.analysis.metrics.kernels import classified
from lmsweep.analysis.report.drilled import Json, drilled, result_numbers
from lmsweep.analysis.report.headline import headline_of
from lmsweep.analysis.report.joined import Joined, joined
from lmsweep.analysis.report.question import DEVICE, Asked, asked_in, questions
from lmsweep.analysis.report.sections import sections_of
from lmsweep.analysis.report.summary import summarize
from lmsweep.analysis.report.verdicts import Answer, answer
from lmsweep.analysis.report.views import STRIP, view_of_answer
from lmsweep.analysis.report.workload_views import QUESTIONS, views_of_workloads
from lmsweep.trials.analytic.prices import Price, hourly_dollars
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.spec.config import RequestError

MOST_ATTEMPTS = 3000
"""Choices of a store with more attempts are not compared: the page would take too long to make and to read."""

MOST_ANSWERS, MANY = 8, 500
"""Comparisons of a page; of a store with so many attempts, only the first."""

_SOFTWARE = tuple(name for name in ENVIRONMENT_FIELDS if name.endswith("_version") and name != "measuring_version")
"""May differ between two stores; a version of the measuring code that measures otherwise may not."""

_SCRIPTS = ("state", "tables", "charts", "drill", "views", "report")
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
    results = joined(location, others, prices)
    frame = results.measurements
    if frame.empty:
        raise RequestError(f"{location} holds no results; add some with: lmsweep run quick --store {location}")
    asked = asked_in(frame)
    answers = list(answers_of(results, asked, across))
    first = answers[0] if answers else None
    numbers = result_numbers(frame)
    compared = [view_of_answer(one, numbers) for one in answers if len(one.cells)]
    where = location if len(results.named) == 1 else ""
    views = [*compared, *views_of_workloads(frame, numbers, where)]
    summary = summarize(frame)
    shares = _profile_headline(results, asked)
    about = "profile" if shares else asked.where.get("workload", "") if asked and not asked.compare else None
    headline, details = headline_of(first) if first and about is None else (shares or summary.headline, ())
    if about is not None:  # it asks for numbers; what is faster comes after them
        views.sort(key=lambda view: (view.name != QUESTIONS.get(about), view.compared))
    sections = sections_of(results, [name for name in others if name == PUBLISHED], first)
    figures = {section.id: [figure._asdict() for figure in section.figures] for section in sections}
    tables = {table.name: table.csv for section in sections for table in section.tables}
    tables |= {view.name: view.csv for view in views if view.csv}
    scripts = [_asset("plotly-basic.min.js"), "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)]
    templates = Environment(loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined)
    templates.globals.update(with_code=with_code, strip=STRIP)
    return templates.get_template("template.html").stream(
        name=" and ".join(results.named),
        question=asked.ask if asked and (first is None or first.question.text or not asked.compare) else "",
        version=trials.__version__,
        made_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        policy=_policy(scripts),
        css=Markup(_text("report.css")),
        summary=summary,
        headline=headline,
        details=details,
        apart=first.apart if first else (),
        sides=[option.name for option in first.question.options] if first else [],
        prices=_prices(results, first),
        views=views,
        sections=sections,
        data=_json(drilled(frame)),
        drawn=_json([view.data() for view in views]),
        figures=_json(figures),
        tables=_json({name: b64encode(zlib.compress(text.encode())).decode() for name, text in tables.items()}),
        scripts=[Markup(script) for script in scripts],
    )


def answers_of(results: Joined, asked: Asked | None, across: Sequence[str]) -> Iterator[Answer]:
    """Yield the answers of these results, the one of the headline first."""
    attempts = results.attempts
    several = len(results.named) > 1
    size = attempts["attempt_id"].nunique()
    if size > MOST_ATTEMPTS and attempts[DEVICE].nunique() < 2:
        return
    free = _SOFTWARE if several else ("driver_version",)  # another store was asked for by name, whatever it ran on
    known = known_variation(attempts)
    count = 0
    for question in questions(attempts, asked, across, free):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = answer(replace(question, variation=known))
        if found:
            yield found
            count += 1
        if count == (MOST_ANSWERS if size < MANY else 1):
            return


def _profile_headline(results: Joined, asked: Asked | None) -> str:
    """Which share of a step's kernel time matrix products take, of a store that is about profiles."""
    counts = results.measurements.drop_duplicates("measurement_id")["workload"].value_counts()
    about = asked.where.get("workload") == "profile" if asked and not asked.compare else counts.index[0] == "profile"
    if "profile" not in counts or not about:
        return ""
    try:
        kernels = classified(results.details("kernels", "profile"))
    except RequestError:
        return ""
    times = kernels.groupby(["measurement_id", "environment_id", "kind"])["time"].sum().unstack(fill_value=0)
    share = 100 * times.get("matmul", 0.0) / times.sum(axis=1)
    ends = dict.fromkeys(f"{one:.0f}" for one in (share.min(), share.max()))
    return f"Matrix products take {' to '.join(ends)} % of a step's kernel time, in {len(share)} profiles"


def _prices(results: Joined, first: Answer | None) -> list[tuple[str, float | None, float]]:
    """Of each device of the first answer: its name, its dollars per hour, and its mean speed."""
    kinds = results.attempts[[DEVICE, "accelerator_type"]].drop_duplicates()
    types = kinds["accelerator_type"].astype(object).where(kinds["accelerator_type"].notna(), None)
    dollars = hourly_dollars(results.prices, sorted(zip(kinds[DEVICE], types, strict=True), key=str))
    by_name = {device: hourly for (device, _), hourly in dollars.items()}
    if first is None or first.question.fields != (DEVICE,) or not first.timed or first.cells.empty:
        return []
    return [
        (option.name, by_name.get(option.values[DEVICE]), 1.0 if place == 0 else first.mean(option.name).mean)
        for place, option in enumerate(first.question.options)
    ]


def with_code(text: str) -> Markup:
    """Return the text as HTML, with what stands between backticks as code."""
    parts = text.split("`")
    return Markup("").join(Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts))


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
