"""`plan`: which trials a run would measure, for how long, what does not fit, and the largest size that does.

plan_text.py     a plan as text
plan_output.py   a plan for programs
fleet.py         the throughput and price of a trial with several ranks, and how many GPUs are worth their price
"""

import shlex
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

from typer import Option

from lmsweep.orchestrator.commands.options import JsonFormat, NamedTrainer, Prices, names_of
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import How, Texts, What, Where, command_on, takes_request, with_device
from lmsweep.orchestrator.terminal import say, say_data
from lmsweep.trials.analytic.prices import parse_prices
from lmsweep.trials.results.environment import is_absent
from lmsweep.trials.results.record_json import json_of
from lmsweep.trials.spec.config import RequestError, TrialConfig

if TYPE_CHECKING:
    from lmsweep.orchestrator.planning.largest_fit import Frontier
    from lmsweep.orchestrator.planning.plan import Plan, Planned
    from lmsweep.trials.analytic.memory_prediction import Dimension


@takes_request(
    "sweep store grids overrides address cluster_file retry fresh predict on max_batch max_context price code trusted "
    "shard nodes network trainer all format"
)
def plan(
    what: What,
    where: Where,
    how: How,
    on: Annotated[
        Texts, Option("--for", metavar="GPU", help="Plan for GPUs this machine lacks: H100, 24GB, 8xH100, ...")
    ] = [],
    max_batch: Annotated[bool, Option("--max-batch", help="Show the largest batch size that fits.")] = False,
    max_context: Annotated[bool, Option("--max-context", help="Show the longest context that fits.")] = False,
    price: Prices = [],
    trainer: NamedTrainer = None,
    all: Annotated[bool, Option("--all", help="List all trials of a long plan.")] = False,
    format: JsonFormat = "text",
) -> None:
    """Show which trials would run, for how long, and why others not.

    \b
    Example:
      lmsweep plan quick
    """
    if price and (max_batch or max_context):
        raise RequestError("--price cannot be combined with --max-batch or --max-context")
    where = with_device(where, what.sweep, names_of(on))
    from lmsweep.orchestrator.api import make_planned

    if max_batch or max_context:
        planned = make_planned(what, where, replace(how, predict=False))
        _print_largest_fit(planned, format, max_batch=max_batch, max_context=max_context)
        return
    from lmsweep.orchestrator.planning.plan_estimate import estimate_planned

    prices = parse_prices(price)
    planned = make_planned(what, where, how, prices=prices)
    estimate, steps = estimate_planned(planned, prices, trainer)
    if format == "json":
        from lmsweep.orchestrator.features.plan.plan_output import plan_output

        say_data(json_of(plan_output(planned.plan, estimate, planned.predictions, steps, prices)))
        return
    if not planned.plan.trials:
        say(f"{planned.plan.sweep}: no trials; this shard is empty")
        return
    from lmsweep.orchestrator.commands.show_table import show_parts
    from lmsweep.orchestrator.features.plan.plan_text import PlanText

    command = partial(command_on, what=what, where=where, how=how)
    plan_text = PlanText(planned.plan, estimate, planned.predictions, steps, command, prices, trainer)
    show_parts([plan_text.listing(all=all)])
    if not on and planned.plan.count("unsupported") == len(planned.plan.trials):
        there = f"there: lmsweep doctor --address {shlex.quote(where.address)}" if where.address else None
        say(f"\nTo see what can run {there or 'here: lmsweep doctor'}")
    if not on and any(
        one.trial.config.takes_gpus and is_absent(one.environment.device_name) for one in planned.plan.trials
    ):
        say(f"To plan for a GPU that is not there: lmsweep plan {shlex.quote(what.sweep)} --for H100")


def _print_largest_fit(planned: "Planned", format: str, *, max_batch: bool, max_context: bool) -> None:
    from lmsweep.orchestrator.commands.show_table import show_parts
    from lmsweep.orchestrator.features.plan.plan_output import FrontierOutput
    from lmsweep.orchestrator.features.plan.plan_text import frontier_listing
    from lmsweep.trials.spec.quantities import count_of

    wanted: dict[Dimension, bool] = {"batch_size": max_batch, "context_length": max_context}
    trials = count_of(len(planned.plan.trials), "trial")
    say(f"predicting the memory of {trials} at many sizes, some seconds each", error=True)
    frontiers = [_frontier(planned.plan, dimension) for dimension in wanted if wanted[dimension]]
    if format == "json":
        say_data(json_of(FrontierOutput(frontier=[one for each in frontiers for one in each])))
    else:
        show_parts([frontier_listing(each) for each in frontiers])


def _frontier(plan: "Plan", dimension: "Dimension") -> "list[Frontier]":
    """Return the frontier of each configuration on its device. Raises RequestError if no trial's memory is known."""
    from lmsweep.orchestrator.planning.largest_fit import dimension_of, frontiers
    from lmsweep.orchestrator.planning.memory_budget import Budget, budget
    from lmsweep.trials.analytic.memory_prediction import memory_config, with_value

    # Trials that differ in this dimension alone share an answer, so each is asked about with the value 1.
    places: dict[TrialConfig, tuple[str, Budget]] = {}
    for planned in plan.trials:
        config, available = planned.trial.config, budget(planned.trial.config, planned.environment)
        if available and config.builds_a_model and config.step is None:
            smallest = with_value(memory_config(config), dimension_of(config, dimension), 1)
            # `memory_config` drops the names, which the answer shows.
            asked = replace(smallest, model=config.model, precision=config.precision)
            places.setdefault(asked, (planned.environment.device_name, available))
    if not places:
        raise RequestError(
            "--max-batch and --max-context need a trial with a whole model, on a device whose memory size is known; "
            "--for names a device"
        )
    code = next((planned.trial.code for planned in plan.trials if planned.trial.code), None)
    return frontiers(places, dimension, code)


feature = Feature(name="plan", place=0, verbs=(plan,), outputs={"plan": f"{__name__}.plan_output:Printed"})
