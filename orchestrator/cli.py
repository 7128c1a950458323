"""The command. Each verb parses, calls and prints; what it needs it imports itself, so that --help answers at once."""

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from trials import __version__
from trials.spec import RequestError, Status

app = typer.Typer(
    name="lmsweep",
    help="Benchmark sweeps for language-model training. Start with: lmsweep run quick",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Sweep = Annotated[str, typer.Argument(help="A sweep file, or the name of a packaged sweep.")]
StoreOption = Annotated[str, typer.Option("--store", help="Where results are kept: a folder or a URI.")]
StoreArgument = Annotated[str, typer.Argument(help="Where results are kept: a folder or a URI.")]
Sets = Annotated[list[str], typer.Option("--set", help="axis=a,b: use these values instead; may be repeated.")]
Address = Annotated[str | None, typer.Option(help="Address of a Ray cluster; without it, this machine.")]
ClusterFile = Annotated[
    str | None, typer.Option("--cluster", help="The cluster's file, where the head was not started by `ray up`.")
]
Retry = Annotated[list[Status], typer.Option(help="Run again what ended with this status; may be repeated.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure everything again, whatever the store holds.")]
Prices = Annotated[list[str], typer.Option("--price", help="H100=2.5: dollars per hour; may be repeated.")]
NoPredict = Annotated[bool, typer.Option("--no-predict", help="Run trials whether their memory will fit or not.")]
Nsys = Annotated[bool, typer.Option("--nsys", help="Take profiles with NVIDIA's nsys, which has to be installed.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lmsweep {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


@app.command()
def plan(
    sweep: Sweep,
    store: StoreOption = "results",
    set: Sets = [],  # noqa: B006 - typer takes the option's name and a fresh list from here
    address: Address = None,
    cluster: ClusterFile = None,
    retry: Retry = [],  # noqa: B006
    fresh: Fresh = False,
    no_predict: NoPredict = False,
    on: Annotated[str | None, typer.Option("--for", help="Plan for a GPU that is not here: H100, 24GB, ...")] = None,
    max_batch: Annotated[bool, typer.Option("--max-batch", help="Show the largest batch that fits.")] = False,
    max_context: Annotated[bool, typer.Option("--max-context", help="Show the longest context that fits.")] = False,
    price: Prices = [],  # noqa: B006
    format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Show what a sweep would run here, and what it would not and why."""
    from orchestrator.plan_view import as_json, as_text, frontier_as_json, frontier_as_text

    if format not in ("text", "json"):
        raise RequestError(f"--format {format}: write text or json")
    if max_batch or max_context:
        from orchestrator.frontier import find_frontier

        planned = _plan(sweep, store, set, address, retry, fresh, cluster=cluster, predict=False, on=on)
        found = [find_frontier(planned.plan, name) for name in _dimensions(max_batch, max_context)]
        if format == "json":
            typer.echo(json.dumps({"frontier": [one for each in found for one in frontier_as_json(each)]}, indent=2))
        else:
            typer.echo("\n\n".join(frontier_as_text(each) for each in found))
        return
    from orchestrator.estimate import Estimates
    from orchestrator.forecast import forecast, price_of

    prices = [price_of(text) for text in price]
    planned = _plan(sweep, store, set, address, retry, fresh, cluster=cluster, predict=not no_predict, on=on)
    foreseen = forecast(planned.plan, Estimates(planned.store), planned.nodes, prices)
    if format == "json":
        typer.echo(json.dumps(as_json(planned.plan, foreseen, planned.predictions), indent=2))
    else:
        typer.echo(as_text(planned.plan, foreseen, planned.predictions))


@app.command()
def run(
    sweep: Sweep,
    store: StoreOption = "results",
    set: Sets = [],  # noqa: B006
    address: Address = None,
    cluster: ClusterFile = None,
    retry: Retry = [],  # noqa: B006
    fresh: Fresh = False,
    no_predict: NoPredict = False,
    nsys: Nsys = False,
    budget: Annotated[str | None, typer.Option(help="Run what fits into this time: 30m, 2h, ...")] = None,
) -> None:
    """Run what a sweep asks for and the store does not hold yet; Ctrl-C ends it, the next run goes on."""
    began = time.monotonic()
    from rich.console import Console

    from orchestrator.delivery import StoreError
    from orchestrator.gate import seconds_of
    from orchestrator.plan_view import summary
    from orchestrator.run import prepare, run_plan
    from orchestrator.run_view import closing_words

    seconds = seconds_of(budget) if budget else None
    planned = _plan(
        sweep, store, set, address, retry, fresh, cluster=cluster, predict=not no_predict, will_run=True, nsys=nsys
    )
    kept = planned.store
    if planned.predictions:
        planned.predictions.close()
    kept.check_writable()
    for damage in kept.set_aside_damage():
        typer.echo(f"{store}/{damage.path} cannot be read ({damage.error}); moved to {store}/damaged/", err=True)
    ready = prepare(planned, Console(), began=began, budget=seconds)
    typer.echo(summary(planned.plan, ready.forecast))
    try:
        with ready.progress:
            run_plan(ready, address)
    except KeyboardInterrupt:
        typer.echo(f"\ninterrupted; what had ended is in {store}. `lmsweep run {sweep}` goes on.", err=True)
        raise typer.Exit(130) from None
    except StoreError as error:
        typer.echo(f"lmsweep: {store} takes no more results: {error}. `lmsweep run {sweep}` goes on.", err=True)
        raise typer.Exit(1) from None
    typer.echo(closing_words(planned.plan, kept, ready.account))
    if ready.gate.kept_out:
        typer.echo(f"{ready.gate.kept_out} trials did not fit into {budget}; `lmsweep run {sweep}` goes on.")
    if any(not Status(status).is_final for status in ready.account.statuses):
        raise typer.Exit(1)


@app.command()
def trial(
    settings: Annotated[list[str], typer.Argument(help="field=value, as in a sweep file; workloads=timing,...")],
    store: Annotated[str | None, typer.Option(help="Keep the result there.")] = None,
    nsys: Nsys = False,
) -> None:
    """Run one trial in this very process, without Ray: for profilers and debuggers."""
    from orchestrator.run_view import trial_words
    from orchestrator.sweep import single_trial
    from trials.record import records_of

    asked = single_trial([*settings, "profiler=nsys"] if nsys else settings)
    if nsys:
        from trials.nsys import check_nsys

        check_nsys([asked], here=True)
    kept = None
    if store:
        from trials.store import Store

        kept = Store(store)
        kept.check_writable()
    from trials.run import run_here

    rows = run_here(asked)
    records = kept.keep(rows) if kept else records_of(rows)
    typer.echo(trial_words(records))
    if any(not Status(record.status).is_final for record in records):
        raise typer.Exit(1)


@app.command()
def status(store: StoreArgument = "results") -> None:
    """Count what a store holds, by status, sweep and device, and what is in doubt."""
    from analysis import load
    from analysis.status import counts, flag_words

    frame = load(store, newest=False)
    typer.echo(counts(frame).to_markdown(index=False) if len(frame) else f"{store} holds no results yet")
    if doubts := flag_words(frame):
        typer.echo(f"\n{doubts}")


@app.command()
def table(
    store: StoreArgument = "results",
    rows: Annotated[str | None, typer.Option(help="Fields whose values are rows: model,context_length")] = None,
    cols: Annotated[str | None, typer.Option(help="Fields whose values are columns: precision,compile")] = None,
    value: Annotated[list[str], typer.Option(help="phase.metric: forward.time, step.tflops; may be repeated.")] = [],  # noqa: B006
    where: Annotated[list[str], typer.Option(help="field=value: only these results; may be repeated.")] = [],  # noqa: B006
    format: Annotated[str, typer.Option(help="text, markdown, latex, typst, csv or html.")] = "text",
    preset: Annotated[str | None, typer.Option(help="A table that has a name; --list-presets shows which.")] = None,
    price: Annotated[list[str], typer.Option(help="H200=3.5: dollars per hour, for --preset cost; repeatable.")] = [],  # noqa: B006
    list_presets: Annotated[bool, typer.Option("--list-presets", help="Name the tables that have one.")] = False,
) -> None:
    """Print a pivot of the results; without options, one that shows everything that varies."""
    from analysis import default_layout, load, pivot, render
    from analysis.presets import PRESETS, make_preset

    if list_presets:
        width = max(map(len, PRESETS))
        typer.echo("\n".join(f"{name:<{width}}  {one.question}" for name, one in PRESETS.items()))
        return
    if preset:
        if rows or cols or value:
            raise RequestError(
                f"--preset {preset} has rows, columns and values of its own; choose results with --where"
            )
        from analysis.cost import parse_prices

        conditions = dict(_pair(text) for text in where)
        typer.echo(render(make_preset(preset, store, where=conditions, prices=parse_prices(price)), format))
        return
    frame = load(store)
    if frame.empty:
        raise RequestError(f"{store} holds no results; fill it with: lmsweep run quick --store {store}")
    conditions = dict(_pair(text) for text in where)
    row_names, col_names, values = default_layout(
        frame,
        rows=rows.split(",") if rows else None,
        cols=cols.split(",") if cols else None,
        values=value or None,
        where=conditions,
    )
    chosen = pivot(frame, rows=row_names, cols=col_names, values=values, where=conditions)
    typer.echo(render(chosen, format))


@app.command()
def compare(
    store: StoreArgument = "results",
    other: Annotated[
        str | None, typer.Argument(help="A second store: it is the contrast, the first the baseline.")
    ] = None,
    baseline: Annotated[list[str], typer.Option(help="key=value: what one side is; may be repeated.")] = [],  # noqa: B006
    contrast: Annotated[list[str], typer.Option(help="key=value: what the other side is; may be repeated.")] = [],  # noqa: B006
    where: Annotated[list[str], typer.Option(help="key=value: only these results; may be repeated.")] = [],  # noqa: B006
    across: Annotated[
        str | None, typer.Option(help="Keys that may differ besides: driver_version,torch_version")
    ] = None,
    value: Annotated[list[str], typer.Option(help="phase.metric: step.time; may be repeated.")] = [],  # noqa: B006
    min_effect: Annotated[str | None, typer.Option(help="Least difference that counts: 2%, or 0.02.")] = None,
    beside: Annotated[
        str | None, typer.Option("--with", help="published, a reference store or a store: side by side.")
    ] = None,
    fail_on: Annotated[list[str], typer.Option(help="Exit with 1 at such a verdict: slower, more, ...")] = [],  # noqa: B006
    format: Annotated[str, typer.Option(help="text, markdown, latex, typst, csv or html.")] = "text",
) -> None:
    """Compare two selections of results, or two stores: ratios of medians, and whether they differ."""
    from analysis import load, render
    from analysis.compare import VERDICTS, select_sides
    from analysis.compare import compare as compare_sides
    from analysis.tables import select

    for word in fail_on:
        if word not in VERDICTS:
            raise RequestError(f"--fail-on {word}: no such verdict; there are: {', '.join(VERDICTS)}")
    conditions, first, second = (dict(_pair(text) for text in texts) for texts in (where, baseline, contrast))
    if beside:
        if other or first or second or fail_on:
            raise RequestError("--with shows numbers side by side and judges nothing; it goes with --where alone")
        from analysis.beside import beside as place_beside

        typer.echo(render(place_beside(select(load(store), conditions), beside), format))
        return
    if other is None and not (first and second):
        raise RequestError("say what to compare: --baseline key=value --contrast key=value, or a second store")
    frame = select(load(store, newest=False), conditions)
    if other is None:
        one, two, between = select_sides(frame, first, second)
    else:
        one = select(frame, first)
        two = select(select(load(other, newest=False), conditions), second)
        between = {name: (first.get(name, "any"), second.get(name, "any")) for name in {**first, **second}}
    found = compare_sides(
        one,
        two,
        between=between,
        across=tuple(across.split(",")) if across else (),
        values=value or None,
        least=_share(min_effect) if min_effect else None,
    )
    typer.echo(render(found.listing(), format))
    # What no longer runs at all has not become faster.
    if fail_on and found.frame["verdict"].isin([*fail_on, "failed"]).any():
        raise typer.Exit(1)


def _share(text: str) -> float:
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise RequestError(f"--min-effect {text}: give a percentage such as 2%") from None


@app.command()
def report(
    store: StoreArgument = "results",
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("report.html"),
    others: Annotated[
        list[str], typer.Option("--with", help="published, a reference store or a store beside it; may be repeated.")
    ] = [],  # noqa: B006
) -> None:
    """Write a page of charts and tables that opens in a browser, without a server or a network."""
    from analysis.report import write_report

    size = write_report(store, output, others)
    typer.echo(f"{output} ({size / 2**20:.1f} MiB); open it in a browser")


@app.command()
def doctor(address: Address = None) -> None:
    """Say what this machine can measure, and what would make its numbers wrong; with --address, of each node."""
    from orchestrator.doctor import as_text, examine

    if address is None:
        typer.echo(as_text(examine()))
        return
    from orchestrator.cluster import examine_nodes

    for name, findings in examine_nodes(address).items():
        typer.echo(f"node {name}\n\n{as_text(findings)}\n")


def _plan(
    sweep: str,
    store: str,
    overrides: list[str],
    address: str | None,
    retry: list[Status],
    fresh: bool,
    *,
    cluster: str | None,
    predict: bool,
    on: str | None = None,
    will_run: bool = False,
    nsys: bool = False,
) -> Any:
    from orchestrator.delivery import deliver_left_over
    from orchestrator.fit import device_memory, with_device, without_placement
    from orchestrator.launch import prepare
    from orchestrator.plan import Planned, make_plan
    from orchestrator.predictions import SMALL, Predictions
    from orchestrator.resources import find_nodes
    from orchestrator.sweep import load_sweep, parse_override
    from trials.store import Store

    changed = [*overrides, "profiler=nsys"] if nsys else overrides
    asked = load_sweep(sweep, dict(parse_override(text) for text in changed))
    there = device_memory(on) if on else None
    if nsys:
        from trials.nsys import check_nsys

        check_nsys(asked.trials, here=address is None)
    kept = Store(store)
    if will_run:
        deliver_left_over(kept)
    predictions = Predictions(asked.trials, least=SMALL if will_run else 0) if predict else None
    meanwhile = partial(prepare, address) if will_run and not kept.exists() else lambda: None
    nodes = find_nodes(address, cluster, meanwhile)
    if there:
        nodes, asked = [with_device(nodes[0], *there)], without_placement(asked)
    made = make_plan(asked, nodes, kept, retry=frozenset(retry), fresh=fresh, predictions=predictions)
    return Planned(plan=made, store=kept, nodes=nodes, predictions=predictions)


def _dimensions(max_batch: bool, max_context: bool) -> list[Any]:
    return ["batch_size"] * max_batch + ["context_length"] * max_context


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise RequestError(f"--where {text}: write field=value")
    return name.strip(), value.strip()


def main() -> None:
    """Runs the command; a wrong request is one message on standard error and exit code 2."""
    try:
        app()
    except RequestError as error:
        typer.echo(f"lmsweep: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
