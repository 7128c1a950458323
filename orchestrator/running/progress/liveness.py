"""Watches what a run waits for: ends it when its time is over, and reports what does not answer: Ray, a worker, a trial
server, the store.

It counts only seconds in which this process runs: nothing is late because the whole machine was suspended.
"""

import _thread
import shutil
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import psutil

from lmsweep.orchestrator.cluster import ray_private
from lmsweep.orchestrator.interrupt import LastResort, RayFailedError
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.admission import Gate
from lmsweep.orchestrator.running.progress.trial_progress import RunProgress
from lmsweep.orchestrator.running.store_writer import StoreWriter
from lmsweep.orchestrator.terminal import format_seconds
from lmsweep.trials.isolation.server_process import MODULE as SERVER
from lmsweep.trials.machine.processes import has_ended, is_stopped
from lmsweep.trials.spec.quantities import count_of

LOOK_SECONDS = 1.0
"""Seconds between two looks at Ray's own processes."""
LOOKS_PER_SEARCH = 10
"""Looks between two searches for workers and trial servers. A search takes 10 ms."""
STOPPED_SECONDS = 30
"""How long a process may be stopped."""
WORKER_SECONDS, SLOW_SECONDS = 60, 300
"""How long Ray may take to start the first worker here; longer if its process is there: the machine is busy."""
MOST_NAMED = 4
"""Running trials that a sentence names."""
LATE_SECONDS = 45
"""How long after its timeout a trial may end. Its own process has been killed by then."""

NAMES = {"gcs_server": "Ray's control service (gcs_server)", "raylet": "Ray's scheduler (raylet)"}


class Liveness:
    """Inside, a thread kills stopped workers and trial servers, and ends the run if Ray has failed or time is over."""

    def __init__(self, trials: Sequence[PlannedTrial], gate: Gate, progress: RunProgress, writer: StoreWriter) -> None:
        self._trials = {planned.index: planned for planned in trials}
        self._gate = gate
        self._progress = progress
        self._writer = writer
        self.failure: RayFailedError | None = None
        self._has_exited = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="liveness", daemon=True)
        self._stopped: dict[psutil.Process, float] = {}
        """Process -> the seconds for which it has been stopped."""
        self._without_worker = 0.0
        """Seconds in which no worker of this machine has begun a trial."""
        self._has_said_over = False
        self._ran: dict[tuple[int, float], float] = {}
        """Index and start of a running trial -> the seconds since then in which this process ran."""

    def __enter__(self) -> Self:
        self._ray = {NAMES[name]: process for name, process in ray_private.started_here().items()}
        self._main = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_exited.set()
        self._thread.join()

    def _watch(self) -> None:
        looks = 0
        while not self._has_exited.wait(LOOK_SECONDS):
            looks += 1
            for name, process in self._ray.items():
                if has_ended(process):
                    return self._end(f"{name}, process {process.pid}, has ended")
                if self._is_late(process, LOOK_SECONDS):
                    return self._end(f"{name}, process {process.pid}, is stopped and does not answer")
            if self._has_no_worker():
                return self._end(f"Ray has started no worker in {self._without_worker:.0f} s; {why_no_worker()}")
            if looks % LOOKS_PER_SEARCH == 0 or self._gate.closed:
                self._kill_stopped()
            self._say_late_trials()
            self._writer.say_if_slow()
            if self._end_if_over():
                return None
        return None

    def _is_late(self, process: psutil.Process, seconds: float) -> bool:
        """Return whether the process has been stopped for too long; after Ctrl-C, for any time is too long."""
        if not is_stopped(process):
            self._stopped.pop(process, None)
            return False
        self._stopped[process] = self._stopped.get(process, 0.0) + seconds
        return self._gate.closed or self._stopped[process] >= STOPPED_SECONDS

    def _has_no_worker(self) -> bool:
        """Return whether no worker starts here: Ray would try forever. On a cluster a node may have to start first."""
        if self._progress.has_begun or not self._ray:
            return False
        self._without_worker += LOOK_SECONDS
        if self._without_worker < WORKER_SECONDS:
            return False
        return self._without_worker >= SLOW_SECONDS or not ray_private.starts_worker()

    def _kill_stopped(self) -> None:
        """Search for workers and trial servers that have been stopped for too long, and kill them."""
        for process in psutil.Process().children(recursive=True):
            if self._is_late(process, LOOK_SECONDS * LOOKS_PER_SEARCH) and (name := _name(process)):
                self._progress.say(f"{name}, process {process.pid}, is stopped and does not answer: it is killed")
                process.kill()

    def _say_late_trials(self) -> None:
        """Report each trial once whose end is overdue. It may run on another machine."""
        running = self._progress.eta.running_since()
        self._ran = {key: self._ran.get(key, 0.0) + LOOK_SECONDS for key in running.items()}
        for (index, _), seconds in self._ran.items():
            config = self._trials[index].trial.config
            # Before the trial itself, its graph may be compiled, or its environment made.
            longest = config.timeout_seconds * (2 if config.compiles or config.software else 1) + LATE_SECONDS
            if longest <= seconds < longest + LOOK_SECONDS:  # once, as each look adds LOOK_SECONDS
                self._progress.say(
                    f"{self._progress.name_of(index)}: {seconds:.0f} s after its start, with a timeout of "
                    f"{config.timeout_seconds:g} s, its worker does not answer; it, its node or the network may hang"
                )

    def _end_if_over(self) -> bool:
        """Once the time for the run is over, say what still runs; soon after, end it. Return whether it was ended."""
        late = -1.0 if self._gate.until is None else time.monotonic() - self._gate.until
        if late >= self._gate.late_seconds:
            self._gate.close_as_time_is_over()
            signal.pthread_kill(self._main, signal.SIGINT)
            return True
        running = self._progress.eta.running_since()
        if late >= 0 and running and not self._has_said_over:
            self._has_said_over = True
            names = "; ".join(self._progress.name_of(index) for index in list(running)[:MOST_NAMED])
            more = len(running) - MOST_NAMED
            names += f" and {more} more" if more > 0 else ""
            self._progress.say(
                f"the time for the run is over; {count_of(len(running), 'trial')} may end within "
                f"{format_seconds(self._gate.late_seconds - late)}: {names}"
            )
        return False

    def _end(self, reason: str) -> None:
        if not self._gate.closed:  # else Ctrl-C ends it
            self.failure = RayFailedError(reason)
        LastResort.end_soon(str(self.failure) if self.failure else None)
        for process in self._ray.values():
            with suppress(psutil.NoSuchProcess):
                process.kill()  # else the main thread might wait for its answer
        self._gate.closed = True
        _thread.interrupt_main(signal.SIGINT)


def why_no_worker() -> str:
    """Return what may be the reason why Ray starts no worker, in words."""
    missing = "" if shutil.which("bash") else "it starts them through bash, which is not on PATH; "
    return f"{missing}the last line of its log is: {ray_private.last_line_of_log()}"


def _name(process: psutil.Process) -> str | None:
    with suppress(psutil.NoSuchProcess):
        command, parent = process.cmdline(), process.parent()
        if SERVER in command:
            return "the trial server" if parent and SERVER not in parent.cmdline() else None
        if command and command[0].startswith("ray::"):
            return "the worker of a trial"
    return None
