"""`sweeps`, `show`: the packaged sweeps.

listed.py   a line a sweep, by the question that it answers
"""

from lmsweep.orchestrator.commands.options import JsonFormat
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import What, takes_request
from lmsweep.orchestrator.terminal import say_data, show_groups
from lmsweep.trials.spec.config import RequestError


def sweeps(format: JsonFormat = "text") -> None:
    """List the packaged sweeps by question: their trials, how many of them can run here, what they measure.

    \b
    Example:
      lmsweep sweeps
    """
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


@takes_request("sweep")
def show(what: What) -> None:
    """Print a packaged sweep, to copy and change: lmsweep show quick > mine.yaml

    \b
    Example:
      lmsweep show quick
    """
    from lmsweep.orchestrator.feature import packaged_sweeps
    from lmsweep.trials.spec.suggestions import choices

    packaged, sweep = packaged_sweeps(), what.sweep
    if sweep not in packaged:
        raise RequestError(f"{sweep} is not a packaged sweep{choices(sweep, packaged)}")
    say_data(packaged[sweep].rstrip("\n"))


feature = Feature(
    name="catalogue",
    job="Set up",
    place=0,
    verbs=(sweeps, show),
    outputs={"sweeps": f"{__name__}.listed:SweepsOutput"},
)
