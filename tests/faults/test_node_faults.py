"""A sweep over two nodes survives the loss of one, or its being unreachable for a while.

The head has no cores to give; each node has one and runs one trial at a time. Ray takes a silent node for dead after
some ten seconds here, after a minute by default.
"""

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from lmsweep.orchestrator.cluster.ray_session import NODE_SETTINGS
from lmsweep.trials.machine.cpu_affinity import usable_cores
from tests.faults.test_faults import assert_each_once, assert_gone, read
from tests.support import hosts
from tests.support.command import ROOT, write_sweep
from tests.support.hosts import Hosts
from tests.support.waiting import wait_until

HEAD, NODE, OTHER = range(3)
PORT = 6379
TRIALS = 8
SETTINGS = NODE_SETTINGS | {
    "RAY_AUTH_MODE": "disabled",  # nothing else reaches these hosts
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "6",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "12",
}
WAIT_FOR_A_DEATH = """
import ray, time
ray.init("auto", log_to_driver=False)
while all(node["Alive"] for node in ray.nodes()):
    time.sleep(0.2)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Sweep:
    def __init__(self, made: Hosts, name: str) -> None:
        self.hosts = made
        folder = made.home(HEAD) / name
        folder.mkdir()
        self.store = folder / "store"
        write_sweep(folder, context_length=[16 + 8 * index for index in range(TRIALS)], measure_steps=400)
        self._command = f"lmsweep run ~/{name}/sweep.yaml --address auto --no-predict --store ~/{name}/store"
        self.run()

    def run(self) -> None:
        self.process = self.hosts.start(HEAD, f"source ~/.bashrc; {self._command}")

    def wait_until_both_nodes_measure(self) -> None:
        def measure() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            return bool(self.attempts() and self.trials_on(NODE) and self.trials_on(OTHER))

        wait_until(measure, 120)

    def attempts(self) -> set[str]:
        return set(read(self.store)["attempt_id"])

    def raylet(self, node: int) -> psutil.Process:
        (found,) = [one for one in self.hosts.processes(node) if one.name() == "raylet"]
        return found

    def trials_on(self, node: int) -> list[psutil.Process]:
        found = []
        for one in self.hosts.processes(node):
            with suppress(psutil.NoSuchProcess):
                command = " ".join(one.cmdline())
                if "lmsweep.trials.isolation.server" in command or "Trainable" in command:
                    found.append(one)
        return found

    def assert_completes(self, stored_before: set[str]) -> str:
        """What was stored is still there, every trial is ok once, and nothing of the sweep runs on. Returns what the
        run printed.
        """
        out, err = self.process.communicate(timeout=200)
        assert self.process.returncode == 0, out + err
        assert stored_before <= self.attempts()
        assert_each_once(self.store, TRIALS)
        assert_gone([*self.trials_on(NODE), *self.trials_on(OTHER)])
        return out

    def assert_says_death(self, said: str) -> None:
        name, address = self.hosts.name(NODE), self.hosts.addresses[NODE]
        assert f"{name} ({address}), with 1 core, has died; what ran there runs again where a node can hold it" in said
        assert re.search(r"context_length \d+: its worker or node has died; it runs again", said), said
        assert "1 of 2 nodes was lost" in said


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if reason := hosts.why_not():
        pytest.skip(reason)
    exports = " ".join(f"{name}={value}" for name, value in SETTINGS.items())
    profile = f"export PATH={Path(sys.executable).parent}:$PATH PYTHONPATH={ROOT} {exports}"
    profiles = [f"{profile} RAY_OVERRIDE_RESOURCES='{json.dumps({'CPU': cores})}'" for cores in (0, 1, 1)]
    keep = [ROOT, Path(sys.prefix), Path(sys.base_prefix)]
    with Hosts(tmp_path_factory.mktemp("nodes"), profiles, keep=keep) as started:
        (started.home(HEAD) / "wait.py").write_text(WAIT_FOR_A_DEATH)
        yield started


@pytest.fixture
def sweep(made: Hosts, request: pytest.FixtureRequest) -> Iterator[Sweep]:
    start_ray(made, HEAD, f"ray start --head --port={PORT}")
    for node in (NODE, OTHER):
        start_node(made, node)
    running = Sweep(made, request.node.name)
    running.wait_until_both_nodes_measure()
    yield running
    made.join(NODE)
    for one in made.processes():
        with suppress(psutil.NoSuchProcess):
            one.kill()


def start_node(made: Hosts, node: int) -> None:
    cores = sorted(usable_cores())
    # Threads of two trials that spin on the same cores would take a hundred times as long.
    pinned = f"taskset -c {cores[node % len(cores)]}"
    start_ray(made, node, f"{pinned} ray start --address={made.addresses[HEAD]}:{PORT}")


def start_ray(made: Hosts, index: int, command: str) -> None:
    done = made.ssh(index, f"source ~/.bashrc; {command} --node-ip-address={made.addresses[index]}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_trial_of_a_killed_raylet_runs_again_on_the_other_node(sweep):
    stored = sweep.attempts()
    ended = sweep.trials_on(NODE)
    sweep.raylet(NODE).kill()
    assert_gone(ended)
    sweep.assert_says_death(sweep.assert_completes(stored))
    assert set(read(sweep.store)["status"]) == {"ok"}


def test_after_every_node_died_trials_are_lost_and_the_next_run_measures_them(sweep):
    stored = sweep.attempts()
    for node in (NODE, OTHER):
        sweep.raylet(node).kill()
    out, err = sweep.process.communicate(timeout=200)
    assert sweep.process.returncode == 1, out + err
    table = read(sweep.store)
    assert table["trial_id"].nunique() == TRIALS
    (words,) = set(table[table["status"] == "lost"]["error"])
    assert words == "every node that could hold it has died"
    start_node(sweep.hosts, NODE)
    sweep.run()
    sweep.assert_completes(stored)


def test_a_node_unreachable_for_a_while_keeps_its_trial(sweep):
    stored = sweep.attempts()
    raylet = sweep.raylet(NODE)
    sweep.hosts.cut(NODE)
    time.sleep(4)
    sweep.hosts.join(NODE)
    said = sweep.assert_completes(stored)
    assert raylet.is_running() and "died" not in said and "lost" not in said, "it was not taken for dead"


def test_a_node_declared_dead_loses_its_trial_even_if_it_returns(sweep):
    stored = sweep.attempts()
    ended = [sweep.raylet(NODE), *sweep.trials_on(NODE)]
    sweep.hosts.cut(NODE)
    done = sweep.hosts.ssh(HEAD, "source ~/.bashrc; timeout 90 python ~/wait.py")  # until Ray takes the node for dead
    assert done.returncode == 0, done.stdout + done.stderr
    sweep.hosts.join(NODE)
    sweep.assert_says_death(sweep.assert_completes(stored))
    assert_gone(ended)
