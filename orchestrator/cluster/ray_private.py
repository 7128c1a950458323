"""Everything that relies on names private to Ray and Tune, as of Ray 2.60; if Ray lacks one, the error says which."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import psutil

from lmsweep.trials.machine.interpreter import ROOT
from lmsweep.trials.machine.processes import await_end, is_stopped
from lmsweep.trials.spec.config import RequestError

if TYPE_CHECKING:
    from ray.job_config import JobConfig
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.experiment import Trial as TuneTrial

LOOPBACK: dict[str, Any] = {"_node_ip_address": "127.0.0.1"}
"""Arguments of `ray.init` for a Ray that only this machine can reach."""

KILL_SECONDS = 10.0
"""How long to wait until a killed process has ended; one that waits for a device takes a while."""


def objects_in(folder: Path) -> dict[str, str]:
    """Return the argument of `ray.init` that keeps objects in this folder, if this Linux has no /dev/shm."""
    is_missing = sys.platform == "linux" and not os.path.isdir("/dev/shm")
    return {"_plasma_directory": str(folder)} if is_missing else {}


def job_config() -> "JobConfig":
    """Return the configuration of a job whose workers do not have the current folder first on their search path."""
    from ray.job_config import JobConfig

    _private(JobConfig, "_runtime_env_has_working_dir")

    class WithoutCurrentFolder(JobConfig):
        def _runtime_env_has_working_dir(self) -> bool:
            return True  # else Ray adds the current folder

    installed = os.path.basename(ROOT).endswith("-packages")
    return WithoutCurrentFolder(_py_driver_sys_path=[] if installed else [ROOT])


def head_address() -> str | None:
    """Return the address that `auto` stands for; None if Ray finds none."""
    from ray._private.services import get_ray_address_from_environment

    with suppress(ConnectionError):
        return str(get_ray_address_from_environment("auto", None) or "") or None
    return None


def kill_at_shutdown() -> None:
    """Make `ray.shutdown` kill the processes that `ray.init` has started: they ignore the SIGTERM that it sends."""
    import ray

    node = _private(_private(ray, "_private").worker, "_global_node")
    started = _private(node, "all_processes")
    _private(node, "kill_all_processes")

    def kill_all(**_: Any) -> None:
        processes = []
        for info in (info for infos in started.values() for info in infos):
            if info.process.poll() is not None:
                continue  # it has ended, and another process may have its number
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(info.process.pid)
                # And its children: Ray's agents would look for their dead node for a minute.
                processes += [process, *process.children(recursive=True)]
        started.clear()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        await_end(processes, KILL_SECONDS)

    node.kill_all_processes = kill_all


def started_here() -> dict[str, psutil.Process]:
    """Return the main processes, by name, of the Ray that this process has started."""
    import ray

    node = _private(_private(ray, "_private").worker, "_global_node")
    started = _private(node, "all_processes") if node else {}
    infos = [(name, info) for name in ("gcs_server", "raylet") for info in started.get(name, ())]
    return {name: psutil.Process(info.process.pid) for name, info in infos if info.process.poll() is None}


def kill_stopped() -> None:
    """Kill Ray's processes if one of them is stopped: `ray.shutdown` would wait for its answer."""
    started = started_here().values()
    if any(is_stopped(process) for process in started):
        for process in started:
            process.kill()


MOST_ENDED = 50
"""Trials that Tune may keep after they have ended; it wants some to have run."""


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
    """Drop the trials that have ended, except the last: Tune keeps all of them."""
    trials = _private(controller, "_trials")
    if len(trials) < 2 * MOST_ENDED:
        return
    ended = {trial for trial in trials[:-MOST_ENDED] if trial.is_finished()}
    trials[:] = [trial for trial in trials if trial not in ended]
    for name in ("_stopped_trials", "_failed_trials", "_trials_to_cache"):
        _private(controller, name).difference_update(ended)


def last_error(tune_trial: "TuneTrial") -> str:
    """Return the first line of the trial's last failure, from Tune's error file: `Trial.get_error` looks elsewhere."""
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

    vars(registry).update(_internal_kv_get=get, _internal_kv_put=register)
    try:
        yield
    finally:
        vars(registry).update(_internal_kv_get=ask, _internal_kv_put=put)


@contextmanager
def signals_left_alone() -> Iterator[None]:
    """Inside, Tune handles no signal: it would end a run by SIGUSR1 as if all trials had ended."""
    from ray.tune import tune

    handle = _private(tune, "_setup_signal_catching")
    tune._setup_signal_catching = Event
    try:
        yield
    finally:
        tune._setup_signal_catching = handle


def _private(thing: Any, name: str) -> Any:
    """Return an attribute of one of Ray's objects. Raises RequestError if Ray has renamed it."""
    import ray

    try:
        return getattr(thing, name)
    except AttributeError:
        of = getattr(thing, "__name__", type(thing).__name__)
        raise RequestError(
            f"Ray {ray.__version__} has no {of}.{name}, which lmsweep relies on; install a version that it works with: "
            "pip install 'ray[tune]==2.60.*'"
        ) from None
