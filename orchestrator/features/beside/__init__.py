"""`compare --with`, `--environment`: a store beside published numbers, or beside another store and its machines.

side_by_side.py      tables of the pairs, and what they say in all
pairs.py             pairs each result with a published number or another store's result, and judges the pair
environment_diff.py  the environments of two stores
"""

from collections.abc import Callable
from typing import Annotated, Any

from typer import Option

from lmsweep.orchestrator.feature import Feature, with_option
from lmsweep.orchestrator.plan_request import Text
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.spec.errors import RequestError

TAKES = ("store", "where", "format", "verbose")
"""Options of `compare` that can be combined with --with."""


def with_beside(verb: Callable[..., None]) -> Callable[..., None]:
    """Add --with and --environment to `compare`; return any other verb as it is."""
    if verb.__name__ != "compare":
        return verb

    def compare_environments(environment: bool, **given: Any) -> None:
        if environment:
            _show_environments(**given)
        else:
            verb(**given)

    text = "Show in which hardware and software two stores differ."
    environments = Annotated[bool, Option("--environment", help=text)]
    with_environment = with_option(verb, "environment", environments, compare_environments)

    def compare_beside(beside: str | None, **given: Any) -> None:
        if beside:
            _show_beside(beside, **given)
        else:
            with_environment(**given)

    text = "Show beside `published`, a reference store, or another store."
    store = Annotated[Text, Option("--with", metavar="STORE", help=text)]
    return with_option(with_environment, "beside", store, compare_beside, None)


def _show_environments(**given: Any) -> None:
    taken = ("store", "other", "where", "format", "verbose")
    if not given["other"] or any(value for option, value in given.items() if option not in taken):
        raise RequestError(
            "--environment compares two stores, and can be combined only with --where, --format and --verbose: "
            "lmsweep compare STORE OTHER --environment"
        )
    from lmsweep.analysis import load
    from lmsweep.analysis.data.selection import select
    from lmsweep.orchestrator.commands.options import pairs
    from lmsweep.orchestrator.commands.show_table import show_parts
    from lmsweep.orchestrator.features.beside.environment_diff import environment_diff

    conditions, names = pairs(given["where"], "--where"), (given["store"], given["other"])
    one, two = (select(load(location, pooled=False), conditions) for location in names)
    differing = environment_diff(one, two, names)
    if differing.frame.empty and given["format"] == "text":
        say(differing.notes[0])
    else:
        show_parts([differing], given["format"])


def _show_beside(name: str, **given: Any) -> None:
    if any(value for option, value in given.items() if option not in TAKES):
        raise RequestError("--with can be combined only with --where, --format and --verbose")
    from lmsweep.analysis import load
    from lmsweep.analysis.data.pooled_rows import pool
    from lmsweep.analysis.data.selection import select
    from lmsweep.orchestrator.commands.options import pairs
    from lmsweep.orchestrator.commands.show_table import show_parts
    from lmsweep.orchestrator.features.beside.side_by_side import beside

    conditions = pairs(given["where"], "--where")
    attempts = load(given["store"], pooled=False)
    shown = beside(attempts, name, select(pool(attempts), conditions))
    if given["format"] in ("csv", "json"):
        show_parts([shown.long()], given["format"])
    else:
        show_parts(shown.cells() if given["verbose"] else shown.brief(), given["format"])


feature = Feature(
    name="beside",
    functions={
        "beside": f"{__name__}.side_by_side:beside",
        "paired": f"{__name__}.pairs:paired",
        "environment_diff": f"{__name__}.environment_diff:environment_diff",
    },
    extends=with_beside,
)
