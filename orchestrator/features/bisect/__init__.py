"""`bisect`: finds the release of a package in which a cell of a sweep changed.

bisect_sweep.py  the search through releases, and what it says at its end
presets.py       the table `upgrade`: each release against the oldest
"""

from dataclasses import replace
from typing import Annotated

from typer import Option

from lmsweep.orchestrator.feature import Feature, check_function
from lmsweep.orchestrator.plan_request import How, Rare, Text, Texts, What, Where, resume_command, takes_request
from lmsweep.trials.spec.config import RequestError

NO_LIMIT = "9999h"
"""Replaces the sweep's own budget, which is for one run: a comparison needs all cells."""


@takes_request("sweep good bad releases package processes value explain store grids overrides code trusted")
def bisect(
    what: What,
    where: Where,
    how: How,
    good: Annotated[Text, Option(help="A release from before the change: 2.11.0.")] = None,
    bad: Annotated[Text, Option(help="A release from after the change: 2.13.0.")] = None,
    releases: Annotated[Text, Rare(help="The releases to search instead: 2.11.0,2.12.1.")] = None,
    package: Annotated[str, Option(help="The package whose releases are searched.")] = "torch",
    processes: Annotated[int, Rare(help="Fresh processes that measure each release.")] = 3,
    value: Annotated[Texts, Option(help="PHASE.METRIC that changed: step.time; repeatable.")] = [],
    explain: Annotated[
        bool, Option("--explain", help="Profile the steps, and say what the change consists of.")
    ] = False,
) -> None:
    """Find the release of torch in which a sweep became faster or slower.

    It measures the ends, then halves.
    Every release is measured in an environment of its own. Re-running resumes.

    \b
    Example:
      lmsweep bisect quick --good 2.11.0 --bad 2.13.0
    """
    from packaging.utils import canonicalize_version

    if explain:
        check_function("explain_steps", "--explain")
    is_range, is_half_range = bool(good and bad), bool(good) != bool(bad)
    if is_half_range or bool(releases) == is_range:
        raise RequestError("give --good and --bad, or --releases, a list of at least two")
    asked = releases.split(",") if releases else [str(good), str(bad)]
    if len(asked) < 2 or len({*map(canonicalize_version, asked)}) < len(asked):
        given = f"--releases {releases}" if releases else f"--good {good} --bad {bad}"
        raise RequestError(f"{given}: give at least two different releases, the oldest first")
    if wrong := [one for one in value if "." not in one]:
        raise RequestError(f"--value {wrong[0]}: write PHASE.METRIC, such as step.time")
    from lmsweep.orchestrator.features.bisect.bisect_sweep import Question, bisect_sweep, known_releases

    ordered = asked if releases else known_releases(package, *asked)
    options = ["--releases", ",".join(ordered), "--package", package, "--processes", str(processes)]
    options += [word for one in value for word in ("--value", one)]
    options += ["--explain"] if explain else []
    resume = resume_command("bisect", what, where, how, options)
    bisect_sweep(
        Question(
            what=replace(what, profile=explain),
            where=where,
            how=replace(how, budget=NO_LIMIT),
            package=package,
            releases=ordered,
            processes=processes,
            values=value,
            resume=resume,
        )
    )


feature = Feature(name="bisect", place=9, verbs=(bisect,))
