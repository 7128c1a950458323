"""`--explain`: what the difference of two steps consists of, from profiles; where the predicted step of a plan goes.

workload.py         the record of the workload `profile`
profiled_steps.py   the workload: the kernels of a step, and the part of the model that each belongs to
nsys.py             traces by NVIDIA's nsys, run around a process of its own
nsys_target.py      that process
attribution.py      the range of the step that each kernel belongs to
kernel_table.py     rows of the tables `kernels` and `operators`, and the time of each range
explanation.py      what the differences of a comparison consist of
step_causes.py      divides the difference of two profiled steps into parts of the model, idle time and the rest
kernel_changes.py   what changed in one part: operators, kernels, calls or time alone
step_text.py        `plan --explain`: where the predicted time of a step goes
presets.py          the tables, by name
profile_tables.py   the tables
"""

from collections.abc import Callable
from inspect import signature
from typing import Annotated, Any

from typer import Option

from lmsweep.orchestrator.feature import Feature, with_option
from lmsweep.orchestrator.plan_request import How, Text, Texts, What, Where, takes_request, with_device
from lmsweep.orchestrator.terminal import say_data
from lmsweep.trials.spec.errors import RequestError

WITHOUT_EXPLAIN = ("value", "min_effect", "same_within", "fail_on", "beside", "environment")
"""Options of `compare` that do not go with --explain."""


def with_explain(verb: Callable[..., None]) -> Callable[..., None]:
    """Add --explain to `compare` and `plan`. given: the other options of the verb."""

    def compare(explain: bool, **given: Any) -> None:
        if explain:
            _show_causes(**given)
        else:
            verb(**given)

    def plan(explain: str | None, **given: Any) -> None:
        if explain is None:
            verb(**given)
        else:
            taken = signature(_show_step).parameters  # its options, by the names that `takes_request` lists
            _show_step(explain=explain, **{name: value for name, value in given.items() if name in taken})

    if verb.__name__ == "compare":
        option = Annotated[bool, Option("--explain", help="Show what the differences consist of, from profiles.")]
        return with_option(verb, "explain", option, compare)
    if verb.__name__ == "plan":
        trial = Annotated[Text, Option(metavar="TRIAL", help="Show where the predicted step of a trial goes.")]
        return with_option(verb, "explain", trial, plan, None)
    return verb


@takes_request(
    "sweep store grids overrides address cluster_file retry fresh predict on price explain code trusted shard nodes "
    "network trainer format"
)
def _show_step(
    what: What,
    where: Where,
    how: How,
    explain: str = "",
    on: Texts = [],
    price: Texts = [],
    trainer: Text = None,
    format: str = "text",
) -> None:
    from lmsweep.orchestrator.api import make_planned
    from lmsweep.orchestrator.cluster.nodes import Refusal
    from lmsweep.orchestrator.commands.show_table import show_parts
    from lmsweep.orchestrator.features.explain.step_text import chosen, step_listing, step_output
    from lmsweep.orchestrator.planning.plan_estimate import estimate_planned
    from lmsweep.trials.analytic.prices import parse_prices
    from lmsweep.trials.results.record_json import json_of

    planned = make_planned(what, with_device(where, what.sweep, on), how, prices=parse_prices(price))
    one = chosen(planned.plan, explain)
    _, steps = estimate_planned(planned, trainer=trainer)
    estimate = steps.estimate(one)
    if isinstance(estimate, Refusal):
        raise RequestError(f"--explain {explain}: its step is not predicted: {estimate.reason}")
    if format == "json":
        say_data(json_of(step_output(one, estimate)))
    else:
        show_parts([step_listing(one, estimate, trainer)])


def _show_causes(**given: Any) -> None:
    if any(given.get(name) for name in WITHOUT_EXPLAIN):
        options = "--value, --min-effect, --same-within, --fail-on, --with and --environment"
        raise RequestError(f"--explain is about whole steps; leave out {options}")
    from lmsweep.orchestrator.commands.options import names_of, pairs
    from lmsweep.orchestrator.commands.show_table import show_parts
    from lmsweep.orchestrator.features.explain.explanation import explain

    sides = {name: pairs(given[name], f"--{name}") for name in ("baseline", "contrast", "where")}
    explanation = explain(given["store"], given["other"], **sides, across=names_of(given["across"]))
    show_parts([explanation.listing()], given["format"])


feature = Feature(
    name="explain",
    outputs={"plan --explain": f"{__name__}.step_text:StepOutput"},
    functions={"explain": f"{__name__}.explanation:explain", "explain_steps": f"{__name__}.explanation:explain_steps"},
    extends=with_explain,
)
