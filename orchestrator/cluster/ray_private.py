"""What we rest on that Ray does not promise, all in one place: names that its next version may change. Each is looked
for where it is used, and a Ray that lacks one is named in a sentence. Known to be right for Ray 2.60.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from lmsweep.trials.machine.interpreter import ROOT
from lmsweep.trials.spec.config import RequestError

LOOPBACK: dict[str, Any] = {"_node_ip_address": "127.0.0.1"}
"""For `ray.init`: a Ray that only this machine can reach."""

KILL_SECONDS = 10.0
"""How long to wait for a killed process to be gone; one that waits for a device takes a while."""


def job_config() -> Any:
    """A job whose workers look for modules where this process does, and not in its current folder, which Ray would put
    first of all for them.
    """
    from ray.job_config import JobConfig

    _private(JobConfig, "_runtime_env_has_working_dir")

    class WithoutCurrentFolder(JobConfig):
        def _runtime_env_has_working_dir(self) -> bool:
            """What Ray asks before it adds the current folder: whether the workers have one of their own."""
            return True

    found_anyway = os.path.basename(ROOT).endswith("-packages")
    return WithoutCurrentFolder(_py_driver_sys_path=[] if found_anyway else [ROOT])


def kill_at_shutdown() -> None:
    """Has `ray.shutdown` kill what `ray.init` has started on this machine. It would send SIGTERM to each process and
    then wait for a second, but they do not hear it: see `interrupt.endings_wait`.
    """
    import ray

    node = _private(_private(ray, "_private").worker, "_global_node")
    started = _private(node, "all_processes")
    _private(node, "kill_all_processes")

    def kill_all(**_: Any) -> None:
        processes = []
        for info in (info for infos in started.values() for info in infos):
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(info.process.pid)
                # With those that it has started: Ray's agents would look for their dead node for a minute.
                processes += [process, *process.children(recursive=True)]
        started.clear()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=KILL_SECONDS)

    node.kill_all_processes = kill_all


class FreeActors:
    """The actors that Tune keeps for the next trial that asks for the same."""

    def __init__(self, controller: Any) -> None:
        self._cache = _private(controller, "_actor_cache")

    def __bool__(self) -> bool:
        return bool(_private(self._cache, "num_cached_objects"))

    def has_one_for(self, tune_trial: Any) -> bool:
        found: bool = _private(self._cache, "has_cached_object")(tune_trial.placement_group_factory)
        return found


def forget_metrics(tune_trial: Any) -> None:
    """Drops the history of metrics that Tune keeps of a trial, most of what it keeps, and that nobody asks for."""
    kept = _private(tune_trial, "run_metadata")
    for name in ("metric_analysis", "metric_n_steps"):
        _private(kept, name).clear()


@contextmanager
def registry_asked_once() -> Iterator[None]:
    """Inside, Tune asks the cluster once for the class that it runs: without this three times for each trial, which is
    a seventh of the time of one that does nothing.
    """
    from ray.tune import registry

    names = ("_internal_kv_get", "_internal_kv_put")
    ask, put = (_private(registry, name) for name in names)
    known: dict[Any, Any] = {}

    def get(key: Any) -> Any:
        if known.get(key) is None:
            known[key] = ask(key)
        return known[key]

    def register(key: Any, value: Any, **options: Any) -> Any:
        known.pop(key, None)
        return put(key, value, **options)

    def use(*functions: Callable[..., Any]) -> None:
        for name, function in zip(names, functions, strict=True):
            setattr(registry, name, function)

    use(get, register)
    try:
        yield
    finally:
        use(ask, put)


def _private(thing: Any, name: str) -> Any:
    """What the thing has by this name. Raises RequestError where Ray has renamed it."""
    import ray

    try:
        return getattr(thing, name)
    except AttributeError:
        of = getattr(thing, "__name__", type(thing).__name__)
        raise RequestError(
            f"Ray {ray.__version__} has no {of}.{name}, which lmsweep rests on; install the one that it is known to "
            "work with: pip install 'ray[tune]==2.60.*'"
        ) from None
