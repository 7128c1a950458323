"""A process that connects to a rank and is none: it is refused, and nothing that it sends is unpickled."""

import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmsweep.orchestrator.features.ddp.checked.coordinator import ADDRESS
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.ranks.process_group import StrangerError, refuse_others
from lmsweep.trials.machine.torch_private import default_store
from lmsweep.trials.spec.config import TrialConfig
from tests.features.ddp.test_sharding import SMALL, in_ranks, led_by_rank_0

CONNECT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
sys.stdin.read()
"""


class Opened:
    """Creates a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (self.path, "w")


def answers_after_a_stranger(bench: Workbench, config: TrialConfig, *, made: str) -> Any:
    """Rank 1 first connects to rank 0 as who does not know the key."""
    assert bench.rank
    if bench.rank.index == 1:
        address = ("127.0.0.1", int(default_store().get(ADDRESS)))
        with pytest.raises(AuthenticationError):
            Client(address, authkey=b"a guess")
        payload = pickle.dumps(Opened(made))
        for sent in (payload, len(payload).to_bytes(4, "big") + payload):
            with socket.create_connection(address) as stranger:
                stranger.sendall(sent)
    return led_by_rank_0(bench.rank.index, bench.rank, lambda team: team.all(int.__add__, 10))


def test_who_does_not_know_the_key_of_a_trial_is_refused_and_what_it_sends_is_not_unpickled(tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert in_ranks(partial(answers_after_a_stranger, made=str(made)), SMALL) == [10, 11]
    assert not made.exists()
    pickle.loads(pickle.dumps(Opened(str(made))))
    assert made.exists(), "the attack works where pickles are read"


def said_of_a_stranger(bench: Workbench, config: TrialConfig) -> str:
    assert bench.rank
    if bench.rank.index:
        default_store().get("rank 0 has seen enough")
        return ""
    refuse_others()
    connections = psutil.Process().net_connections("tcp")
    (port,) = (one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN)
    with subprocess.Popen(
        [sys.executable, "-c", CONNECT, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as stranger:
        assert stranger.stdout and stranger.stdout.readline() == "connected\n"
        said, deadline = "", time.monotonic() + 10
        while not said and time.monotonic() < deadline:
            try:
                refuse_others()  # gloo accepts it a moment later
            except StrangerError as error:
                said = str(error)
            time.sleep(0.01)
        stranger.communicate("")
    default_store().set("rank 0 has seen enough", "")
    return said


def test_a_trial_ends_if_another_process_is_connected_to_the_port_of_a_rank() -> None:
    assert in_ranks(said_of_a_stranger, SMALL) == (
        "a process that is no rank of this trial is connected to one; run the trial again"
    )
