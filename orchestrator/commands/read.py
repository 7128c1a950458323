"""The verbs that read results: status, table, compare, explain, diff, report, export, share."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from lmsweep.orchestrator.plan_request import PlanRequest, Text, Texts, takes_request
from lmsweep.orchestrator.terminal import say, say_data
from lmsweep.trials.analytic.flop_conventions import FlopConvention
from lmsweep.trials.spec.config import RequestError

Format = Annotated[str, Option(help="text, markdown, latex, typst, csv, html or json.")]
StoreArgument = Annotated[str, Argument(help="Where results are stored: a folder or a URI.")]

FLOPS = "How attention's FLOPs are counted: model (in full), or hardware (causal as half)."
BESIDE = "Show `published`, a reference store, or another store beside it; repeatable."


def status(store: StoreArgument = "results", format: Format = "text") -> None:
    """Count results by status, sweep and device, and list their flags.

    \b
    Example:
      lmsweep status results
    """
    from lmsweep.analysis import load
    from lmsweep.analysis.metrics.status import as_json, counts_listing
    from lmsweep.orchestrator.commands.text.show_table import show_table

    frame = load(store, pooled=False)
    if format == "json":
        say_data(json.dumps(as_json(frame), indent=2))
        return
    if frame.empty:
        say(f"{store} holds no results yet")
    else:
        show_table(counts_listing(frame, store), format)


def table(
    store: StoreArgument = "results",
    rows: Annotated[Texts, Option(help="Fields that make the rows: model,context_length")] = [],
    cols: Annotated[Texts, Option(help="Fields that make the columns: precision,compile")] = [],
    value: Annotated[Texts, Option(help="PHASE.METRIC: forward.time, step.tflops; repeatable.")] = [],
    where: Annotated[Texts, Option(help="FIELD=VALUE: only these results; repeatable.")] = [],
    format: Format = "text",
    preset: Annotated[Text, Option(help="A predefined table; --list-presets names them.")] = None,
    price: Annotated[Texts, Option(help="H200=3.5: price in dollars per hour, for --preset cost; repeatable.")] = [],
    flops: Annotated[FlopConvention | None, Option(metavar="model|hardware", help=FLOPS)] = None,
    list_presets: Annotated[bool, Option("--list-presets", help="List the predefined tables.")] = False,
    plot: Annotated[bool, Option("--plot", help="Draw a bar for each number instead.")] = False,
) -> None:
    """Print a pivot table of the results. Without options, it shows everything that varies.

    \b
    Example:
      lmsweep table results --preset end-to-end
    """
    from lmsweep.analysis import api
    from lmsweep.analysis.presets import PRESETS, preset_groups
    from lmsweep.analysis.tables.bar_chart import bar_charts
    from lmsweep.analysis.tables.listing import Listing
    from lmsweep.analysis.tables.pivot import Table
    from lmsweep.orchestrator.commands.text.show_table import show_groups, show_parts

    if list_presets:
        show_groups(
            {group: {name: PRESETS[name].question for name in names} for group, names in preset_groups().items()}
        )
        return
    conditions = pairs(where, "--where")
    found: Sequence[Table | Listing]
    if not (rows or cols or value or preset or price or flops) and format not in ("csv", "json"):
        found = api.tables(store, where=conditions)
    else:
        found = [
            api.table(
                store,
                rows=_names(rows),
                cols=_names(cols),
                values=value,
                where=conditions,
                preset=preset,
                prices=price,
                flops=flops,
            )
        ]
    if not plot:
        show_parts(found, format)
        return
    drawn = [one for one in found if isinstance(one, Table)]
    if format != "text" or not drawn:
        raise RequestError(
            "--plot is for tables of rows and columns in text; leave out --format, or choose another table"
        )
    show_parts([chart for one in drawn for chart in bar_charts(one)])


def compare(
    store: StoreArgument = "results",
    other: Annotated[Text, Argument(help="A second store to compare with the first, which is the baseline.")] = None,
    baseline: Annotated[Texts, Option(help="FIELD=VALUE: selects the baseline; repeatable.")] = [],
    contrast: Annotated[Texts, Option(help="FIELD=VALUE: selects the other side; repeatable.")] = [],
    where: Annotated[Texts, Option(help="FIELD=VALUE: only these results; repeatable.")] = [],
    across: Annotated[
        Texts, Option(help="Other fields that may differ between the sides: driver_version,torch_version")
    ] = [],
    value: Annotated[Texts, Option(help="PHASE.METRIC: step.time; repeatable.")] = [],
    min_effect: Annotated[Text, Option(metavar="SHARE", help="Smallest difference that counts: 2%, or 0.02.")] = None,
    beside: Annotated[
        Text, Option("--with", metavar="STORE", help="Show beside `published`, a reference store, or another store.")
    ] = None,
    explain: Annotated[bool, Option("--explain", help="Show what the differences consist of, from profiles.")] = False,
    fail_on: Annotated[
        Texts, Option(metavar="VERDICT", help="Exit with 1 if a verdict is slower, more, ...; repeatable.")
    ] = [],
    verbose: Annotated[bool, Option("--verbose", "-v", help="Show medians, conditions and p-values, too.")] = False,
    format: Format = "text",
) -> None:
    """Compare two selections of results, or two stores, cell by cell: a ratio of medians and a verdict.

    \b
    Example:
      lmsweep compare results --baseline precision=fp32 --contrast precision=bf16
    """
    from lmsweep.analysis.comparison.compare import VERDICTS
    from lmsweep.orchestrator.commands.text.show_table import show_table

    for word in fail_on:
        if word not in VERDICTS:
            raise RequestError(f"--fail-on {word}: no such verdict; there are: {', '.join(VERDICTS)}")
    conditions = pairs(where, "--where")
    first, second = pairs(baseline, "--baseline"), pairs(contrast, "--contrast")
    if beside:
        if other or first or second or fail_on or across or value or min_effect or explain:
            raise RequestError("--with shows numbers without verdicts; only --where can be combined with it")
        from lmsweep.analysis import load
        from lmsweep.analysis.comparison.side_by_side import beside as place_beside
        from lmsweep.analysis.data.selection import select

        show_table(place_beside(select(load(store), conditions), beside), format)
        return
    from lmsweep.analysis.api import compare as compare_results
    from lmsweep.analysis.api import explain as explain_results

    if explain:
        if value or fail_on or min_effect:
            raise RequestError("--explain is about whole steps; leave out --value, --min-effect and --fail-on")
        causes = explain_results(store, other, baseline=first, contrast=second, where=conditions, across=_names(across))
        show_table(causes.listing(), format)
        return
    found = compare_results(
        store,
        other,
        baseline=first,
        contrast=second,
        where=conditions,
        across=_names(across),
        values=value,
        min_effect=_share(min_effect) if min_effect else None,
    )
    show_table(found.listing() if verbose or format != "text" else found.brief(), format)
    # A cell that fails on one side is a regression, too.
    if fail_on and found.frame["verdict"].isin([*fail_on, "failed"]).any():
        raise typer.Exit(1)


def explain(flag: Annotated[str, Argument(help="A flag of results, such as host_bound.")] = "") -> None:
    """Say what a flag means and what to do about it; without one, list all flags.

    \b
    Example:
      lmsweep explain host_bound
    """
    from lmsweep.analysis.tables.text_table import ADVICE_OF
    from lmsweep.orchestrator.commands.text.show_table import show_groups
    from lmsweep.trials.spec.suggestions import choices

    if flag and flag not in ADVICE_OF:
        raise RequestError(f"{flag} is not a flag{choices(flag, ADVICE_OF)}")
    if flag:
        say(f"{flag}: {ADVICE_OF[flag]}")
    else:
        show_groups({"Flags": ADVICE_OF})


def _share(text: str) -> float:
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise RequestError(f"--min-effect {text}: give a percentage such as 2%") from None


def diff(
    store: Annotated[str, Argument(help="One store.")],
    other: Annotated[str, Argument(help="Another.")],
    format: Format = "text",
) -> None:
    """Show in which hardware and software two stores differ.

    \b
    Example:
      lmsweep diff results other-results
    """
    from lmsweep.analysis import load
    from lmsweep.analysis.comparison.environment_diff import environment_diff
    from lmsweep.orchestrator.commands.text.show_table import show_table

    frames = [load(location, pooled=False) for location in (store, other)]
    found = environment_diff(frames[0], frames[1], (store, other))
    if found.frame.empty and format == "text":
        say(found.notes[0])
        return
    show_table(found, format)


def report(
    store: StoreArgument = "results",
    output: Annotated[str, Option("--output", "-o", help="The file to write; - for standard output.")] = "report.html",
    others: Annotated[Texts, Option("--with", metavar="STORE", help=BESIDE)] = [],
    price: Annotated[Texts, Option(help="Dollars per hour of a device, such as H100=2.5; repeatable.")] = [],
    across: Annotated[Texts, Option(help="Fields that may differ between devices: measure_steps,warmup_steps")] = [],
) -> None:
    """Write an HTML page of charts and tables. It needs neither a server nor a network.

    \b
    Example:
      lmsweep report results -o report.html
    """
    from lmsweep.analysis.report import page_of, write_report
    from lmsweep.trials.analytic.prices import parse_prices

    prices = parse_prices(price)

    if output == "-":
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        sys.stdout.writelines(page_of(store, others, prices, _names(across)))
        return
    path = Path(output).expanduser()
    if path.suffix.lower() not in ("", ".html", ".htm"):
        raise RequestError(
            f"-o {output}: the report is an HTML file; give a name that ends in .html, or - for standard output. "
            "For PDF, print it from a browser; for other formats, use `lmsweep table --format`"
        )
    size = write_report(store, path, others, prices, _names(across))
    say(f"{path} ({size / 2**20:.1f} MiB); open it in a browser")


@takes_request("sweep store output grids overrides code")
def export(
    request: PlanRequest,
    store: StoreArgument = "results",
    output: Annotated[str, Option("--output", "-o", help="The folder to write to.")] = "writeup",
) -> None:
    """Write the tables and figures of each problem of a course: Markdown, LaTeX, Typst, PNG, SVG, and an index.

    The problems are the names of the sweep's grids. Give the options --set and --code that were given to `run`.

    \b
    Example:
      lmsweep export cs336-2026 results -o writeup
    """
    from lmsweep.analysis.writeup import Request, write
    from lmsweep.orchestrator.api import load_requested

    asked = replace(request, store=store)
    written = write(
        Request(
            store=store,
            folder=Path(output).expanduser(),
            grids=load_requested(asked).grids,
            command=lambda name: replace(asked, grids=(name,)).resume_command(),
        )
    )
    tables, figures = sum(len(one.tables) for one in written), sum(len(one.figures) for one in written)
    say(f"{output}/index.md: {tables} tables and {figures} figures of {len(written)} problems")
    if missing := [one.name for one in written if one.found.missing]:
        say(f"not all measured: {', '.join(missing)}; {output}/index.md has the commands")


def share(
    store: StoreArgument = "results",
    output: Annotated[str, Option("--output", "-o", help="The folder to write; new or empty.")] = "shared",
) -> None:
    """Write a folder to commit or send: results, report, summary; without names of machines and people, and paths.

    \b
    Example:
      lmsweep share results -o my-results
    """
    from lmsweep.analysis.sharing.share import share as share_store

    shared = share_store(store, output)
    names = "\n".join(f"  {name}" for name in shared.files)
    say(f"{output}: {shared.bytes / 2**20:.1f} MiB\n{names}")
    say(
        "Host names, user names, folders of absolute paths and artifacts were taken out. Others compare it with "
        "theirs: lmsweep compare results --with FOLDER-OR-URL"
    )


def _names(options: list[str]) -> list[str]:
    return ",".join(options).split(",") if any(options) else []


def pairs(texts: list[str], option: str) -> dict[str, str]:
    """Return the values by field of a repeatable option. Raises RequestError for other texts and repeated fields."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise RequestError(f"{option} {text}: write field=value")
        if name in pairs:
            raise RequestError(
                f"{option} {name}: given twice; to select either value, write {name}={pairs[name]},{value}"
            )
        pairs[name] = value
    return pairs
