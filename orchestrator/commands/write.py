"""The verb that writes a page: report."""

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from lmsweep.orchestrator.commands.options import Prices, names_of, one_of
from lmsweep.orchestrator.feature import registered
from lmsweep.orchestrator.plan_request import Text, Texts
from lmsweep.orchestrator.terminal import say
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
    from lmsweep.analysis.report import page_with, write_page
    from lmsweep.analysis.report.content import content_of

    beside, prices = [*more, *others], parse_prices(price)
    if charts and not is_answer:
        from lmsweep.analysis.report.chart_files import write_charts

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
