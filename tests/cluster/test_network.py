"""Who reaches a run: nobody on another machine, and on this one only who has the run's token."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from lmsweep.orchestrator.cluster.joining import wants_token
from tests.faults.test_hostile_machines import FOREIGN
from tests.support.command import PYTHONPATH, answer_here, lmsweep, program, start, wait_for_child, write_sweep
from tests.support.waiting import wait_until

MINE = "mine-and-nobody-elses-token-of-another-cluster"


SLOW = """
import time
from torch import nn

class Slow(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocab_size, 8), nn.Linear(8, vocab_size)

    def forward(self, tokens):
        time.sleep(0.1)
        return self.head(self.embedding(tokens))
"""
"""A model whose ranks leave the cores to other tests."""


class Socket(NamedTuple):
    owner: str
    ip: str
    port: int


@dataclass
class Running:
    """A run of minutes, with a trial of two ranks, of a user who has a token of another cluster."""

    process: subprocess.Popen[str]
    home: Path

    def processes(self) -> list[psutil.Process]:
        command = psutil.Process(self.process.pid)
        return [command, *command.children(recursive=True)]

    def sockets(self) -> set[Socket]:
        found = set()
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                for one in process.net_connections(kind="inet"):
                    if not one.raddr:
                        found.add(Socket(self.owner(process), *one.laddr))
        return found

    def owner(self, process: psutil.Process) -> str:
        if process.pid == self.process.pid:
            return "command"
        if "lmsweep.trials.isolation.server" in process.cmdline():
            return "rank"
        return process.cmdline()[0].rpartition("/")[2] or process.name()

    def ranks(self) -> set[psutil.Process]:
        """Those that listen: rank 0 for all, and each for the next."""
        found = set()
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):  # it has ended
                listens = any(one.status == psutil.CONN_LISTEN for one in process.net_connections(kind="inet"))
                if listens and self.owner(process) == "rank":
                    found.add(process)
        return found

    def ports(self, owner: str) -> list[int]:
        return sorted(one.port for one in self.sockets() if owner in one.owner)

    @property
    def ray(self) -> dict[str, str]:
        """The variables of Ray's main process."""
        return next(one for one in self.processes() if one.name() == "raylet").environ()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("network")
    home = folder / "home"
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text(MINE)
    (folder / "mine.py").write_text(SLOW)
    fields = {"model": "mine.py:Slow", "measure_steps": 1_000_000, "timeout_seconds": 600, "ddp": "flat"}
    sweep = write_sweep(folder, context_length=16, world_size=[2], **fields)
    sweep.write_text(sweep.read_text().replace("timing", "ddp"))
    # A cluster's image may name its network for the ranks, and its user may have turned tokens off.
    for tracker in ("wandb", "mlflow"):
        (folder / f"{tracker}.py").write_text(f"open({str(home)!r} + '/tracked', 'w').close()")
    own = {"PYTHONPATH": f"{folder}:{PYTHONPATH}"}
    own |= {"HOME": str(home), "RAY_AUTH_MODE": "disabled", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}
    process = start("run", sweep, "--store", folder / "store", "--no-predict", "--code", folder, **own)
    try:
        wait_for_child(process)
        under_way = Running(process, home)
        wait_until(lambda: process.poll() is not None or len(under_way.ranks()) == 2, 120)
        assert process.poll() is None, process.communicate()
        yield under_way
    finally:
        process.kill()
        process.communicate()


def test_a_run_starts_no_process_and_imports_no_package_that_it_has_no_use_for(running: Running) -> None:
    commands = [" ".join(process.cmdline()) for process in running.processes()]
    assert any("gcs_server" in command for command in commands)
    assert not [command for command in commands if "dashboard.py" in command or "monitor.py" in command]
    assert not (running.home / "tracked").exists()


def test_every_socket_of_a_run_is_on_the_loopback_interface(running: Running) -> None:
    sockets = running.sockets()
    for owner in ("command", "gcs_server", "raylet", "ray::RuntimeEnvAgent", "ray::ResourceTrainable", "rank"):
        assert any(owner in one.owner for one in sockets), f"{owner} listens nowhere: {sockets}"
    assert {one.ip for one in sockets} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


CALLS = {
    "gcs_server": (
        "NodeInfoGcsService/GetClusterId",
        "InternalKVGcsService/InternalKVPut",  # where the pickled classes of actors are
        "ActorInfoGcsService/RegisterActor",
    ),
    "raylet": ("NodeManagerService/RequestWorkerLease", "ObjectManagerService/Push"),
    "ray::ResourceTrainable": ("CoreWorkerService/PushTask",),
    "command": ("CoreWorkerService/PushTask",),
}


def test_each_server_of_ray_refuses_a_call_without_the_token(running: Running) -> None:
    def refuses(port: int, method: str) -> bool:
        with suppress(OSError):
            return wants_token("127.0.0.1", port, patience=5, method=f"/ray.rpc.{method}")
        return False

    for owner, methods in CALLS.items():
        for method in methods:
            found = [refuses(port, method) for port in running.ports(owner)]
            assert any(found) if owner == "raylet" else found and all(found), (owner, method)  # one of its two
    (port,) = running.ports("RuntimeEnvAgent")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/get_or_create_runtime_env", b"", timeout=5)


def test_ranks_answer_nobody_who_is_no_rank(running: Running) -> None:
    ports = running.ports("rank")
    assert len(ports) == 2, "gloo's in each rank, and no store that others could write"
    for opening in (b"", b"GET / HTTP/1.0\r\n\r\n", 64 * b"\0", b"#WELCOME#"):
        for port in ports:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger, suppress(TimeoutError):
                stranger.settimeout(0.5)
                stranger.sendall(opening)
                assert not stranger.recv(64)
    assert running.process.poll() is None and len(running.ranks()) == 2


ASK = """
import sys
from ray._raylet import GcsClient
client = GcsClient(address=f"127.0.0.1:{sys.argv[1]}")
print("answered", len(client.internal_kv_keys(b"", b"fun", timeout=20)))
"""


@pytest.mark.parametrize("has_token", [False, True])
def test_another_user_is_answered_only_with_the_token(running: Running, tmp_path: Path, has_token: bool) -> None:
    if subprocess.run([*FOREIGN, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not become another")
    (port,) = running.ports("gcs_server")
    other = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": running.ray["RAY_AUTH_TOKEN"] if has_token else 64 * "0"}
    done = program(*FOREIGN, sys.executable, "-c", ASK, str(port), HOME=str(tmp_path), **other)
    assert ("answered" in done.stdout) == has_token, done.stdout + done.stderr
    assert has_token or "token" in done.stderr


def test_the_token_is_in_the_environment_of_the_runs_processes_alone(running: Running) -> None:
    token, folder = running.ray["RAY_AUTH_TOKEN"], running.ray["RAY_TMPDIR"]
    assert running.ray["RAY_AUTH_MODE"] == "token" and len(token) == 64 and token != MINE
    for process in running.processes():
        with suppress(psutil.NoSuchProcess):  # it has ended
            assert token not in " ".join(process.cmdline())
    assert [path.name for path in (running.home / ".ray").iterdir()] == ["auth_token"]
    assert (running.home / ".ray" / "auth_token").read_text() == MINE
    files = [path for path in (*Path(folder).rglob("*"), *running.home.rglob("*")) if path.is_file()]
    assert len(files) > 10 and not [path for path in files if token.encode() in path.read_bytes()]


def test_rays_files_are_in_a_folder_that_only_this_user_may_enter(running: Running) -> None:
    folder = Path(running.ray["RAY_TMPDIR"])
    found = folder.lstat()
    assert folder.is_dir() and not folder.is_symlink()
    assert (found.st_uid, found.st_mode & 0o777) == (os.getuid(), 0o700)
    ours = [one for one in running.processes() if one.name() in ("raylet", "gcs_server")]
    sockets = {one.laddr for process in ours for one in process.net_connections(kind="unix") if one.laddr}
    sockets = {one for one in sockets if not one.startswith("@")}
    assert sockets and all(Path(one).is_relative_to(folder) for one in sockets)


IN_PYTHON = """
import os, sys
import ray  # it reads its settings
import lmsweep
from lmsweep.orchestrator.cluster import ray_session

def run(store):
    before = dict(os.environ)
    statuses = lmsweep.run(sys.argv[1], store=store, predict=False).account.statuses
    assert statuses == {"ok": 2}, statuses
    changed = {name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)}
    assert changed <= {*ray_session.SETTINGS}, changed

ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
try:
    lmsweep.run(sys.argv[1], store=sys.argv[2] + "/no", predict=False)
except ValueError as error:
    print(error)
assert ray.get(ray.put("mine")) == "mine"
ray.shutdown()
run(sys.argv[2] + "/one")
run(sys.argv[2] + "/two")
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
assert ray.get(ray.put("mine")) == "mine"
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["disabled", "token", None])
def test_a_program_that_uses_ray_itself_can_run_sweeps_between(tmp_path: Path, mode: str | None) -> None:
    own = {"HOME": str(tmp_path)} | ({"RAY_AUTH_MODE": mode} if mode else {})
    done = program(sys.executable, "-c", IN_PYTHON, write_sweep(tmp_path), tmp_path, **own)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lmsweep needs one of its own; call ray.shutdown() first" in done.stdout


@pytest.mark.slow
def test_rays_folder_is_gone_with_the_run(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:  # short enough for Ray's sockets
        before = os.stat(folder).st_mtime_ns
        done = lmsweep("run", write_sweep(tmp_path), "--store", tmp_path / "store", "--no-predict", RAY_TMPDIR=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        assert os.stat(folder).st_mtime_ns > before and not os.listdir(folder)


REFUSED = (
    b"\x88@\x0ccontent-type\x10application/grpc\x00\x0bgrpc-status\x0216"
    b"\x00\x0cgrpc-message>InvalidAuthToken: Authentication token is missing or incorrect"
)
"""The header with which the head of Ray 2.60 answers whoever has no token."""


def test_a_missing_token_of_a_cluster_is_reported_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(len(REFUSED).to_bytes(3, "big") + bytes([1, 5, 0, 0, 0, 1]) + REFUSED)
                connection.recv(1000)

        thread = threading.Thread(target=answer)
        thread.start()
        done = answer_here("plan", "quick", "--no-predict", "--address", f"127.0.0.1:{port}", RAY_AUTH_MODE="disabled")
        thread.join()
    assert done.returncode == 2
    assert f"cannot join a Ray cluster at 127.0.0.1:{port}: it asks for a token" in done.stderr
    assert "token (RAY_AUTH_TOKEN, ~/.ray/auth_token)" in done.stderr and done.stderr.count("\n") == 1
