"""Makes the plan for `plan` and `run`: reads the sweep, predicts memory, finds the nodes, consults the store."""

import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

from lmsweep.orchestrator.cluster.node_discovery import find_nodes
from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.cluster.placement import able_nodes
from lmsweep.orchestrator.cluster.ray_session import start_early, start_standby
from lmsweep.orchestrator.cluster.refusal import Refusal
from lmsweep.orchestrator.commands.software_environments import make_software
from lmsweep.orchestrator.planning.memory_budget import (
    device_memory,
    rooms_of,
    which_device,
    with_devices,
    without_placement,
)
from lmsweep.orchestrator.planning.memory_predictions import SMALL, Predictions
from lmsweep.orchestrator.planning.plan import Planned, make_plan
from lmsweep.orchestrator.planning.plan_estimate import START_SECONDS
from lmsweep.orchestrator.planning.prediction_process import configurations
from lmsweep.orchestrator.running.store_writer import upload_left_over
from lmsweep.orchestrator.sweep.ranges import Shard, seconds_of, seconds_until
from lmsweep.orchestrator.sweep.sweep import Outline, Sweep, load_sweep, parse_overrides
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.machine.host_memory import memory_asked_for
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.store.store import Store

MANY = 50
"""Predictions that take so long, five seconds on two cores, that the command says what it is waiting for."""


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """The arguments and options of `plan` and `run` that decide about the plan."""

    sweep: str
    """A sweep file, or the name of a packaged sweep."""
    store: str
    overrides: tuple[str, ...] = ()
    """The values of `--set`."""
    grids: tuple[str, ...] = ()
    """The values of `--grid`."""
    address: str | None = None
    cluster_file: str | None = None
    retry: frozenset[Status] = frozenset()
    fresh: bool = False
    predict: bool = True
    device: str | None = None
    """The value of `--for`."""
    will_run: bool = False
    """Whether the plan will be run."""
    needs_peaks: bool = False
    """Whether the peak of every trial is wanted, not only whether it fits."""
    verb: str = "run"
    """The verb of the command that resumes it."""
    budget: str | None = None
    nsys: bool = False
    code: str | None = None
    """The folder with the user's own code."""
    trusted: tuple[str, ...] = ()
    """Packages that references may lead to."""
    shard: str | None = None
    """Which part of the sweep: 3/16."""
    until: str | None = None
    """The time of day or date by which the run must have ended."""

    def make(self) -> Planned:
        """Return the plan. Raises RequestError if any part of the request is wrong."""
        memory_asked_for()  # reports a wrong setting before anything starts
        if self.budget:
            seconds_of(self.budget, "--budget")
        ends_in = seconds_until(self.until, "--until", now=datetime.now()) if self.until else None
        early: list[Node] = []
        sweep = self.load(if_large=lambda outline: early.extend(self._look_around(outline)))
        store = Store(self.store)
        if self.will_run:
            store.check_writable()
            upload_left_over(store)
        least = SMALL if self.will_run and not self.needs_peaks else 0
        predictions = Predictions(sweep.trials, least=least, each=self.needs_peaks) if self.predict else None
        if predictions and predictions.asked >= MANY:
            waiting = configurations(predictions.asked)
            say(f"predicting the memory of {waiting} (cached for next time); --no-predict skips it", error=True)
        budget = self.budget or sweep.budget
        times = [seconds for seconds in (seconds_of(budget) if budget else None, ends_in) if seconds is not None]
        certain = self._will_certainly_run(store, min(times, default=None))
        with ExitStack() as on_error:
            standby = start_standby([trial.config for trial in sweep.trials]) if certain else None
            if standby:
                on_error.callback(standby.close)
            meanwhile = start_early if certain else lambda: None
            nodes = early or find_nodes(self.address, self.cluster_file, meanwhile)
            if self.device:
                nodes, sweep = [with_devices(nodes[0], self.device)], without_placement(sweep)
            if predictions:
                predictions.bound(rooms_of(nodes))
            plan = make_plan(sweep, nodes, store, retry=self.retry, fresh=self.fresh, predictions=predictions)
            if self.will_run and self.address is None:
                make_software(planned.trial.config.software for planned in plan.to_run)
            on_error.pop_all()
        return Planned(
            plan=plan,
            store=store,
            nodes=nodes,
            predictions=predictions,
            budget=budget,
            ends_in=ends_in,
            standby=standby,
        )

    def resume_command(self, grace: str | None, more: Sequence[str] = ()) -> str:
        """Return the command that runs what is left: without --fresh and --retry, which would start again.

        more: further options and their values.
        """
        options = {
            "--store": [self.store] if self.store != "results" else [],
            "--grid": self.grids,
            "--set": self.overrides,
            "--address": [self.address],
            "--cluster": [self.cluster_file],
            "--grace": [grace],
            "--code": [self.code],
            "--trust": self.trusted,
            "--shard": [self.shard],
        }
        flags = {"--no-predict": not self.predict, "--nsys": self.nsys}
        given = [word for option, values in options.items() for value in values if value for word in (option, value)]
        return shlex.join(
            ["lmsweep", self.verb, self.sweep, *given, *more, *(flag for flag, wanted in flags.items() if wanted)]
        )

    def trial_command(self) -> str:
        """Return the command that repeats a trial of the sweep, without the identifier that ends it."""
        options = {"--code": [self.code], "--trust": self.trusted}
        given = [word for option, values in options.items() for value in values if value for word in (option, value)]
        return shlex.join(["lmsweep", "trial", self.sweep, *self.overrides, *given, "--id"])

    def load(self, if_large: Callable[[Outline], object] = lambda outline: None) -> Sweep:
        """Return the sweep, checked against the options about its devices and profiler.

        `if_large` is as in `load_sweep`.
        """
        overrides = [*self.overrides, "profiler=nsys"] if self.nsys else self.overrides
        sweep = load_sweep(
            self.sweep,
            parse_overrides(overrides),
            code=self.code,
            trusted=self.trusted,
            grids=self.grids,
            if_large=if_large,
        )
        if self.shard:
            sweep = replace(sweep, trials=Shard.parse(self.shard).of(sweep.trials))
        if self.device:
            device_memory(self.device)  # reports a wrong name
            if words := which_device(self.device):
                say(words, error=True)
            if not any(trial.config.device_type == "cuda" for trial in sweep.trials):
                raise RequestError(
                    f"--for {self.device}: no trial of {self.sweep} runs on a GPU; add --set device=cuda to run all of "
                    "them on one"
                )
        if self.nsys:
            from lmsweep.trials.profiling.nsys import check_nsys

            check_nsys(sweep.trials, here=self.address is None)
        return sweep

    def _look_around(self, outline: Outline) -> list[Node]:
        """Return the nodes. Raises RequestError if none of them has a device for any trial of the sweep."""
        say(f"{outline.name}: {outline.count} combinations", error=True)
        nodes = find_nodes(self.address, self.cluster_file)
        wanted = [TrialConfig(d_model=2, device=device.removesuffix(":*")) for device in outline.devices]
        able = [able_nodes(config, nodes) for config in wanted]
        reasons = [one.reason for one in able if isinstance(one, Refusal)]
        if self.device is None and len(reasons) == len(able):
            at = f" --address {shlex.quote(self.address)}" if self.address else ""
            raise RequestError(
                f"{outline.name}: none of the {outline.count} combinations can run: {'; '.join(reasons)}\n"
                f"To see what can run: lmsweep doctor{at}\n"
                f"To plan for a GPU that is not there: lmsweep plan {shlex.quote(self.sweep)} --for H100"
            )
        return nodes

    def _will_certainly_run(self, store: Store, seconds: float | None) -> bool:
        """Return whether trials will certainly run on this machine: none has been measured, and there is enough time.

        Ray and the trial servers then start while the machine is examined and memory is predicted.
        """
        enough = seconds is None or seconds > START_SECONDS
        return self.will_run and self.address is None and enough and (self.fresh or not store.exists())
