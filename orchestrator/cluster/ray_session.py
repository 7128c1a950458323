"""Ray on this machine, or a cluster that is joined: started, and ended."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lmsweep.orchestrator.cluster import ray_private
from lmsweep.orchestrator.interrupt import ctrl_c_waits, endings_wait
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.interpreter import environment
from lmsweep.trials.machine.scratch import temporary_folder
from lmsweep.trials.spec.config import RequestError

NODE_SETTINGS = {
    # Ray's memory monitor kills a worker in a way that Tune cannot tell from its own failure and aborts the sweep.
    "RAY_memory_monitor_refresh_ms": "0",
    # A trial that asked for no GPU sees none.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Read by Ray when it starts on a node; the cluster files have them too."""

# Read by Ray when it is imported or started.
SETTINGS = {
    **NODE_SETTINGS,
    # Workers that Ray starts before anybody asks take the cores while the machine is looked at: a second on two cores.
    "RAY_prestart_worker_first_driver": "0",
    # Tune's own logs and snapshots: the store replaces them, and they cost more than a short trial.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "RAY_AIR_NEW_OUTPUT": "0",
    # Ctrl-C is ours: Tune would answer it with a snapshot that nobody reads.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
}
OBJECT_STORE_BYTES = 200_000_000
"""Trials exchange kilobytes through Ray's object store."""

LONGEST_FOLDER = 107 - len("/ray/session_2026-01-31_23-59-59_123456_1234567/sockets/plasma_store")
"""Bytes that the path of the folder may have in which Ray makes its sockets; the system takes 107 for one."""


def prepare(address: str | None) -> None:
    """Imports what a launch will need and, without an address, starts Ray with what it finds on this machine; it takes
    seconds that may be spent waiting for something else.
    """
    os.environ.update(SETTINGS)
    import ray.tune  # noqa: F401

    if address is None:
        start_ray(None, cpus=len(usable_cores()), gpus=None)


@contextmanager
def safe_environment() -> Iterator[None]:
    """Inside, this process has the environment of those that we start, for those that Ray starts."""
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


@ctrl_c_waits("Ray's start")
@endings_wait()
def start_ray(address: str | None, *, cpus: int, gpus: int | None) -> None:
    """Joins the cluster at `address`, or starts Ray on this machine, reachable from nowhere else, with these many cores
    and GPUs to give away; None for the GPUs that it finds.
    """
    os.environ.update(SETTINGS)
    if address is None:
        os.environ["RAY_AUTH_MODE"] = "disabled"  # only the loopback interface can reach it
        os.environ["RAY_TMPDIR"] = str(folder_for_sockets())
    import ray

    if ray.is_initialized():
        has = ray.cluster_resources()
        if address is not None or gpus is None or (has.get("CPU", 0), has.get("GPU", 0)) == (cpus, gpus):
            return
        ray.shutdown()  # it was started before it was known what there is
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with safe_environment():
        if address is not None:
            ray.init(address, job_config=ray_private.job_config(), **quiet)
            return
        ray.init(
            "local",
            num_cpus=cpus,
            num_gpus=gpus,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            job_config=ray_private.job_config(),
            **ray_private.LOOPBACK,
            **quiet,
        )
    ray_private.kill_at_shutdown()


def stop_ray() -> None:
    """Ends it, if it was started."""
    if ray := sys.modules.get("ray"):  # an import that was interrupted fails when it is tried again
        ray.shutdown()


def folder_for_sockets() -> Path:
    """The folder in which Ray makes its own: the one for temporary files unless its path is too long for a socket's."""
    for folder in map(Path, (os.environ.get("RAY_TMPDIR") or temporary_folder(), "/tmp", "/var/tmp", "/dev/shm")):
        if len(os.fsencode(folder)) <= LONGEST_FOLDER and os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise RequestError(
        f"Ray needs a folder whose path has at most {LONGEST_FOLDER} bytes, as those of sockets are limited, and none "
        f"of {temporary_folder()}, /tmp, /var/tmp and /dev/shm is that can be written to; set RAY_TMPDIR to one"
    )
