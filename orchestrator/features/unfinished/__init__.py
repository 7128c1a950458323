"""`table` of a run that was killed: how many of its trials have a result, and the command that resumes it.

asked.py   what each run here was asked, in the cache folder, until a table has shown that all of it has a result

The store cannot say what is missing: it has results alone, and a run that is killed says nothing at its end.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import How, What, Where, takes_request
from lmsweep.orchestrator.terminal import say


def with_unfinished(verb: Callable[..., None]) -> Callable[..., None]:
    """Let `run` keep what it was asked, and `table` begin with how much of that is missing."""

    @wraps(verb)
    def run(**given: Any) -> None:
        _keep(**given)  # `takes_request` picks the options that it lists
        verb(**given)

    @wraps(verb)
    def table(**given: Any) -> None:
        if given["format"] == "text" and not given["list_presets"]:
            from lmsweep.orchestrator.features.unfinished.asked import lines_about

            for line in lines_about(given["store"]):
                say(line)
        verb(**given)

    return {"run": run, "table": table}.get(verb.__name__, verb)


@takes_request(
    "sweep store grids overrides address cluster_file retry fresh predict profile nsys code trusted budget until grace "
    "shard tracker"
)
def _keep(what: What, where: Where, how: How) -> None:
    from lmsweep.orchestrator.features.unfinished.asked import keep

    keep(what, where, how)


feature = Feature(name="unfinished", extends=with_unfinished)
