"""`report`: what a store says, as a page, charts, a folder to send, or a badge. None needs a network.

page.py             assembles the page and writes it
content.py          what a page holds: answers, views, sections
chart_files.py      the charts of a page as SVG or PNG
joined.py           the results of the page's store and of those beside it, as one
history.py          the states of the user's code, or dates, one after the other, and where something changed
views.py            a view: a chart and a table of the same cells; that of an answer
workload_views.py   the views of what each workload measured
lines.py            a chart's x axis, lines, panels, colours and dashes
drilled.py          what the page shows of one result
sections.py         the sections below the views, each shown if the store has its data
summary.py          what ran where; flags, failed trials and environments

`answers` has what a store says in words, `figures` the charts and tables of the sections, `sharing` the folder, the
badge and the notebooks, `template.html` the markup, `assets` the scripts and Plotly.js. The core's
`analysis/tables/page.css` is the style of all pages.
"""

import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from lmsweep.orchestrator.commands.options import Prices, names_of, one_of, paired, pairs
from lmsweep.orchestrator.feature import Feature, registered
from lmsweep.orchestrator.plan_request import Rare, Text, Texts
from lmsweep.orchestrator.terminal import say, say_data
from lmsweep.trials.analytic.prices import parse_prices
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.installing import install_extra

STORES = "A store: a folder or a URI; with --history, several. Or the JSON of a verb, if its help says so."
SHARE = "Write a folder to commit or send: results, report, summary, without names of machines and people."
OUTPUT = "The file to write: report.html, or NAME.html of NAME.json, if it is not given; - for standard output."
BESIDE = "Show `published`, a reference store, or another store beside it; repeatable."


def report(
    stores: Annotated[list[str], Argument(metavar="STORE...", help=STORES)] = ["results"],
    output: Annotated[Text, Option("--output", "-o", help=OUTPUT)] = None,
    others: Annotated[Texts, Option("--with", metavar="STORE", help=BESIDE)] = [],
    price: Prices = [],
    across: Annotated[Texts, Rare(help="Fields that may differ between devices: measure_steps,warmup_steps")] = [],
    history: Annotated[bool, Option("--history", help="What changed between states of your code, or dates.")] = False,
    charts: Annotated[Text, Rare(metavar="FOLDER", help="Write every chart into a folder instead of a page.")] = None,
    format: Annotated[
        str, Rare(metavar="svg|png", callback=one_of("svg", "png"), help="The format of --charts.")
    ] = "svg",
    share: Annotated[Text, Option(metavar="FOLDER", help=SHARE)] = None,
    to: Annotated[
        Text, Rare(metavar="hf", callback=one_of("hf"), help="Make README.md of --share the card of a data set.")
    ] = None,
    badge: Annotated[
        Text, Option(metavar="FILE", help="Write the headline as a small SVG; - for standard output.")
    ] = None,
    value: Annotated[str, Rare(help="PHASE.METRIC of one combination on the badge, instead of the headline.")] = "",
    where: Annotated[Texts, Rare(callback=paired, help="FIELD=VALUE: selects that combination; repeatable.")] = [],
    notebooks: Annotated[Text, Rare(metavar="FOLDER", help="Copy the Jupyter notebooks that ship.")] = None,
) -> None:
    """Write the results as an HTML page, a folder to share, or a badge.

    The page has charts and tables, and needs neither a server nor a network.

    \b
    Examples:
      lmsweep report results -o report.html
      lmsweep report results --share my-results
    """
    store, *more = stores
    if (value or where) and not badge:
        raise RequestError("--value and --where choose the number of a badge: --badge FILE")
    if to and not share:
        raise RequestError("--to says for whom the folder of --share FOLDER is")
    has_choices = more or others or price or across or history or charts
    choices = "--with, --price, --across, --history and --charts"
    if share or badge or notebooks:
        if has_choices:
            raise RequestError(f"--share, --badge and --notebooks take one store as it is; leave out {choices}")
        if notebooks:
            _copy_notebooks(notebooks)
        if share:
            _share(store, share, to)
        if badge:
            _write_badge(store, badge, value, pairs(where, "--where"))
        return
    if store.endswith(".json") and registered("pages"):
        if has_choices:
            raise RequestError(f"{store}: the page of what a verb printed is of this file alone; leave out {choices}")
        output = output or f"{Path(store).stem}.html"
        _check_name(output)
        _write_page([_page_of_json(store)], output)
        return
    if more and not history:
        raise RequestError(f"{more[0]}: a report is of one store; add others with --with, or order them with --history")
    beside, prices = [*more, *others], parse_prices(price)
    if charts:
        from lmsweep.orchestrator.features.report.chart_files import write_charts

        folder = Path(charts).expanduser()
        written = write_charts(store, folder, beside, prices, names_of(across), history=history, image=format)
        say(f"{charts}: {len(written)} charts as {format.upper()}")
        return
    output = output or "report.html"
    _check_name(output)  # before the page is made, which takes seconds
    from lmsweep.orchestrator.features.report.content import content_of
    from lmsweep.orchestrator.features.report.page import page_with

    _write_page(page_with(content_of(store, beside, prices, names_of(across), history=history)), output)


def _check_name(output: str) -> None:
    """Raise RequestError unless it can be the name of a page."""
    if output != "-" and Path(output).suffix.lower() not in ("", ".html", ".htm"):
        raise RequestError(
            f"-o {output}: the report is an HTML file; give a name that ends in .html, or - for standard output. "
            "For PDF, print it from a browser; for other formats, use `lmsweep table --format`"
        )


def _write_page(page: Iterable[str], output: str) -> None:
    if output == "-":
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        sys.stdout.writelines(page)
        return
    from lmsweep.orchestrator.features.report.answers.store_answers import size_text
    from lmsweep.orchestrator.features.report.page import write_page

    path = Path(output).expanduser()
    size = write_page(page, path)
    say(f"{path} ({size_text(size, 'B')}); open it in a browser")


def _page_of_json(location: str) -> str:
    """Return the page of what a verb printed as JSON. Raises RequestError if no verb with pages prints such a file."""
    from pkgutil import resolve_name

    from pydantic import TypeAdapter, ValidationError

    try:
        text = Path(location).expanduser().read_bytes()
    except OSError as error:
        raise RequestError(f"{location}: cannot be read ({error.strerror})") from error
    # Verb -> `module:name` of the type of its JSON, and of the function that writes its page.
    outputs, pages = registered("outputs"), registered("pages")
    for verb, page in pages.items():
        with suppress(ValidationError, ArithmeticError):  # such as more bytes than a float holds
            written: str = resolve_name(page)(TypeAdapter(resolve_name(outputs[verb])).validate_json(text, strict=True))
            return written
    raise RequestError(f"{location}: not what `lmsweep {' or '.join(pages)} ... --format json > FILE` writes")


def _share(store: str, folder: str, to: str | None) -> None:
    from lmsweep.orchestrator.features.report.sharing.shared_folder import share

    shared = share(store, folder, to=to)
    names = "\n".join(f"  {name}" for name in shared.files)
    say(f"{folder}: {shared.bytes / 2**20:.1f} MiB\n{names}")
    say(
        "Host names, user names, folders of absolute paths and artifacts were taken out. Others compare it with "
        "theirs: lmsweep compare results --with FOLDER-OR-URL"
    )


def _write_badge(store: str, file: str, value: str, where: dict[str, str]) -> None:
    from lmsweep.orchestrator.features.report.sharing.drawn_badge import badge

    drawn = badge(store, value, where)
    if file == "-":
        say_data(drawn.rstrip())
        return
    try:
        Path(file).expanduser().write_text(drawn, "utf-8")
    except OSError as error:
        raise RequestError(f"--badge {file}: cannot be written ({error.strerror})") from error
    say(file)


def _copy_notebooks(folder: str) -> None:
    from lmsweep.orchestrator.features.report.sharing.copied_notebooks import copy_notebooks

    copied = copy_notebooks(folder)
    say("\n".join([f"{folder} has {len(copied)} notebooks:", *(f"  {name}" for name in copied)]))
    opened = shlex.join([sys.executable, "-m", "jupyterlab", folder])
    say(f"To open them: {install_extra('notebooks')} && {opened}")


feature = Feature(
    name="report",
    place=4,
    verbs=(report,),
    functions={
        "report": f"{__name__}.page:write_report",
        "charts": f"{__name__}.chart_files:write_charts",
        "findings": f"{__name__}.answers.store_answers:findings",
        "share": f"{__name__}.sharing.shared_folder:share",
    },
)
