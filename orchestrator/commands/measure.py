"""The verbs that measure, or say what would be measured: plan, run, trial, doctor."""

import json
import shlex
import time
from functools import partial
from typing import Annotated, Any

import typer

from lmsweep.orchestrator.terminal import say
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError

Sweep = Annotated[str, typer.Argument(help="A sweep file, or the name of a packaged sweep.")]
StoreOption = Annotated[str, typer.Option("--store", help="Where results are kept: a folder or a URI.")]
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

MANY = 50
"""Predictions that take so long, five seconds on two cores, that it is said what is waited for."""


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
    from lmsweep.orchestrator.commands.plan_text import as_json, as_text, frontier_as_json, frontier_as_text

    if format not in ("text", "json"):
        raise RequestError(f"--format {format}: write text or json")
    if max_batch or max_context:
        if price:
            raise RequestError("--price goes with a plan of trials, not with --max-batch or --max-context")
        from lmsweep.orchestrator.planning.largest_fit import find_frontier

        planned = _plan(sweep, store, set, address, retry, fresh, cluster=cluster, predict=False, on=on)
        say(f"predicting the memory of {len(planned.plan.trials)} trials at many sizes, some seconds each", error=True)
        found = [find_frontier(planned.plan, name) for name in _dimensions(max_batch, max_context)]
        if format == "json":
            say(json.dumps({"frontier": [one for each in found for one in frontier_as_json(each)]}, indent=2))
        else:
            say("\n\n".join(frontier_as_text(each) for each in found))
        return
    from lmsweep.orchestrator.planning.forecast import forecast
    from lmsweep.orchestrator.planning.time_estimate import Estimates
    from lmsweep.trials.analytic.prices import parse_prices

    prices = parse_prices(price)
    planned = _plan(sweep, store, set, address, retry, fresh, cluster=cluster, predict=not no_predict, on=on)
    foreseen = forecast(planned.plan, Estimates(planned.store), planned.nodes, prices)
    if format == "json":
        say(json.dumps(as_json(planned.plan, foreseen, planned.predictions), indent=2))
    else:
        say(as_text(planned.plan, foreseen, planned.predictions))
        if not on and planned.plan.count("unsupported") == len(planned.plan.trials):
            say("\n`lmsweep doctor` says what can run here. --for H100 plans for a GPU that is not here.")


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
    grace: Annotated[str | None, typer.Option(help="Time for what runs to end after SIGTERM: 30s, 2m, ...")] = None,
) -> None:
    """Run what a sweep asks for and the store does not hold yet. Ctrl-C ends it; the next run goes on."""
    began = time.monotonic()
    from rich.console import Console

    from lmsweep.orchestrator.commands.plan_text import summary
    from lmsweep.orchestrator.commands.run_summary import closing_words, left_out
    from lmsweep.orchestrator.interrupt import exit_code, words
    from lmsweep.orchestrator.running.other_runs import other_runs, words_about
    from lmsweep.orchestrator.running.run import prepare, run_plan
    from lmsweep.orchestrator.running.store_writer import StoreError
    from lmsweep.orchestrator.sweep.duration import seconds_of

    graceful = seconds_of(grace, "--grace") if grace else 0.0
    rest = _command(
        sweep,
        {
            "--store": [store] if store != "results" else [],
            "--set": set,
            "--address": [address],
            "--cluster": [cluster],
            "--grace": [grace],
        },
        {"--no-predict": no_predict, "--nsys": nsys},
    )
    planned = _plan(
        sweep,
        store,
        set,
        address,
        retry,
        fresh,
        cluster=cluster,
        predict=not no_predict,
        will_run=True,
        budget=budget,
        nsys=nsys,
    )
    kept = planned.store
    if planned.predictions:
        planned.predictions.close()
    for damage in kept.set_aside_damage():
        say(f"{store}/{damage.path} cannot be read ({damage.error}); moved to {store}/damaged/", error=True)
    ready = prepare(planned, Console(), began=began, budget=seconds_of(planned.budget) if planned.budget else None)
    say(summary(planned.plan, ready.forecast))
    if ready.to_run and not address and (others := other_runs()):
        say(words_about(others), error=True)
    try:
        with ready.progress:
            run_plan(ready, address, grace=graceful)
    except KeyboardInterrupt:
        say(f"\n{words()}; what had ended is in {store}. `{rest}` goes on.", error=True)
        raise typer.Exit(exit_code()) from None
    except StoreError as error:
        say(f"lmsweep: {store} takes no more results: {error}. `{rest}` goes on.", error=True)
        raise typer.Exit(1) from None
    say(closing_words(planned.plan, kept, ready.account))
    if ready.gate.kept_out:
        say(f"{left_out(ready.gate.kept_out, planned.plan)} did not fit into {planned.budget}; `{rest}` goes on.")
    if any(not Status(status).is_final for status in ready.account.statuses):
        raise typer.Exit(1)


def trial(
    settings: Annotated[list[str], typer.Argument(help="field=value, as in a sweep file; workloads=timing,...")],
    store: Annotated[str | None, typer.Option(help="Keep the result there.")] = None,
    nsys: Nsys = False,
    no_predict: NoPredict = False,
) -> None:
    """Run one trial in this very process, without Ray. It is for profilers and debuggers."""
    from lmsweep.orchestrator.commands.one_trial import LiveLine, check_fit
    from lmsweep.orchestrator.commands.run_summary import trial_words
    from lmsweep.orchestrator.sweep.sweep import single_trial
    from lmsweep.trials.machine.host_memory import memory_asked_for
    from lmsweep.trials.results.record import Row, records_of

    memory_asked_for()
    asked = single_trial([*settings, "profiler=nsys"] if nsys else settings)
    if nsys:
        from lmsweep.trials.profiling.nsys import check_nsys

        check_nsys([asked], here=True)
    kept = None
    if store:
        from lmsweep.trials.store.store import Store

        kept = Store(store)
        kept.check_writable()
    if not no_predict:
        check_fit(asked)
    from lmsweep.trials.bench.run import run_watched

    line = LiveLine(asked)
    failed = False

    def tell(rows: list[Row]) -> None:
        nonlocal failed
        line.stop()
        records = kept.keep(rows) if kept else records_of(rows)
        say(trial_words(records))
        failed = any(not Status(record.status).is_final for record in records)

    with line:
        run_watched(asked, tell, line.show)
    if failed:
        raise typer.Exit(1)


def doctor(address: Address = None) -> None:
    """Say what this machine can measure and what would make it wrong. With --address, of each node."""
    from lmsweep.orchestrator.cluster.doctor import as_text, examine

    if address is None:
        say(as_text(examine()))
        return
    from lmsweep.orchestrator.cluster.discovery import examine_nodes

    for name, findings in examine_nodes(address).items():
        say(f"node {name}\n\n{as_text(findings)}\n")


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
    budget: str | None = None,
    nsys: bool = False,
) -> Any:
    from lmsweep.orchestrator.cluster.discovery import find_nodes
    from lmsweep.orchestrator.cluster.ray_session import prepare
    from lmsweep.orchestrator.planning.forecast import START_SECONDS
    from lmsweep.orchestrator.planning.memory_budget import (
        device_memory,
        rooms,
        which_device,
        with_device,
        without_placement,
    )
    from lmsweep.orchestrator.planning.memory_predictions import SMALL, Predictions
    from lmsweep.orchestrator.planning.plan import Planned, make_plan
    from lmsweep.orchestrator.running.store_writer import deliver_left_over
    from lmsweep.orchestrator.sweep.duration import seconds_of
    from lmsweep.orchestrator.sweep.sweep import load_sweep, parse_overrides
    from lmsweep.trials.machine.host_memory import memory_asked_for
    from lmsweep.trials.store.store import Store

    memory_asked_for()  # says what is wrong with it before anything is done
    changed = [*overrides, "profiler=nsys"] if nsys else overrides
    if budget:
        seconds_of(budget, "--budget")  # says what is wrong with it before anything is done
    asked = load_sweep(sweep, parse_overrides(changed))
    budget = budget or asked.budget
    there = device_memory(on) if on else None
    if on and (words := which_device(on)):
        say(words, error=True)
    if there and not any(trial.config.device_type == "cuda" for trial in asked.trials):
        raise RequestError(f"--for {on}: no trial of {sweep} runs on a GPU; --set device=cuda has all of them do so")
    if nsys:
        from lmsweep.trials.profiling.nsys import check_nsys

        check_nsys(asked.trials, here=address is None)
    kept = Store(store)
    if will_run:
        kept.check_writable()
        deliver_left_over(kept)
    predictions = Predictions(asked.trials, least=SMALL if will_run else 0) if predict else None
    if predictions:
        _say_many(predictions.asked)
    # It may be that nothing fits into a short budget: then Ray is not started.
    enough = budget is None or seconds_of(budget) > START_SECONDS
    starts = will_run and enough and not kept.exists()
    meanwhile = partial(prepare, address) if starts else lambda: None
    nodes = find_nodes(address, cluster, meanwhile)
    if there:
        nodes, asked = [with_device(nodes[0], *there)], without_placement(asked)
    if predictions and not predictions.asked:
        predictions.bound(rooms(nodes))
        _say_many(predictions.asked)
    made = make_plan(asked, nodes, kept, retry=frozenset(retry), fresh=fresh, predictions=predictions)
    return Planned(plan=made, store=kept, nodes=nodes, predictions=predictions, budget=budget)


def _say_many(count: int) -> None:
    if count >= MANY:
        words = f"working out the memory of {count} configurations; it is kept. --no-predict goes without"
        say(words, error=True)


def _command(sweep: str, options: dict[str, list[Any]], flags: dict[str, bool]) -> str:
    """The command that runs what is left: without --fresh and --retry, which would begin anew."""
    given = [word for option, values in options.items() for value in values if value for word in (option, value)]
    return shlex.join(["lmsweep", "run", sweep, *given, *(flag for flag, wanted in flags.items() if wanted)])


def _dimensions(max_batch: bool, max_context: bool) -> list[Any]:
    return ["batch_size"] * max_batch + ["context_length"] * max_context
