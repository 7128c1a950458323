"""Starts Ray on this machine, or joins a cluster, and stops it again."""

import atexit
import logging
import os
import secrets
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lmsweep.orchestrator.cluster import ray_private
from lmsweep.orchestrator.cluster.guard import Guard
from lmsweep.orchestrator.interrupt import RayFailedError, postpone_ctrl_c, postpone_termination
from lmsweep.trials.isolation.standby import Standby
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.interpreter import environment
from lmsweep.trials.machine.scratch import scratch_folder, temporary_folder
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

QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
"""Arguments of `ray.init`."""

OBJECT_STORE_BYTES = 200_000_000
"""Size of Ray's object store, through which trials exchange kilobytes."""

LONGEST_FOLDER = 107 - len(
    "/lmsweep-scratch-12345678/r/session_2026-01-31_23-59-59_123456_1234567/sockets/plasma_store"
)
"""Longest path of the folder for Ray's own folder, in bytes: the path of a socket is limited to 107."""

START_SECONDS = 60.0
"""How long a process of Ray may take to start here, on a busy machine, in each attempt."""
ATTEMPTS = 2

_session: tuple[str | None, ExitStack] | None = None
"""The address of the Ray that this process has started (None) or joined, and what that needs until `stop_ray`."""


def start_early() -> None:
    """Import Ray Tune and start Ray here, in seconds in which this process would otherwise wait for another one."""
    os.environ.update(SETTINGS)
    import ray.tune  # noqa: F401

    start_ray(None, cpus=len(usable_cores()), gpus=None)


@postpone_termination()
def start_standby(configs: Collection[TrialConfig]) -> Standby:
    """Start the trial servers of this machine's workers, which then need not wait for torch to be imported. Workers
    themselves start those for trials on several GPUs or with other software."""
    configs = [config for config in configs if config.software is None]
    return Standby.start(
        gpus=any(config.device_type == "cuda" and config.world_size == 1 for config in configs),
        cpu=any(config.device_type != "cuda" for config in configs),
        compiles=any(config.compiles for config in configs),
    )


@contextmanager
def with_variables(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Inside, these environment variables of this process have these values; None: they are absent."""

    def put(values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    before = {name: os.environ.get(name) for name in variables}
    put(variables)
    try:
        yield
    finally:
        put(before)


def safe_environment() -> AbstractContextManager[None]:
    """Inside, this process, and so what Ray starts from it, has the environment of the processes that we start."""
    safe = environment()
    return with_variables(
        {name: safe.get(name) for name in {*os.environ, *safe} if os.environ.get(name) != safe.get(name)}
    )


@contextmanager
def private_ray() -> Iterator[Path]:
    """Inside, a Ray that starts here has a folder that only this user may enter, and refuses calls without its token.

    The token is in the environment of its processes alone; one of the user's, as in ~/.ray/auth_token, is left alone.
    """
    with scratch_folder(folder_for_sockets()) as folder:
        own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_TMPDIR": str(folder)}
        # `ray_private.starting_here` retries instead, because no signal interrupts Ray's own wait.
        own["RAY_raylet_start_wait_time_s"] = "1"
        with authenticated(own), Guard(folder):
            yield folder


@contextmanager
def authenticated(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Inside, Ray authenticates this process as these environment variables say."""
    try:
        with with_variables(variables):
            ray_private.read_token_again()
            yield
    finally:
        ray_private.read_token_again()


@postpone_ctrl_c("Ray to start")
@postpone_termination()
def start_ray(address: str | None, *, cpus: int, gpus: int | None) -> None:
    """Join the cluster at `address`, or start a Ray that only this user of this machine can reach.

    cpus, gpus: what Ray may assign here; None: it counts the GPUs itself. Raises RequestError if this process uses Ray
    for something else, and RayFailedError if Ray does not start.
    """
    global _session
    os.environ.update(SETTINGS)
    import ray

    if ray.is_initialized():
        if _session is None:
            raise RequestError(
                "this process has started or joined a Ray, and lmsweep needs one of its own; call ray.shutdown() first"
            )
        has = ray.cluster_resources()
        fits = address is not None or gpus is None or (has.get("CPU", 0), has.get("GPU", 0)) == (cpus, gpus)
        if _session[0] == address and fits:
            return  # this Ray is the one that is wanted
    stop_ray()  # of another address, or started early with the wrong resources
    kept = ExitStack()
    _session = address, kept  # before Ray starts, so that `stop_ray` undoes a start that fails
    atexit.register(stop_ray)
    kept.callback(atexit.unregister, stop_ray)
    try:
        if address is None:
            _start_here(kept.enter_context(private_ray()), cpus, gpus)
            ray_private.kill_at_shutdown()
        else:
            kept.enter_context(authenticated({"RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token")}))
            with safe_environment():
                ray.init(ray_private.head_address(address), job_config=ray_private.job_config(), **QUIET)
    except BaseException:  # Ctrl-C too: no process of Ray may stay
        stop_ray()
        raise


def _start_here(folder: Path, cpus: int, gpus: int | None) -> None:
    """Start Ray, in a second attempt if the first fails: the machine may be less busy. Raises RayFailedError."""
    import ray

    failures: list[str] = []
    while True:
        try:
            with safe_environment(), ray_private.starting_here(START_SECONDS):
                ray.init(
                    "local",
                    num_cpus=cpus,
                    num_gpus=gpus,
                    object_store_memory=OBJECT_STORE_BYTES,
                    include_dashboard=False,
                    job_config=ray_private.job_config(),
                    **ray_private.here_in(folder),
                    **QUIET,
                )
            return
        except RayFailedError as error:
            failures.append(str(error))
            if len(failures) == ATTEMPTS:
                load, cores = os.getloadavg()[0], len(usable_cores())
                raise RayFailedError(
                    f"Ray did not start: {'; then '.join(failures)}. The load of this machine is {load:.1f} on {cores} "
                    f"core{'s' * (cores > 1)}: run again when it is less busy"
                ) from error


def stop_ray() -> None:
    """Stop the Ray that this process has started, or leave the cluster."""
    global _session
    if _session is None:
        return
    if ray := sys.modules.get("ray"):  # importing it here fails after an interrupted import
        ray_private.kill_stopped()
        ray.shutdown()
    _, kept = _session
    _session = None
    kept.close()


def folder_for_sockets() -> Path:
    """Return where Ray's own folder can be. Raises RequestError if the path of each is too long for its sockets."""
    for folder in map(Path, (os.environ.get("RAY_TMPDIR") or temporary_folder(), "/tmp", "/var/tmp", "/dev/shm")):
        if len(os.fsencode(folder)) <= LONGEST_FOLDER and os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise RequestError(
        f"Ray needs a writable folder with a path of at most {LONGEST_FOLDER} bytes for its sockets, and none of "
        f"{temporary_folder()}, /tmp, /var/tmp and /dev/shm qualifies; set RAY_TMPDIR to one that does"
    )
