"""`noise`: how far several processes of the same cell differ on this machine.

noise_cells.py   the cells that it measured, and what they say of the machine
"""

import time
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument

from lmsweep.orchestrator.commands.measure import exit_if_failed, run_now
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import How, What, Where, takes_request
from lmsweep.orchestrator.terminal import continuing, say

if TYPE_CHECKING:
    from lmsweep.orchestrator.running.run_plan import Account

FEW_PROCESSES = 4
"""Processes of `noise` after which a busy host is noticed."""


@takes_request("store fresh")
def noise(
    how: How,
    store: Annotated[str, Argument(help="Where results are stored: a folder or a URI.")] = "results",
) -> None:
    """Measure how far several processes of the same cell differ: the smallest difference that means anything here.

    \b
    Example:
      lmsweep noise results
    """
    began = time.monotonic()
    from lmsweep.analysis import load
    from lmsweep.orchestrator.commands.text.show_table import show_table
    from lmsweep.orchestrator.features.noise.noise_cells import noise_table
    from lmsweep.trials.machine.cpu_affinity import find_gpus

    sweep = "noise" if find_gpus() else "noise-cpu"
    ready = run_now(What(sweep), Where(store=store), how, began, stop_if=is_too_busy)
    if ready.gate.stopped:
        say(
            f"lmsweep: stopped, as {ready.account.busy} of {ready.account.trials} processes ran on a busy host: their "
            "times are not those of this machine. Quiet it (top shows which process it is), and run it again",
            error=True,
        )
        raise typer.Exit(1)
    with continuing("the table"):
        show_table(noise_table(load(store, pooled=False)))
    exit_if_failed(ready)


def is_too_busy(account: "Account") -> bool:
    """Return whether most processes of `noise` would be left out, as they ran on a busy host."""
    return account.trials >= FEW_PROCESSES and account.busy > account.trials / 2


feature = Feature(name="noise", job="Measure", place=3, verbs=(noise,))
