"""`doctor`: what this machine, or each node of a cluster, can measure, and what distorts results; what a flag means.

examination.py     the checks of a machine, or of the nodes of a cluster
machine_checks.py  those of the cores and GPUs of a machine, and what all find, as records
gpu_inventory.py   the NVIDIA GPUs of a machine, as the driver reports them
"""

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument

from lmsweep.orchestrator.commands.options import JsonFormat
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import Where, takes_request
from lmsweep.orchestrator.terminal import say, say_data
from lmsweep.trials.spec.errors import RequestError

if TYPE_CHECKING:
    from lmsweep.orchestrator.features.doctor.machine_checks import Examined


@takes_request("flag address format")
def doctor(
    where: Where,
    flag: Annotated[str, Argument(help="A flag of results, such as host_bound: what it means, and what to do.")] = "",
    format: JsonFormat = "text",
) -> None:
    """Say what this machine can measure, or what a flag means.

    It names what would distort results. With --address: on each node of a cluster.
    Exit code 1: a node says that it has GPUs which trials there could not use.

    \b
    Examples:
      lmsweep doctor
      lmsweep doctor host_bound
    """
    if flag:
        from lmsweep.trials.results.flag_meanings import ADVICE_OF
        from lmsweep.trials.spec.suggestions import choices

        if flag not in ADVICE_OF:
            raise RequestError(f"{flag} is not a flag{choices(flag, ADVICE_OF)}")
        say(f"{flag}: {ADVICE_OF[flag]}")
        return
    from lmsweep.orchestrator.features.doctor.examination import examine_nodes

    nodes = examine_nodes(where.address)
    if format == "json":
        from lmsweep.orchestrator.features.doctor.machine_checks import DoctorOutput
        from lmsweep.trials.results.record_json import json_of

        say_data(json_of(DoctorOutput(nodes=nodes)))
    else:
        for one in nodes:
            _show(one)
    if any(found.state == "fails" for one in nodes for found in one.findings):
        raise typer.Exit(1)


def _show(examined: "Examined") -> None:
    """Print the number of warnings, what was found, and the advice, for a node of a cluster under its name."""
    import pandas as pd

    from lmsweep.analysis.tables.listing import Listing, Tone
    from lmsweep.orchestrator.commands.show_table import show_parts

    findings = examined.findings
    rows = [[one.check, one.finding, one.state] for one in findings]
    frame = pd.DataFrame(rows, columns=["check", "finding", "state"])
    advice = [f"{one.check}: {one.advice}" for one in findings if one.advice]
    words = "no warnings" if not advice else "1 warning" if len(advice) == 1 else f"{len(advice)} warnings"
    title = f"node {examined.node}: {words}" if examined.node else words
    tones: dict[str, Tone] = {"ok": "good", "warning": "unclear", "fails": "bad"}
    show_parts([Listing(title=title, frame=frame, keys=["check"], units={}, tones=tones), *advice])


feature = Feature(
    name="doctor",
    place=5,
    verbs=(doctor,),
    outputs={"doctor": f"{__name__}.machine_checks:DoctorOutput"},
    functions={"machine_findings": f"{__name__}.machine_checks:machine_findings"},
)
