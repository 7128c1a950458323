"""`sweeps`: the packaged sweeps, and the file of each.

listed.py   a line a sweep, by the question that it answers
"""

from typing import Annotated

from typer import Argument

from lmsweep.orchestrator.commands.options import JsonFormat
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.terminal import say_data, show_groups
from lmsweep.trials.spec.errors import RequestError


def sweeps(
    name: Annotated[str, Argument(help="Print the file of this one, to copy and change.")] = "",
    format: JsonFormat = "text",
) -> None:
    """List the packaged sweeps by question, or print the file of one.

    \b
    Examples:
      lmsweep sweeps
      lmsweep sweeps quick
    """
    if name:
        from lmsweep.orchestrator.feature import packaged_sweeps
        from lmsweep.trials.spec.suggestions import choices

        packaged = packaged_sweeps()
        if name not in packaged:
            raise RequestError(f"{name} is not a packaged sweep{choices(name, packaged)}")
        say_data(packaged[name].rstrip("\n"))
        return
    from lmsweep.orchestrator.features.catalogue.listed import SweepsOutput, listed_sweeps

    listed = listed_sweeps()
    if format == "json":
        from lmsweep.trials.results.record_json import json_of

        say_data(json_of(SweepsOutput(sweeps=listed)))
        return
    groups: dict[str, dict[str, str]] = {}
    for one in listed:
        groups.setdefault(one.question, {})[one.name] = one.words
    show_groups(groups)


feature = Feature(name="catalogue", place=-1, verbs=(sweeps,), outputs={"sweeps": f"{__name__}.listed:SweepsOutput"})
