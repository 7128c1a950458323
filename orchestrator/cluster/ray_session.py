"""Starts Ray on this machine, or joins a cluster, and stops it again."""

import logging
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lmsweep.orchestrator.cluster import ray_private
from lmsweep.orchestrator.cluster.guard import Guard
from lmsweep.orchestrator.interrupt import postpone_ctrl_c, postpone_termination
from lmsweep.trials.isolation.standby import Standby
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.interpreter import environment
from lmsweep.trials.machine.scratch import temporary_folder
from lmsweep.trials.spec.config import RequestError, TrialConfig

NODE_SETTINGS = {
    # Tune cannot distinguish a worker killed by Ray's memory monitor from a failure of its own, and aborts the sweep.
    "RAY_memory_monitor_refresh_ms": "0",
    # A trial that requests no GPU sees none.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    # Ray's workers, and so the trials that they start, would give way to every other process.
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment variables that Ray reads when it starts on a node. The cluster files set them too."""

SETTINGS = {
    **NODE_SETTINGS,
    # Workers that Ray starts in advance use the cores while the machine is examined: a second on two cores.
    "RAY_prestart_worker_first_driver": "0",
    # Ray would keep a record of every call of an actor for its dashboard: 15 kB for each trial.
    "RAY_task_events_report_interval_ms": "0",
    # Tune's own logs and snapshots cost more than a short trial. The store replaces them.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "RAY_AIR_NEW_OUTPUT": "0",
}
"""Environment variables that Ray reads when it is imported or started."""

OBJECT_STORE_BYTES = 200_000_000
"""Size of Ray's object store, through which trials exchange kilobytes."""

LONGEST_FOLDER = 107 - len("/ray/session_2026-01-31_23-59-59_123456_1234567/sockets/plasma_store")
"""Longest path of the folder of Ray's sockets, in bytes: the path of a socket is limited to 107."""

_guards: list[Guard] = []
"""The guard of the Ray that this process has started, until `stop_ray`; none otherwise."""


def start_early() -> None:
    """Import Ray Tune and start Ray here, in seconds in which this process would otherwise wait for another one."""
    os.environ.update(SETTINGS)
    import ray.tune  # noqa: F401

    start_ray(None, cpus=len(usable_cores()), gpus=None)


@postpone_termination()
def start_standby(configs: Collection[TrialConfig]) -> Standby:
    """Start the trial servers of this machine's workers, which then need not wait for torch to be imported.

    Workers themselves start those for trials on several GPUs or with other software.
    """
    configs = [config for config in configs if config.software is None]
    on_gpu = {config.world_size == 1 for config in configs if config.device_type == "cuda"}
    return Standby.start(
        gpus=True in on_gpu,
        cpu=any(config.device_type != "cuda" for config in configs),
        compiles=any(config.compiles for config in configs),
    )


@contextmanager
def safe_environment() -> Iterator[None]:
    """Inside, this process, and so what Ray starts from it, has the environment of the processes that we start."""
    before = dict(os.environ)
    safe = environment()
    for name in before.keys() - safe.keys():
        del os.environ[name]
    os.environ.update(safe)
    try:
        yield
    finally:
        for name in safe.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@postpone_ctrl_c("Ray to start")
@postpone_termination()
def start_ray(address: str | None, *, cpus: int, gpus: int | None) -> None:
    """Join the cluster at `address`, or start a Ray that only this machine can reach.

    cpus, gpus: what Ray may assign here; None: it counts the GPUs itself.
    """
    os.environ.update(SETTINGS)
    if address is None:
        os.environ["RAY_AUTH_MODE"] = "disabled"  # it listens on the loopback interface only
        os.environ["RAY_TMPDIR"] = str(folder_for_sockets())
    import ray

    if ray.is_initialized():
        has = ray.cluster_resources()
        if address is not None or gpus is None or (has.get("CPU", 0), has.get("GPU", 0)) == (cpus, gpus):
            return
        ray.shutdown()  # started early, with the wrong resources
    if address is None and not _guards:
        _guards.append(Guard())
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with safe_environment():
        if address is not None:
            ray.init(address, job_config=ray_private.job_config(), **quiet)
            return
        local: dict[str, Any] = {**ray_private.objects_in(folder_for_sockets()), **ray_private.LOOPBACK}
        ray.init(
            "local",
            num_cpus=cpus,
            num_gpus=gpus,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            job_config=ray_private.job_config(),
            **local,
            **quiet,
        )
    ray_private.kill_at_shutdown()


def stop_ray() -> None:
    """Stop Ray, or leave the cluster."""
    if ray := sys.modules.get("ray"):  # importing it here fails after an interrupted import
        ray_private.kill_stopped()
        ray.shutdown()
    while _guards:
        _guards.pop().close()


def folder_for_sockets() -> Path:
    """Return Ray's temporary folder. Raises RequestError if the path of each is too long for the sockets in it."""
    for folder in map(Path, (os.environ.get("RAY_TMPDIR") or temporary_folder(), "/tmp", "/var/tmp", "/dev/shm")):
        if len(os.fsencode(folder)) <= LONGEST_FOLDER and os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise RequestError(
        f"Ray needs a writable folder with a path of at most {LONGEST_FOLDER} bytes for its sockets, and none of "
        f"{temporary_folder()}, /tmp, /var/tmp and /dev/shm qualifies; set RAY_TMPDIR to one that does"
    )
