"""Everything that relies on names private to Ray and Tune, as of Ray 2.60; if Ray lacks one, the error says which."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import psutil

from lmsweep.orchestrator.cluster.guard import kill
from lmsweep.orchestrator.interrupt import RayFailedError
from lmsweep.trials.machine.interpreter import ROOT
from lmsweep.trials.machine.processes import await_end, exit_words, is_stopped
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.installing import install_command

if TYPE_CHECKING:
    from ray.job_config import JobConfig
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.experiment import Trial as TuneTrial

LOOPBACK = "127.0.0.1"
"""The address of a Ray that only this machine can reach."""

ADVICE = f"install a version of Ray that lmsweep works with: {install_command('ray[tune]==2.60.*')}"

MAIN = ("gcs_server", "raylet")
"""The processes without which Ray does nothing."""

LOOK_SECONDS = 0.1
"""Seconds between two looks at a Ray that starts."""
KILL_SECONDS = 10.0
"""How long to wait until a killed process has ended; one that waits for a device takes a while."""


def here_in(folder: Path) -> dict[str, Any]:
    """Return arguments of `ray.init`: a Ray for this machine alone, with files in this folder; Ray's is open to all."""
    has_no_shared_memory = sys.platform == "linux" and not os.path.isdir("/dev/shm")
    objects = {"_plasma_directory": str(folder)} if has_no_shared_memory else {}
    return {"_node_ip_address": LOOPBACK, "_temp_dir": str(folder / "r"), **objects}


def job_config() -> "JobConfig":
    """Return the configuration of a job whose workers do not have the current folder first on their search path."""
    from ray.job_config import JobConfig

    _private(JobConfig, "_runtime_env_has_working_dir")  # raises if Ray has renamed it

    class WithoutCurrentFolder(JobConfig):
        def _runtime_env_has_working_dir(self) -> bool:
            return True  # else Ray adds the current folder

    installed = os.path.basename(ROOT).endswith("-packages")  # where workers look by themselves
    return WithoutCurrentFolder(_py_driver_sys_path=[] if installed else [ROOT])


def head_address(address: str) -> str:
    """Return the address; for `auto`, of a Ray here that others reach: a run's is LOOPBACK. Raises ConnectionError."""
    from ray._private import services

    if address != "auto":
        return address
    reachable = {one for one in _private(services, "find_gcs_addresses")() if not one.startswith(LOOPBACK)}
    with _replaced(services, "find_gcs_addresses", lambda: reachable):
        return str(_private(services, "get_ray_address_from_environment")(address, None))


def read_token_again() -> None:
    """Make this process read Ray's mode of authentication and its token from the environment, not from memory."""
    from ray import _raylet

    _private(_private(_raylet, "Config"), "initialize")("")
    _private(_private(_raylet, "AuthenticationTokenLoader"), "instance")().reset_cache()


class _Start:
    """A Ray that starts: its processes, and how long `ray.init` waits for them."""

    def __init__(self, seconds: float) -> None:
        self.processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._seconds = seconds

    def noting(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """Return Ray's function that starts a process, such that each is noted here."""

        def start_and_note(command: Any, process_type: str, *others: Any, **options: Any) -> Any:
            info = start(command, process_type, *others, **options)
            self.processes.append((process_type, info.process))
            return info

        return start_and_note

    def insist(self, ask: Callable[[], Any]) -> Any:
        """Ask until Ray answers. Raises RayFailedError once a main process has ended, or the seconds have."""
        ends_at = time.monotonic() + self._seconds
        while True:
            try:
                return ask()
            except RuntimeError:
                for name, process in self.processes:
                    if name in MAIN and process.poll() is not None:
                        raise RayFailedError(f"its process {name} {exit_words(process.returncode)}") from None
                if time.monotonic() > ends_at:
                    raise RayFailedError(f"it was not ready within {self._seconds:g} s") from None
            time.sleep(LOOK_SECONDS)


@contextmanager
def starting_here(seconds: float) -> Iterator[None]:
    """Inside, `ray.init` starts a Ray on the loopback interface, and waits so long for each of its processes.

    Ray by itself replaces the loopback address by that of the host, waits half a minute, and starts a process each for
    an autoscaler, a dashboard and a driver that shows logs. If `ray.init` fails, the processes that it has started are
    killed. Raises RayFailedError.
    """
    import ray
    from ray._private import node, services

    start = _Start(seconds)
    get_node, wait_for_port = _private(services, "get_node"), _private(node, "wait_for_persisted_port")

    def insist_on_port(*of: Any, timeout_ms: int) -> Any:
        step = int(1000 * LOOK_SECONDS)  # signals are handled, and ended processes seen, only between two calls
        return start.insist(lambda: wait_for_port(*of, timeout_ms=min(timeout_ms, step)))

    try:
        with (
            _replaced(services, "resolve_ip_for_localhost", lambda host: host),
            _replaced(services, "start_ray_process", start.noting(_private(services, "start_ray_process"))),
            _replaced(services, "get_node", lambda *of: start.insist(lambda: get_node(*of))),
            _replaced(node, "wait_for_persisted_port", insist_on_port),
            _replaced(node.Node, "start_monitor", lambda *_, **__: None),
            _replaced(node.Node, "start_api_server", lambda *_, **__: None),
            _replaced(node.Node, "start_log_monitor", lambda *_, **__: None),
        ):
            yield
        listens_at = ray.util.get_node_ip_address()
        if listens_at != LOOPBACK:
            raise RequestError(f"Ray {ray.__version__} listens at {listens_at}, where others reach it; {ADVICE}")
    except BaseException as error:  # whatever ended the start, Ctrl-C too: no process of it may stay
        _kill([process for _, process in start.processes])
        if isinstance(error, RayFailedError | RequestError) or not isinstance(error, Exception):
            raise
        raise RayFailedError(" ".join(str(error).split()).partition(". ")[0] or type(error).__name__) from error


def kill_at_shutdown() -> None:
    """Make `ray.shutdown` kill the processes that `ray.init` has started: they ignore the SIGTERM that it sends."""
    node = _node()
    started = _private(node, "all_processes")
    _private(node, "kill_all_processes")  # raises if Ray has renamed it

    def kill_all(**_: Any) -> None:
        processes = [info.process for infos in started.values() for info in infos]
        started.clear()
        _kill(processes)

    node.kill_all_processes = kill_all


def _node() -> Any:
    """Return what Ray knows of its processes here; None if this process has started none."""
    import ray

    return _private(_private(ray, "_private").worker, "_global_node")


def _kill(started: "list[subprocess.Popen[bytes]]") -> None:
    """Kill these processes and their children: Ray's agents would look for their dead node for a minute."""
    # Only those that run: another process may have got the number of one that has ended.
    processes = {psutil.Process(one.pid) for one in started if one.poll() is None}
    kill(processes)
    await_end(processes, KILL_SECONDS)


def started_here() -> dict[str, psutil.Process]:
    """Return the main processes, by name, of the Ray that this process has started."""
    started = _private(_node(), "all_processes") if _node() else {}
    running = [(name, info.process) for name in MAIN for info in started.get(name, ()) if info.process.poll() is None]
    return {name: psutil.Process(process.pid) for name, process in running}


def starts_worker() -> bool:
    """Return whether a process of a worker runs in the Ray that this process has started."""
    with suppress(KeyError, psutil.NoSuchProcess):  # no raylet, or it has ended
        for process in started_here()["raylet"].children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any(os.path.basename(word) == "default_worker.py" for word in process.cmdline()):
                    return True
    return False


def last_line_of_log() -> str:
    """Return the last line of what Ray's processes here have last written to standard error."""
    logs = [path for path in Path(_private(_node(), "get_logs_dir_path")()).glob("*.err") if path.stat().st_size]
    last = max(logs, key=lambda path: path.stat().st_mtime, default=None)
    lines = last.read_text(errors="replace").split("\n") if last else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "(it is empty)")


def kill_stopped() -> None:
    """Kill Ray's processes if one of them is stopped: `ray.shutdown` would wait for its answer."""
    started = started_here().values()
    if any(is_stopped(process) for process in started):
        for process in started:
            process.kill()


MOST_ENDED = 50
"""How many of the newest trials stay, once Tune has twice as many. Not 0: Tune wants some to have run."""


def with_free_actor(controller: "TuneController", waiting: "list[TuneTrial]") -> "list[TuneTrial]":
    """Return those of the trials for which Tune keeps an idle actor with the same resources."""
    cache = _private(controller, "_actor_cache")
    if not _private(cache, "num_cached_objects"):
        return []
    return [trial for trial in waiting if _private(cache, "has_cached_object")(trial.placement_group_factory)]


def forget_metrics(tune_trial: "TuneTrial") -> None:
    """Drop the history of metrics, most of what Tune keeps of a trial."""
    kept = _private(tune_trial, "run_metadata")
    for name in ("metric_analysis", "metric_n_steps"):
        _private(kept, name).clear()


def forget_ended(controller: "TuneController") -> None:
    """Drop trials that have ended, except among the newest: Tune keeps all of them."""
    trials = _private(controller, "_trials")
    if len(trials) < 2 * MOST_ENDED:
        return
    ended = {trial for trial in trials[:-MOST_ENDED] if trial.is_finished()}
    trials[:] = [trial for trial in trials if trial not in ended]
    for name in ("_stopped_trials", "_failed_trials", "_trials_to_cache"):
        _private(controller, name).difference_update(ended)


def last_error(tune_trial: "TuneTrial") -> str:
    """Return the first line of the trial's last failure, from Tune's error file: `Trial.get_error` looks elsewhere."""
    # The file has for each failure a line such as `Failure # 2 (occurred at 2026-01-31_23-59-59)`, then the error.
    lines = Path(_private(tune_trial, "error_file")).read_text().rpartition("Failure # ")[2].splitlines()
    return lines[1] if len(lines) > 1 else "no reason is known"


@contextmanager
def registry_asked_once() -> Iterator[None]:
    """Inside, Tune asks the cluster once for the class that it runs, not three times per trial."""
    from ray.tune import registry

    ask, put = _private(registry, "_internal_kv_get"), _private(registry, "_internal_kv_put")
    known: dict[Any, Any] = {}

    def get(key: Any) -> Any:
        if known.get(key) is None:
            known[key] = ask(key)
        return known[key]

    def register(key: Any, value: Any, **options: Any) -> Any:
        known.pop(key, None)
        return put(key, value, **options)

    with _replaced(registry, "_internal_kv_get", get), _replaced(registry, "_internal_kv_put", register):
        yield


@contextmanager
def without_side_effects_of_tune() -> Iterator[None]:
    """Inside, Tune handles no signal: it would end a run by SIGUSR1 as if all trials had ended. Nor does it count the
    user's loggers, for which it would import wandb and mlflow, for seconds."""
    from ray.air._internal import usage
    from ray.tune import tune

    # Tune's function returns an event that its signal handlers set, and that ends the run. `Event()` is never set.
    with _replaced(tune, "_setup_signal_catching", Event), _replaced(usage, "tag_callbacks", lambda _: False):
        yield


@contextmanager
def _replaced(thing: Any, name: str, by: Any) -> Iterator[None]:
    """Inside, a private attribute of one of Ray's modules is another."""
    before = _private(thing, name)
    setattr(thing, name, by)
    try:
        yield
    finally:
        setattr(thing, name, before)


def _private(thing: Any, name: str) -> Any:
    """Return an attribute of one of Ray's objects. Raises RequestError if Ray has renamed it."""
    import ray

    try:
        return getattr(thing, name)
    except AttributeError:
        of = getattr(thing, "__name__", type(thing).__name__)
        raise RequestError(f"Ray {ray.__version__} has no {of}.{name}, which lmsweep relies on; {ADVICE}") from None
