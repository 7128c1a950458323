"""`trial`: one trial in the command's own process, for profilers and debuggers."""

from typing import Annotated

import typer
from typer import Argument, Option

from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import How, Text, Texts, What, takes_request
from lmsweep.orchestrator.terminal import ProgressLine
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError


@takes_request("settings id store nsys predict code trusted")
def trial(
    what: What,
    how: How,
    settings: Annotated[
        Texts, Argument(help="FIELD=VALUE, as in a sweep file; workloads=timing,... With --id: SWEEP FIELD=VALUE.")
    ],
    id: Annotated[Text, Option("--id", help="Run the trial of the sweep with this identifier.")] = None,
    store: Annotated[Text, Option(help="Store the result in this folder or URI.")] = None,
) -> None:
    """Measure one trial in this process, for profilers and debuggers.

    \b
    Examples:
      lmsweep trial model=tiny context_length=32 batch_size=1 measure_steps=3
      lmsweep trial quick --id 71234b8a
    """
    from lmsweep.orchestrator.features.trial.one_trial import (
        check_fit,
        check_possible,
        continue_with,
        planned_trial,
        running_words,
        unmade_rows,
        wrong_in,
    )
    from lmsweep.orchestrator.features.trial.trial_table import show_trial
    from lmsweep.orchestrator.running.store_writer import writable_store
    from lmsweep.orchestrator.software import SoftwareError
    from lmsweep.orchestrator.sweep.sweep import load_sweep, parse_overrides, single_trial
    from lmsweep.trials.machine.host_memory import memory_asked_for
    from lmsweep.trials.results.record import Row, records_of

    memory_asked_for()  # raises if the variable is wrong
    settings = [*settings, "profiler=nsys"] if what.nsys else settings
    if id is None:
        asked = single_trial(settings, code=what.code, trusted=what.trusted)
        check_possible(asked)
    else:
        overrides = parse_overrides(settings[1:], "trial")
        sweep = load_sweep(settings[0], overrides, code=what.code, trusted=what.trusted)
        asked = planned_trial(sweep, id)
    if what.nsys:
        from lmsweep.trials.profiling.find_nsys import check_nsys

        check_nsys([asked], here=True)
    kept = writable_store(store) if store else None
    line, failed = ProgressLine(), False

    def show(rows: list[Row]) -> None:
        nonlocal failed
        line.end()
        records = kept.keep(rows) if kept else records_of(rows)
        if wrong := wrong_in(records):
            raise RequestError(f"trial: {wrong}")
        show_trial(records)
        failed = any(not Status(record.status).is_final for record in records)

    try:
        continue_with(asked.config.software)
    except SoftwareError as error:
        show(unmade_rows(asked, error))
    else:
        if how.predict:
            check_fit(asked)
        from lmsweep.orchestrator.features.trial.watchdog import run_watched

        try:
            run_watched(asked, show, lambda *taken: line.show(lambda: running_words(asked, *taken)))
        finally:
            line.end()
    if failed:
        raise typer.Exit(1)


feature = Feature(name="trial", place=1.5, verbs=(trial,))
