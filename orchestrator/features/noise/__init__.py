"""`noise`: how far several processes of the same cell differ on this machine.

noise_cells.py   the cells that it measured, and what they say of the machine
"""

import time
from collections.abc import Collection, Sequence
from typing import Annotated

import typer
from typer import Argument

from lmsweep.orchestrator.commands.measure import exit_if_failed, run_now
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import How, What, Where, takes_request
from lmsweep.orchestrator.terminal import continuing, say
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.results.record import Record

FEW_PROCESSES = 4
"""Processes of `noise` after which a busy host is noticed."""


class UntilBusy:
    """A Chooser that keeps the order of the plan and ends once most processes ran on a busy host: the table would leave
    them out."""

    likely: Sequence[int] = ()

    def __init__(self) -> None:
        self.ran = self.busy = 0

    @property
    def is_too_busy(self) -> bool:
        return self.ran >= FEW_PROCESSES and self.busy > self.ran / 2

    def choose(self, left: Collection[int]) -> int | None:
        return None if self.is_too_busy else min(left)

    def withdraw(self, position: int) -> None:
        """Nothing rests on what was chosen before."""

    def learn_trial(self, position: int, records: Sequence[Record]) -> None:
        self.ran += 1
        self.busy += any(Flag.BUSY_HOST in record.flags for record in records)


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
    ready = run_now(What(sweep), Where(store=store), how, began, search := UntilBusy())
    if search.is_too_busy:
        say(
            f"lmsweep: stopped, as {search.busy} of {search.ran} processes ran on a busy host: their "
            "times are not those of this machine. Quiet it (top shows which process it is), and run it again",
            error=True,
        )
        raise typer.Exit(1)
    with continuing("the table"):
        show_table(noise_table(load(store, pooled=False)))
    exit_if_failed(ready)


feature = Feature(name="noise", job="Measure", place=3, verbs=(noise,))
