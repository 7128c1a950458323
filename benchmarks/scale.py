"""Overhead per trial: many trials that measure nothing, from the command to the store.

``python -m benchmarks.scale 100 1000 10000`` runs that many no-op trials with the real command and prints, as Markdown:

- trials/s, from the start of the first trial to the start of the last, and in the first and last quarter of trials;
- the peak resident memory of the driver and of Ray's gcs_server, and their growth per trial after the first quarter;
- the time that the first read of the store takes;
- CPU time per trial of each process (the driver with Tune and the store, Ray's daemons, the actor, and the trial
  server with the child that it forks for each trial), and of all processes in each quarter. On a busy machine, CPU
  time is more reliable than trials/s.

Then it runs the same trials without Tune and Ray, through the trial server and the store alone. The difference is
Tune's share. ``--plan`` times planning instead.
"""

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import psutil

from lmsweep.orchestrator.cluster.nodes import Node, this_machine
from lmsweep.orchestrator.planning.plan import Plan, PlannedTrial, make_plan
from lmsweep.orchestrator.planning.plan_estimate import estimate_plan
from lmsweep.orchestrator.planning.time_estimate import Estimates
from lmsweep.orchestrator.running.store_writer import StoreWriter
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.record import Attempt, Row
from lmsweep.trials.store.store import Store
from tests.support.command import write_noops

WITHOUT_TUNE = 1000
PERIOD = 2.0
"""Seconds between two samples of the processes. Four samples per second cost a fifth of the trials/s on two cores."""


class Sample(NamedTuple):
    """One look at the processes of a command."""

    time: float
    """time.time()."""
    cpu_seconds: float
    """CPU seconds of all processes so far."""
    driver_rss: int
    """Resident memory of the driver in bytes."""
    gcs_rss: int
    """Resident memory of Ray's gcs_server in bytes."""


@dataclass(kw_only=True)
class Usage:
    """CPU time and memory of the processes of a command, as last sampled."""

    seconds: dict[tuple[str, int], float] = field(default_factory=dict)
    """(kind, pid) -> CPU seconds of the process and of its ended children."""
    history: list[Sample] = field(default_factory=list)

    def look(self, driver: psutil.Process) -> None:
        """Sample the driver and its descendants."""
        rss = gcs = 0
        for one in [driver, *driver.children(recursive=True)]:
            try:
                kind = _kind(one, driver)
                if kind == "driver":
                    rss = one.memory_info().rss
                if one.name() == "gcs_server":
                    gcs = one.memory_info().rss
                if kind:
                    times = one.cpu_times()
                    ended = times.children_user + times.children_system if kind == "server and children" else 0.0
                    self.seconds[kind, one.pid] = times.user + times.system + ended
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        self.history.append(Sample(time.time(), sum(self.seconds.values()), rss, gcs))

    def at(self, moment: float) -> Sample:
        """The last sample before `moment`, a value of time.time()."""
        return max((one for one in self.history if one.time <= moment), default=self.history[0])

    def per_trial(self, count: int) -> str:
        """CPU milliseconds per trial of each kind of process."""
        kinds: dict[str, float] = defaultdict(float)
        for (kind, _), seconds in self.seconds.items():
            kinds[kind] += seconds
        return ", ".join(f"{kind} {1e3 * seconds / count:.1f}" for kind, seconds in kinds.items())


def _kind(one: psutil.Process, driver: psutil.Process) -> str | None:
    if one.pid == driver.pid:
        return "driver"
    command = " ".join(one.cmdline())
    if "lmsweep.trials.isolation.server" in command:
        # Children are forks of the server; they are counted in it once they have ended.
        return (
            "server and children" if "lmsweep.trials.isolation.server" not in " ".join(one.parent().cmdline()) else None
        )
    if "ray::" in command and "IDLE" not in command:
        return "actor"
    return "Ray's daemons"


def through_tune(count: int) -> str:
    """Run `count` trials with the real command; return their row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "lmsweep.orchestrator.cli", "run", str(write_noops(folder, count))]
        began = time.monotonic()
        with (folder / "out").open("w") as out:
            process = subprocess.Popen([*command, "--store", str(folder / "store")], stdout=out, stderr=out)
            usage = Usage()
            driver = psutil.Process(process.pid)
            while process.poll() is None:
                usage.look(driver)
                time.sleep(PERIOD)
        whole = time.monotonic() - began
        if process.returncode:
            sys.exit((folder / "out").read_text()[-3000:])
        began = time.monotonic()
        rows = pd.read_parquet(folder / "store" / "measurements", columns=["trial_id", "status", "started_at"])
        read = time.monotonic() - began
    started = rows.groupby("trial_id")["started_at"].min().sort_values()
    assert len(started) == count and set(rows["status"]) == {"ok"}, "a trial is missing"
    quarter = count // 4
    first, last = _rate(started[:quarter]), _rate(started[-quarter:])
    ends = [usage.at(started.iloc[round(part * (count - 1) / 4)].timestamp()) for part in range(5)]
    each = [1e3 * (after.cpu_seconds - before.cpu_seconds) / quarter for before, after in pairwise(ends)]
    memory = [
        f"{max(values) / 1e6:.0f} MB, {(after - before) / (count - quarter) / 1e3:.1f} kB"
        for values, before, after in (
            ([one.driver_rss for one in usage.history], ends[1].driver_rss, ends[4].driver_rss),
            ([one.gcs_rss for one in usage.history], ends[1].gcs_rss, ends[4].gcs_rss),
        )
    ]
    return (
        f"| {count} | {_rate(started):.0f} | {first:.0f} | {last:.0f} | {whole:.0f} s "
        f"| {' | '.join(memory)} | {read:.1f} s | {usage.per_trial(count)} "
        f"| {', '.join(f'{one:.1f}' for one in each)} |"
    )


def _rate(started: "pd.Series[pd.Timestamp]") -> float:
    return (len(started) - 1) / (started.iloc[-1] - started.iloc[0]).total_seconds()


def without_tune(count: int) -> str:
    """Rate of `count` trials through the trial server and the store alone."""
    with tempfile.TemporaryDirectory() as name, IsolatedRunner() as runner:
        store = Store(f"{name}/store")
        node = this_machine()
        plan = make_plan(load_sweep(str(write_noops(Path(name), count)), {}), [node], store)
        first, *others = plan.to_run
        runner.run(first.trial, fallback=first.environment)
        delivery = StoreWriter(store, lambda planned, records: None)
        began = time.monotonic()
        for planned in others:
            delivery.put(planned, runner.run(planned.trial, fallback=planned.environment))
        delivery.close()
        return f"{len(others) / (time.monotonic() - began):.0f} trials/s"


def planning(count: int) -> str:
    """Time of planning against an empty store, and against one that holds all trials, each with a forecast."""
    with tempfile.TemporaryDirectory() as name:
        path = write_noops(Path(name), count)
        node, store = this_machine(), Store(f"{name}/store")
        empty, plan = _plan_and_time(path, node, store)
        assert plan.count("run") == count
        rows = [row for planned in plan.to_run for row in _made_up_rows(planned)]
        store.append(rows)
        again, plan = _plan_and_time(path, node, store)
        assert plan.count("stored") == count
    return f"| {count} | {empty:.1f} s | {again:.1f} s |"


def _plan_and_time(path: Path, node: Node, store: Store) -> tuple[float, Plan]:
    began = time.monotonic()
    plan = make_plan(load_sweep(str(path), {}), [node], store)
    estimate_plan(plan, Estimates(store), [node])
    return time.monotonic() - began, plan


def _made_up_rows(planned: PlannedTrial) -> list[Row]:
    names = ("setup_time", "compile_time", "warmup_time", "measured_time")
    found = [Measurement(phase="trial", metric=name, unit="s", samples=(0.01,)) for name in names]
    return Attempt.begin(planned.trial).rows("noop", found, planned.environment)


def main() -> None:
    counts = [int(word) for word in sys.argv[1:] if word.isdecimal()] or [100, 1000]
    if "--plan" in sys.argv:
        print("| combinations | planned | planned again, all stored |\n|---|---|---|")
        for count in counts:
            print(planning(count), flush=True)
        return
    print(
        "| trials | trials/s | first quarter | last quarter | command | driver RSS, per trial | gcs RSS, per trial "
        "| read | CPU ms per trial | in each quarter |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for count in counts:
        print(through_tune(count), flush=True)
    print(f"\nwithout Tune and Ray: {without_tune(min(WITHOUT_TUNE, max(counts)))}")


if __name__ == "__main__":
    main()
