"""The programs that commands in this process start, forked from one process that has imported PyTorch.

Each is its own program, reads its own request and ends in its own process: only the seconds of its imports are saved.
What a test asks of a process itself (its interpreter, its search path), it asks of `tests.support.command.lmsweep`.
"""

import atexit
import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lmsweep.orchestrator.planning import prediction_process
from lmsweep.trials.machine.interpreter import command, environment
from lmsweep.trials.machine.processes import die_with_parent, kill_group

PROGRAMS = ("lmsweep.trials.prediction.predict", "lmsweep.orchestrator.features.check.check_code")
ON_IMPORT = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "TORCH")
"""Beginnings of the variables that are read while a program imports: with other values it starts by itself."""
MOST_CORES = 4
CLIENT = str(Path(__file__).with_name("warm_client.py"))


@contextlib.contextmanager
def warm_programs() -> Iterator[None]:
    """Inside, this process starts its programs from the one that has imported PyTorch."""
    with patch.object(prediction_process, "command", _command):
        yield


def _command(module: str, *arguments: str) -> list[str]:
    # The kernel ends the server with the thread that started it. PyTorch's pool of threads does not survive the second
    # fork on a machine with many cores ("Invalid thread pool", 16 cores, PyTorch 2.11).
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or module not in PROGRAMS or len(os.sched_getaffinity(0)) > MOST_CORES:
        return command(module, *arguments)
    return [sys.executable, "-I", "-S", CLIENT, _server(_read_on_import()), module, *arguments]


def _read_on_import() -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in environment().items() if name.startswith(ON_IMPORT)))


@cache
def _server(variables: tuple[tuple[str, str], ...]) -> str:
    """Start a server under these variables; the socket at which it listens."""
    folder = tempfile.TemporaryDirectory(prefix="warm-")
    atexit.register(folder.cleanup)
    path = f"{folder.name}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        subprocess.Popen(
            command("tests.support.warm_process", str(os.getpid()), str(listener.fileno())),
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"]} | dict(variables) | {"CUDA_VISIBLE_DEVICES": ""},
        )
    return path


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    listener = socket.socket(fileno=int(sys.argv[2]))
    for module in PROGRAMS:
        import_module(module)
    gc.freeze()
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is listener:
                _fork(listener.accept()[0], waiting)
            elif isinstance(key.fileobj, socket.socket):  # the client has ended
                waiting.unregister(key.fileobj)
                kill_group(key.data)
            else:
                pid, client = key.data
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                waiting.unregister(key.fileobj)
                os.close(key.fd)
                with contextlib.suppress(KeyError):
                    waiting.unregister(client)
                with contextlib.suppress(OSError):
                    client.sendall(code.to_bytes(4, signed=True))
                client.close()


def _fork(client: socket.socket, waiting: selectors.BaseSelector) -> None:
    length, streams, _, _ = socket.recv_fds(client, 4, 3)
    request = client.recv(int.from_bytes(length), socket.MSG_WAITALL)
    if pid := os.fork():
        for stream in streams:
            os.close(stream)
        waiting.register(client, selectors.EVENT_READ, pid)
        waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, client))
        return
    code = 1
    try:
        os.setsid()
        waiting.close()
        code = _run(streams, *json.loads(request))
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(streams: list[int], words: list[str], variables: dict[str, str], folder: str, cores: list[int]) -> int:
    import torch

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(len(cores))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    program: Any = import_module(words[0])
    program.die_with_parent = partial(_die_with, int(words[1]))
    sys.argv = words
    program.main()
    return 0


def _die_with(client: int, parent: int) -> None:
    """As `die_with_parent`: the parent here is the server, which ends this process with its client."""
    die_with_parent(os.getppid() if parent == client else parent)


if __name__ == "__main__":
    main()
