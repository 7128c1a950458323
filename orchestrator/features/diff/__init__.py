"""`diff`: in which hardware and software two stores differ."""

from typing import Annotated

from typer import Argument

from lmsweep.orchestrator.commands.options import Format
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.terminal import say


def diff(
    store: Annotated[str, Argument(help="One store.")],
    other: Annotated[str, Argument(help="Another.")],
    format: Format = "text",
) -> None:
    """Show in which hardware and software two stores differ.

    \b
    Example:
      lmsweep diff results other-results
    """
    from lmsweep.analysis import load
    from lmsweep.analysis.comparison.environment_diff import environment_diff
    from lmsweep.orchestrator.commands.text.show_table import show_table

    frames = [load(location, pooled=False) for location in (store, other)]
    found = environment_diff(frames[0], frames[1], (store, other))
    if found.frame.empty and format == "text":
        say(found.notes[0])
        return
    show_table(found, format)


feature = Feature(name="diff", job="Read", place=1.4, verbs=(diff,))
