"""`report`, `share`, `badge`: what a store says, as a page, as a folder to send, as a badge. None needs a network.

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

`figures` has the charts of the sections, `sharing` the folder and the badge, `template.html` the markup, `assets` the
scripts and Plotly.js. The core's `analysis/answers` has the answers, `analysis/tables/page.css` the style of all pages.
"""

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from lmsweep.orchestrator.commands.options import Prices, StoreArgument, names_of, one_of, paired, pairs
from lmsweep.orchestrator.feature import Feature, registered
from lmsweep.orchestrator.plan_request import Text, Texts
from lmsweep.orchestrator.terminal import say, say_data
from lmsweep.trials.analytic.prices import parse_prices
from lmsweep.trials.spec.config import RequestError

STORES = "A store: a folder or a URI; with --history, several. Or the JSON of a verb, if its help says so."
BESIDE = "Show `published`, a reference store, or another store beside it; repeatable."


def report(
    stores: Annotated[list[str], Argument(metavar="STORE...", help=STORES)] = ["results"],
    output: Annotated[str, Option("--output", "-o", help="The file to write; - for standard output.")] = "report.html",
    others: Annotated[Texts, Option("--with", metavar="STORE", help=BESIDE)] = [],
    price: Prices = [],
    across: Annotated[Texts, Option(help="Fields that may differ between devices: measure_steps,warmup_steps")] = [],
    history: Annotated[bool, Option("--history", help="What changed between states of your code, or dates.")] = False,
    charts: Annotated[Text, Option(metavar="FOLDER", help="Write every chart into a folder instead of a page.")] = None,
    format: Annotated[
        str, Option(metavar="svg|png", callback=one_of("svg", "png"), help="The format of --charts.")
    ] = "svg",
) -> None:
    """Write an HTML page of charts and tables. It needs neither a server nor a network.

    \b
    Example:
      lmsweep report results -o report.html
    """
    store, *more = stores
    is_answer = store.endswith(".json") and bool(registered("pages"))
    if more and not (history or is_answer):
        raise RequestError(f"{more[0]}: a report is of one store; add others with --with, or order them with --history")
    if not charts and output != "-" and Path(output).suffix.lower() not in ("", ".html", ".htm"):
        raise RequestError(
            f"-o {output}: the report is an HTML file; give a name that ends in .html, or - for standard output. "
            "For PDF, print it from a browser; for other formats, use `lmsweep table --format`"
        )
    from lmsweep.orchestrator.features.report.content import content_of
    from lmsweep.orchestrator.features.report.page import page_with, write_page

    beside, prices = [*more, *others], parse_prices(price)
    if charts and not is_answer:
        from lmsweep.orchestrator.features.report.chart_files import write_charts

        folder = Path(charts).expanduser()
        written = write_charts(store, folder, beside, prices, names_of(across), history=history, image=format)
        say(f"{charts}: {len(written)} charts as {format.upper()}")
        return
    page: Iterable[str]
    if is_answer:
        page = [_page_of_answer(store)]
    else:
        page = page_with(content_of(store, beside, prices, names_of(across), history=history))
    if output == "-":
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        sys.stdout.writelines(page)
        return
    path = Path(output).expanduser()
    size = write_page(page, path)
    say(f"{path} ({size / 2**20:.1f} MiB); open it in a browser")


def _page_of_answer(location: str) -> str:
    """Return the page of what a verb printed as JSON. Raises RequestError if no verb with pages prints such a file."""
    from pkgutil import resolve_name

    from pydantic import TypeAdapter, ValidationError

    try:
        text = Path(location).expanduser().read_bytes()
    except OSError as error:
        raise RequestError(f"{location}: cannot be read ({error.strerror})") from error
    outputs, pages = registered("outputs"), registered("pages")
    for verb, page in pages.items():
        with suppress(ValidationError, ArithmeticError):  # such as more bytes than a float holds
            written: str = resolve_name(page)(TypeAdapter(resolve_name(outputs[verb])).validate_json(text, strict=True))
            return written
    raise RequestError(f"{location}: not what `lmsweep {' or '.join(pages)} ... --format json > FILE` writes")


def share(
    store: StoreArgument = "results",
    output: Annotated[str, Option("--output", "-o", help="The folder to write; new or empty.")] = "shared",
    to: Annotated[
        Text, Option(metavar="hf", callback=one_of("hf"), help="Make README.md the card of a Hugging Face data set.")
    ] = None,
) -> None:
    """Write a folder to commit or send: results, report, summary; without names of machines and people, and paths.

    \b
    Example:
      lmsweep share results -o my-results
    """
    from lmsweep.orchestrator.features.report.sharing.shared_folder import share as share_store

    shared = share_store(store, output, to=to)
    names = "\n".join(f"  {name}" for name in shared.files)
    say(f"{output}: {shared.bytes / 2**20:.1f} MiB\n{names}")
    say(
        "Host names, user names, folders of absolute paths and artifacts were taken out. Others compare it with "
        "theirs: lmsweep compare results --with FOLDER-OR-URL"
    )


def badge(
    store: StoreArgument = "results",
    output: Annotated[str, Option("--output", "-o", help="The file to write; - for standard output.")] = "badge.svg",
    value: Annotated[str, Option(help="PHASE.METRIC of one cell instead of the headline: step.mfu")] = "",
    where: Annotated[Texts, Option(callback=paired, help="FIELD=VALUE: selects the cell; repeatable.")] = [],
) -> None:
    """Write a badge for a README: the headline of a store, or one of its numbers, as a small SVG.

    \b
    Example:
      lmsweep badge results -o badge.svg
    """
    from lmsweep.orchestrator.features.report.sharing.drawn_badge import badge as badge_of

    drawn = badge_of(store, value, pairs(where, "--where"))
    if output == "-":
        say_data(drawn.rstrip())
        return
    try:
        Path(output).expanduser().write_text(drawn, "utf-8")
    except OSError as error:
        raise RequestError(f"-o {output}: cannot be written ({error.strerror})") from error
    say(output)


feature = Feature(
    name="report",
    job="Share",
    place=-3,
    verbs=(report, share, badge),
    functions={
        "report": f"{__name__}.page:write_report",
        "charts": f"{__name__}.chart_files:write_charts",
        "share": f"{__name__}.sharing.shared_folder:share",
    },
)
