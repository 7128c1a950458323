"""`doctor`: what this machine, or each node of a cluster, can measure, and what distorts results; what a flag means.

examination.py     the checks of a machine, or of the nodes of a cluster
machine_checks.py  those of the cores and GPUs of a machine
doctor_output.py   what they found, as a record
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument

from lmsweep.orchestrator.commands.options import JsonFormat
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import Where, takes_request
from lmsweep.orchestrator.terminal import say, say_data
from lmsweep.trials.spec.errors import RequestError

if TYPE_CHECKING:
    from lmsweep.orchestrator.features.doctor.machine_checks import (
        Finding,  # it imports psutil, which reading does not need
    )


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
    from lmsweep.orchestrator.features.doctor.examination import examine, examine_nodes

    nodes = {"": examine()} if where.address is None else examine_nodes(where.address)
    if format == "json":
        from lmsweep.orchestrator.features.doctor.doctor_output import doctor_output
        from lmsweep.trials.results.record_json import json_of

        say_data(json_of(doctor_output(nodes)))
    else:
        for name, findings in nodes.items():
            _show(findings, node=name)
    if any(one.fails for findings in nodes.values() for one in findings):
        raise typer.Exit(1)


def _show(findings: "Sequence[Finding]", *, node: str = "") -> None:
    """Print what the doctor found, the number of warnings, and its advice, for a node of a cluster under its name."""
    import pandas as pd

    from lmsweep.analysis.tables.listing import Listing, Tone
    from lmsweep.orchestrator.commands.show_table import show_parts
    from lmsweep.orchestrator.features.doctor.doctor_output import state_of

    states = [state_of(one) for one in findings]
    rows = [[one.check, one.found, state] for one, state in zip(findings, states, strict=True)]
    frame = pd.DataFrame(rows, columns=["check", "finding", "state"])
    advice = [f"{one.check}: {one.advice}" for one in findings if one.advice]
    words = "no warnings" if not advice else "1 warning" if len(advice) == 1 else f"{len(advice)} warnings"
    title = f"node {node}: {words}" if node else words
    tones: dict[str, Tone] = {"ok": "good", "warning": "unclear", "fails": "bad"}
    show_parts([Listing(title=title, frame=frame, keys=["check"], units={}, tones=tones), *advice])


feature = Feature(
    name="doctor",
    place=5,
    verbs=(doctor,),
    outputs={"doctor": f"{__name__}.doctor_output:DoctorOutput"},
    functions={"machine_findings": f"{__name__}.machine_checks:machine_findings"},
)
