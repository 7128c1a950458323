"""Trial servers that import torch while the run is planned, before their workers exist.

Each waits for the worker of its slot, which finds it in a folder that only this user may enter. A worker that finds
none there starts a server.
"""

import os
import socket
import subprocess
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from lmsweep.trials.isolation.server_process import compile_threads, server_command
from lmsweep.trials.machine.cpu_affinity import Gpu, cores_of, find_cores, find_gpus
from lmsweep.trials.machine.gpu.cuda_keepalive import ReadyCudaDriver
from lmsweep.trials.machine.interpreter import environment
from lmsweep.trials.machine.processes import kill_group, pinned
from lmsweep.trials.machine.scratch import scratch_folder

LONGEST_FOLDER = 103 - len("/GPU-01234567-89ab-cdef-0123-456789abcdef.1234567")
"""Longest path, in bytes, of a folder with servers: a socket's path, with the name of a slot and a process number, has
at most 103 on macOS, 107 on Linux."""


class Standby:
    """A trial server for each GPU that this process may use, or one for the CPU. They end with this process."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._servers: list[subprocess.Popen[bytes]] = []
        self.folder: Path = self._open.enter_context(scratch_folder())
        """Where workers find them."""

    @classmethod
    def start(cls, *, gpus: bool, cpu: bool, compiles: bool) -> Self:
        """Start a server for each GPU, one for trials without a GPU, or both; none if the folder's path is too long."""
        standby = cls()
        try:
            if len(os.fsencode(standby.folder)) > LONGEST_FOLDER:
                return standby
            found = visible_gpus(find_gpus()) if gpus else []
            if found:  # the driver stays initialised, so that each process of a trial initialises it faster
                standby._open.callback(ReadyCudaDriver().close)
            for gpu in found:
                standby.add([gpu], compiles=compiles)
            if cpu:
                standby.add([], compiles=compiles)
        except BaseException:  # whatever ended the start, Ctrl-C too: no server may stay
            standby.close()
            raise
        return standby

    def close(self) -> None:
        """Kill all servers, with what they run, and wait until they have ended."""
        for server in self._servers:
            kill_group(server.pid)
        for server in self._servers:
            server.wait()
        self._servers = []
        self._open.close()

    def add(self, gpu_ids: list[str], *, compiles: bool) -> None:
        """Start the server of the slot of these GPUs, as CUDA_VISIBLE_DEVICES names them; none: of the CPU."""
        cores = cores_of(gpu_ids, find_gpus() if gpu_ids else [], find_cores())
        variables = environment()
        # What Ray sets for the worker, which would otherwise start the server.
        variables.setdefault("OMP_NUM_THREADS", str(len(cores)))
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpu_ids)
        path = self.folder / "starting"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(os.fspath(path))
            listening.listen(1)
            with pinned(cores):
                server = subprocess.Popen(
                    server_command(listening.fileno(), compiles=compiles),
                    pass_fds=[listening.fileno()],
                    env=compile_threads(cores) | variables,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        self._servers.append(server)
        path.rename(self.folder / f"{slot_name(gpu_ids)}.{server.pid}")


def slot_name(gpu_ids: Collection[str]) -> str:
    """Return the name of the slot that these GPUs make up, as CUDA_VISIBLE_DEVICES names them; none: the CPU."""
    return ",".join(gpu_ids) or "cpu"


def visible_gpus(gpus: list[Gpu]) -> list[str]:
    """Return the GPUs among these that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [gpu.names[0] for gpu in gpus]
    known = {name for gpu in gpus for name in gpu.names}
    return [name for name in named.split(",") if name in known]
