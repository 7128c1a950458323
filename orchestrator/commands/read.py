"""The verbs that read what was measured: status, table, compare, report."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lmsweep.orchestrator.terminal import say
from lmsweep.trials.spec.config import RequestError

StoreArgument = Annotated[str, typer.Argument(help="Where results are kept: a folder or a URI.")]


def status(store: StoreArgument = "results") -> None:
    """Count what a store holds, by status, sweep and device; name its doubts."""
    from lmsweep.analysis import load
    from lmsweep.analysis.metrics.status import counts, flag_words

    frame = load(store, pooled=False)
    say(counts(frame).to_markdown(index=False) if len(frame) else f"{store} holds no results yet")
    if doubts := flag_words(frame):
        say(f"\n{doubts}")


def table(
    store: StoreArgument = "results",
    rows: Annotated[list[str], typer.Option(help="Fields whose values are rows: model,context_length")] = [],  # noqa: B006
    cols: Annotated[list[str], typer.Option(help="Fields whose values are columns: precision,compile")] = [],  # noqa: B006
    value: Annotated[list[str], typer.Option(help="phase.metric: forward.time, step.tflops; may be repeated.")] = [],  # noqa: B006
    where: Annotated[list[str], typer.Option(help="field=value: only these results; may be repeated.")] = [],  # noqa: B006
    format: Annotated[str, typer.Option(help="text, markdown, latex, typst, csv or html.")] = "text",
    preset: Annotated[str | None, typer.Option(help="A table that has a name; --list-presets shows which.")] = None,
    price: Annotated[list[str], typer.Option(help="H200=3.5: dollars per hour, for --preset cost; repeatable.")] = [],  # noqa: B006
    list_presets: Annotated[bool, typer.Option("--list-presets", help="Name the tables that have one.")] = False,
) -> None:
    """Print a pivot of the results. Without options, it shows everything that varies."""
    from lmsweep.analysis import default_layout, load, pivot, render
    from lmsweep.analysis.data.load import of_present_devices
    from lmsweep.analysis.data.selection import select, workloads_beside
    from lmsweep.analysis.presets import PRESETS, make_preset

    if list_presets:
        width = max(map(len, PRESETS))
        say("\n".join(f"{name:<{width}}  {one.question}" for name, one in PRESETS.items()))
        return
    if price and preset != "cost":
        raise RequestError("--price goes with --preset cost")
    if preset:
        if rows or cols or value:
            raise RequestError(
                f"--preset {preset} has rows, columns and values of its own; choose results with --where"
            )
        from lmsweep.trials.analytic.prices import parse_prices

        conditions = _pairs(where, "--where")
        say(render(make_preset(preset, store, where=conditions, prices=parse_prices(price)), format))
        return
    frame = load(store)
    if frame.empty:
        raise RequestError(f"{store} holds no results; fill it with: lmsweep run quick --store {store}")
    conditions = _pairs(where, "--where")
    frame = of_present_devices(frame, conditions)
    row_names, col_names, values = default_layout(
        frame,
        rows=_names(rows),
        cols=_names(cols),
        values=value or None,
        where=conditions,
    )
    chosen = pivot(frame, rows=row_names, cols=col_names, values=values, where=conditions)
    say(render(chosen, format))
    if not value and (others := workloads_beside(select(frame, conditions), values)):
        say(f"not in this table: {', '.join(others)}; --list-presets names tables of them", error=True)


def compare(
    store: StoreArgument = "results",
    other: Annotated[
        str | None, typer.Argument(help="A second store: it is the contrast, the first the baseline.")
    ] = None,
    baseline: Annotated[list[str], typer.Option(help="key=value: what one side is; may be repeated.")] = [],  # noqa: B006
    contrast: Annotated[list[str], typer.Option(help="key=value: what the other side is; may be repeated.")] = [],  # noqa: B006
    where: Annotated[list[str], typer.Option(help="key=value: only these results; may be repeated.")] = [],  # noqa: B006
    across: Annotated[list[str], typer.Option(help="Keys that may differ besides: driver_version,torch_version")] = [],  # noqa: B006
    value: Annotated[list[str], typer.Option(help="phase.metric: step.time; may be repeated.")] = [],  # noqa: B006
    min_effect: Annotated[str | None, typer.Option(help="Least difference that counts: 2%, or 0.02.")] = None,
    beside: Annotated[
        str | None, typer.Option("--with", help="published, a reference store or a store: side by side.")
    ] = None,
    fail_on: Annotated[list[str], typer.Option(help="Exit with 1 at such a verdict: slower, more, ...")] = [],  # noqa: B006
    format: Annotated[str, typer.Option(help="text, markdown, latex, typst, csv or html.")] = "text",
) -> None:
    """Compare two selections of results, or two stores. Each cell has a ratio of medians and a verdict."""
    from lmsweep.analysis import load, render
    from lmsweep.analysis.comparison.compare import VERDICTS, select_sides
    from lmsweep.analysis.comparison.compare import compare as compare_sides
    from lmsweep.analysis.data.selection import select

    for word in fail_on:
        if word not in VERDICTS:
            raise RequestError(f"--fail-on {word}: no such verdict; there are: {', '.join(VERDICTS)}")
    conditions = _pairs(where, "--where")
    first, second = _pairs(baseline, "--baseline"), _pairs(contrast, "--contrast")
    if beside:
        if other or first or second or fail_on or across or value or min_effect:
            raise RequestError("--with shows numbers side by side and judges nothing; it goes with --where alone")
        from lmsweep.analysis.comparison.side_by_side import beside as place_beside

        say(render(place_beside(select(load(store), conditions), beside), format))
        return
    if other is None and not (first and second):
        raise RequestError("say what to compare: --baseline key=value --contrast key=value, or a second store")
    frame = select(load(store, pooled=False), conditions)
    if other is None:
        one, two, between = select_sides(frame, first, second)
    else:
        one = select(frame, first, option="--baseline")
        two = select(select(load(other, pooled=False), conditions), second, option="--contrast")
        between = {name: (first.get(name, "any"), second.get(name, "any")) for name in {**first, **second}}
    found = compare_sides(
        one,
        two,
        between=between,
        stores=(store, other) if other else None,
        across=tuple(_names(across) or ()),
        values=value or None,
        least=_share(min_effect) if min_effect else None,
    )
    say(render(found.listing(), format))
    # What no longer runs at all has not become faster.
    if fail_on and found.frame["verdict"].isin([*fail_on, "failed"]).any():
        raise typer.Exit(1)


def _share(text: str) -> float:
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise RequestError(f"--min-effect {text}: give a percentage such as 2%") from None


def report(
    store: StoreArgument = "results",
    output: Annotated[str, typer.Option("--output", "-o", help="The file to write; - is standard output.")] = (
        "report.html"
    ),
    others: Annotated[
        list[str], typer.Option("--with", help="published, a reference store or a store beside it; may be repeated.")
    ] = [],  # noqa: B006
) -> None:
    """Write a page of charts and tables that opens in a browser. It needs neither a server nor a network."""
    from lmsweep.analysis.report import page_of, write_report

    if output == "-":
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        sys.stdout.writelines(page_of(store, others))
        return
    path = Path(output).expanduser()
    if path.suffix.lower() not in ("", ".html", ".htm"):
        raise RequestError(
            f"-o {output}: the report is one HTML file; write a name that ends in .html, or - for standard output. "
            "A browser prints it to PDF, and `lmsweep table --format` writes text, markdown, latex, typst and csv"
        )
    size = write_report(store, path, others)
    say(f"{path} ({size / 2**20:.1f} MiB); open it in a browser")


def _names(options: list[str]) -> list[str] | None:
    """The names of an option that may be repeated, with commas between; None where it was not given."""
    return ",".join(options).split(",") if any(options) else None


def _pairs(texts: list[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise RequestError(f"{option} {text}: write field=value")
        if name in pairs:
            raise RequestError(f"{option} {name}: given twice; write {name}={pairs[name]},{value} for either")
        pairs[name] = value
    return pairs
