"""`--explain` and `--profile`: what the difference of two steps consists of, from profiles of their kernels.

workload.py         the record of the workload `profile`
profiled_steps.py   the workload: the kernels of a step, and the part of the model that each belongs to
nsys.py             traces by NVIDIA's nsys, run around a process of its own
nsys_target.py      that process
attribution.py      the range of the step that each kernel belongs to
kernel_table.py     rows of the tables `kernels` and `operators`, and the time of each range
explanation.py      what the differences of a comparison consist of
step_causes.py      divides the difference of two profiled steps into parts of the model, idle time and the rest
kernel_changes.py   what changed in one part: operators, kernels, calls or time alone
presets.py          the tables, by name
profile_tables.py   the tables
"""

from collections.abc import Callable
from typing import Annotated, Any

from typer import Option

from lmsweep.orchestrator.feature import Feature, with_option
from lmsweep.trials.spec.errors import RequestError

WHOLE_STEPS = ("value", "min_effect", "same_within", "fail_on", "beside", "environment")
"""Options of `compare` that say nothing about what a step consists of."""


def with_explain(verb: Callable[..., None]) -> Callable[..., None]:
    """Add --explain to `compare`."""
    if verb.__name__ != "compare":
        return verb

    def compare(explain: bool, **given: Any) -> None:
        if explain:
            _show_causes(**given)
        else:
            verb(**given)

    option = Annotated[bool, Option("--explain", help="Show what the differences consist of, from profiles.")]
    return with_option(verb, "explain", option, compare)


def _show_causes(**given: Any) -> None:
    if any(given.get(name) for name in WHOLE_STEPS):
        others = "--value, --min-effect, --same-within, --fail-on, --with and --environment"
        raise RequestError(f"--explain is about whole steps; leave out {others}")
    from lmsweep.orchestrator.commands.options import names_of, pairs
    from lmsweep.orchestrator.commands.text.show_table import show_table
    from lmsweep.orchestrator.features.explain.explanation import explain

    sides = {name: pairs(given[name], f"--{name}") for name in ("baseline", "contrast", "where")}
    found = explain(given["store"], given["other"], **sides, across=names_of(given["across"]))
    show_table(found.listing(), given["format"])


feature = Feature(
    name="explain",
    functions={
        "explain": f"{__name__}.explanation:explain",
        "explain_steps": f"{__name__}.explanation:explain_steps",
    },
    extends=with_explain,
)
