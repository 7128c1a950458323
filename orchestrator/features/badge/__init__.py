"""`badge`: the headline of a store, or one of its numbers, as a small SVG for a README.

drawn_badge.py   chooses the words, and draws them
"""

from pathlib import Path
from typing import Annotated

from typer import Option

from lmsweep.orchestrator.commands.options import StoreArgument, paired, pairs
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import Texts
from lmsweep.orchestrator.terminal import say, say_data
from lmsweep.trials.spec.config import RequestError


def badge(
    store: StoreArgument = "results",
    output: Annotated[str, Option("--output", "-o", help="The file to write; - for standard output.")] = "badge.svg",
    value: Annotated[str, Option(help="PHASE.METRIC of one cell instead of the headline: step.mfu")] = "",
    where: Annotated[Texts, Option(callback=paired, help="FIELD=VALUE: selects the cell; repeatable.")] = [],
) -> None:
    """Write a badge for a README: the headline of a store, or one of its numbers, as a small SVG.

    \b
    Example:
      lmsweep badge results -o badge.svg
    """
    from lmsweep.orchestrator.features.badge.drawn_badge import badge as badge_of

    drawn = badge_of(store, value, pairs(where, "--where"))
    if output == "-":
        say_data(drawn.rstrip())
        return
    try:
        Path(output).expanduser().write_text(drawn, "utf-8")
    except OSError as error:
        raise RequestError(f"-o {output}: cannot be written ({error.strerror})") from error
    say(output)


feature = Feature(name="badge", job="Share", place=-1, verbs=(badge,))
