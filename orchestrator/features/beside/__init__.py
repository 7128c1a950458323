"""`compare --with`: a store's results beside published numbers, or beside those of another store.

side_by_side.py  how they are shown
pairs.py         which published number, or result of another store, stands beside which result; each pair judged
"""

from collections.abc import Callable
from typing import Annotated, Any

from typer import Option

from lmsweep.orchestrator.feature import Feature, with_option
from lmsweep.orchestrator.plan_request import Text
from lmsweep.trials.spec.errors import RequestError

TAKES = ("store", "where", "format", "verbose")
"""Options of `compare` that can be combined with --with."""


def with_beside(verb: Callable[..., None]) -> Callable[..., None]:
    """Add --with to `compare`."""
    if verb.__name__ != "compare":
        return verb

    def compare(beside: str | None, **given: Any) -> None:
        if beside:
            _show_beside(beside, **given)
        else:
            verb(**given)

    text = "Show beside `published`, a reference store, or another store."
    return with_option(verb, "beside", Annotated[Text, Option("--with", metavar="STORE", help=text)], compare, None)


def _show_beside(name: str, **given: Any) -> None:
    if any(value for option, value in given.items() if option not in TAKES):
        raise RequestError("--with shows numbers without verdicts; only --where can be combined with it")
    from lmsweep.analysis import load
    from lmsweep.analysis.data.pooled_rows import pool
    from lmsweep.analysis.data.selection import select
    from lmsweep.orchestrator.commands.options import pairs
    from lmsweep.orchestrator.commands.text.show_table import show_parts, show_table
    from lmsweep.orchestrator.features.beside.side_by_side import beside

    conditions = pairs(given["where"], "--where")
    attempts = load(given["store"], pooled=False)
    shown = beside(attempts, name, select(pool(attempts), conditions))
    if given["format"] in ("csv", "json"):
        show_table(shown.long(), given["format"])
    else:
        show_parts(shown.cells() if given["verbose"] else shown.brief(), given["format"])


feature = Feature(
    name="beside",
    functions={"beside": f"{__name__}.side_by_side:beside", "paired": f"{__name__}.pairs:paired"},
    extends=with_beside,
)
