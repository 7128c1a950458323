"""`explain`: what a flag of results means."""

from typing import Annotated

from typer import Argument

from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.terminal import say, show_groups
from lmsweep.trials.spec.config import RequestError


def explain(flag: Annotated[str, Argument(help="A flag of results, such as host_bound.")] = "") -> None:
    """Say what a flag means and what to do about it; without one, list all flags.

    \b
    Example:
      lmsweep explain host_bound
    """
    from lmsweep.trials.results.flag_meanings import ADVICE_OF
    from lmsweep.trials.spec.suggestions import choices

    if flag and flag not in ADVICE_OF:
        raise RequestError(f"{flag} is not a flag{choices(flag, ADVICE_OF)}")
    if flag:
        say(f"{flag}: {ADVICE_OF[flag]}")
    else:
        show_groups({"Flags": ADVICE_OF})


feature = Feature(name="explain", job="Read", place=1.2, verbs=(explain,))
