"""A cluster of machines one already has, as docs/clusters.md describes it: a head and two workers, each a host of its
own on this machine, and cluster-local.yaml with the lines changed that are marked EDIT.
"""

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from lmsweep.trials.machine.cpu_affinity import usable_cores
from tests.support import hosts
from tests.support.command import ROOT
from tests.support.hosts import Hosts
from tests.support.waiting import wait_until

SWEEP = """
name: everywhere
grids:
  - workloads: [timing]
    axes: {device: [cpu, "cuda:H200"], context_length: [16, 24, 32, 40]}
    fixed: {model: tiny, vocab_size: 100, batch_size: 1, measure_steps: 3, mode: forward}
"""


pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
"""Two raylets of one machine (test_nodes.py) are what CI has of a cluster."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    hosts: Hosts
    file: Path
    environment: dict[str, str]
    first_run: str
    """What a run printed that began when `ray up` had returned, and the second worker could not be reached yet."""

    def ray(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Ray's command, on the machine from which the cluster is started."""
        program = [Path(sys.executable).parent / "ray", *arguments]
        own = {"cwd": ROOT, "env": self.environment, "timeout": 240}
        done = subprocess.run(program, capture_output=True, text=True, check=False, **own)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def on_head(self, command: str, *, check: bool = True) -> str:
        done = self.ray("exec", self.file, command, check=check)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := hosts.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("cluster")
    home = folder / "home"
    home.mkdir()
    # There is no network to install from: the hosts use this environment, and the project that was brought to them.
    base = f"export PATH={Path(sys.executable).parent}:$PATH PYTHONPATH=$HOME/lmsweep AUTOSCALER_UPDATE_INTERVAL_S=1"
    resources = ('{"CPU": 0}', *(f'{{"CPU": 1, "accelerator_type:{name}": 1}}' for name in "AB"))
    profiles = [f"{base} RAY_OVERRIDE_RESOURCES='{one}'" for one in resources]
    with Hosts(folder / "hosts", profiles, keep=[Path(sys.prefix), Path(sys.base_prefix)]) as made:
        content = yaml.safe_load((ROOT / "cluster-local.yaml").read_text())
        content["provider"] |= {"head_ip": made.addresses[0], "worker_ips": made.addresses[1:]}
        content["auth"] = {"ssh_user": "root", "ssh_private_key": str(made.key)}
        kept = [one for one in content["setup_commands"] if "lmsweep-venv" not in one or "RAY" in one]
        content["setup_commands"] = kept
        file = folder / "cluster-local.yaml"
        file.write_text(yaml.safe_dump(content))
        environment = os.environ | {"HOME": str(home), "RAY_TMPDIR": str(home), "RAY_UP_enable_autoscaler_v2": "0"}
        environment |= {"RAY_USAGE_STATS_ENABLED": "0"}
        started = Cluster(hosts=made, file=file, environment=environment, first_run="")
        started.ray("get-auth-token", "--generate")
        (made.home(0) / "sweep.yaml").write_text(SWEEP)
        made.cut(2)
        started.ray("up", "--yes", file)
        run = made.start(0, "source ~/.bashrc; lmsweep run ~/sweep.yaml --address auto --store ~/results 2>&1")
        said = ""
        while "waiting for the others" not in said:
            said += (line := run.stdout.readline())
            assert line, said
        made.join(2)
        said += run.stdout.read()
        assert run.wait(60) == 0, said
        yield replace(started, first_run=said)


def test_nodes_with_other_code_are_named_before_anything_runs(cluster):
    file = cluster.hosts.home(2) / "lmsweep" / "trials" / "timing" / "clock.py"
    content = file.read_text()
    file.write_text(content + "# another time\n")
    try:
        said = cluster.on_head("lmsweep plan quick --address auto", check=False)
    finally:
        file.write_text(content)
    assert f"{cluster.hosts.addresses[2]}: different code in trials/timing/clock.py" in said, said
    assert f"{cluster.hosts.addresses[1]}: " not in said


def test_a_run_right_after_ray_up_waits_for_the_workers(cluster):
    assert re.search(r"[12] of the 3 nodes of the cluster file are there; waiting for the others", cluster.first_run)
    planned, _, _ = cluster.first_run.partition("[1/")  # at the end, the results of an absent GPU are left out
    assert "missing" not in planned


@pytest.mark.parametrize("page", ["README.md", "docs/clusters.md"])
def test_what_a_page_gives_to_ray_exec_ends_without_a_person(cluster, page):
    commands = re.findall(r"^ *ray exec cluster\.yaml '(lmsweep .*)'$", (ROOT / page).read_text(), re.MULTILINE)
    assert len(commands) >= 2
    for command in commands:
        here = command.replace(" full ", " ~/sweep.yaml ").replace("s3://my-bucket/lmsweep", "~/documented")
        here = here.replace(" --price H200=3.5", "")  # no host has one
        said = cluster.on_head(here, check="doctor" not in here)  # which finds no GPU here
        assert "\x1b[6n" not in said and len(said.splitlines()) > 5, said


def test_a_sweep_runs_on_every_node_into_one_store(cluster):
    said = cluster.first_run
    assert "8 trials, 4 to run" in said
    assert "4 unsupported: none of the 2 nodes has a cuda device" in said
    rows = pd.read_parquet(cluster.hosts.home(0) / "results" / "measurements")
    assert rows[rows["device"] == "cuda"]["status"].eq("unsupported").all()
    ran = rows[rows["device"] == "cpu"]
    assert set(ran["status"]) == {"ok"} and ran["trial_id"].nunique() == 4
    assert ran["host_name"].nunique() == 2, "both workers took part, and not the head, which has no cores to give"
    assert "0 to run" in cluster.on_head("lmsweep plan ~/sweep.yaml --address auto --store ~/results")


def test_a_trial_runs_on_the_node_that_has_the_accelerator_it_asks_for(cluster):
    # No host has a GPU, so the trials are CPU trials that ask Ray for what a trial on such a GPU would ask for.
    done = cluster.hosts.ssh(0, "source ~/.bashrc; python -m tests.support.launched_trials ~/routed A:3 B:3")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = pd.read_parquet(cluster.hosts.home(0) / "routed" / "measurements")
    assert set(rows["status"]) == {"ok"}
    assert rows.groupby("sweep")["trial_id"].nunique().to_dict() == {"A": 3, "B": 3}
    names = rows.groupby("sweep")["host_name"].agg(set).to_dict()
    assert names == {"A": {cluster.hosts.name(1)}, "B": {cluster.hosts.name(2)}}
    starts = rows.groupby(["sweep", "trial_id"])["started_at"].first()
    assert starts["A"].min() < starts["B"].max(), "while one node has much to do the other is not idle"
    assert starts["B"].min() < starts["A"].max()


def accepted(cluster: Cluster, *, meanwhile: Callable[[], None] = lambda: None) -> tuple[str, dict[str, Any]]:
    """What `lmsweep accept` says on the head, and the answer by the name of the node."""
    there = "source ~/.bashrc; lmsweep accept --address auto --store ~/accepted -o ~/accept.html"
    process = cluster.hosts.start(0, there)
    meanwhile()
    said, wrong = process.communicate(timeout=240)
    assert process.returncode == 1, said + wrong
    found = json.loads((cluster.hosts.home(0) / "accept.json").read_text())
    return said, {one["node"]: one for one in found["nodes"]}


def test_an_acceptance_measures_all_nodes_side_by_side_and_names_the_slow_one(cluster):
    fast, slow = (cluster.hosts.name(index) for index in (1, 2))
    for index, core in zip((1, 2), itertools.cycle(usable_cores())):
        cluster.hosts.pin(index, core)
    cluster.hosts.limit(2, 0.15)
    said, nodes = accepted(cluster)
    assert set(nodes) == {fast, slow} and "Nodes side by side" in said
    beside, host = (nodes[name]["units"][0] for name in (fast, slow))
    quota = "a quota limits it to 0.15 cores"
    assert quota in host["causes"] and quota not in beside["causes"] and quota in said
    assert {part["against"] for part in host["parts"]} == {"the others of this acceptance"}
    ratios = [max(part["ratio"] for part in one["parts"]) for one in (beside, host)]
    assert ratios[1] > max(1.3, ratios[0]) and beside["verdict"] == "not judged"
    if not any("other processes" in cause for cause in (*beside["causes"], *host["causes"])):
        assert host["verdict"] == "slow" and f"Slow: {slow} host." in said
    assert host["verdict"] in ("slow", "cannot tell", "not judged")


def test_a_node_that_dies_during_an_acceptance_is_named_and_the_other_is_judged(cluster):
    alive, dead = (cluster.hosts.name(index) for index in (1, 2))

    def kill() -> None:
        wait_until(lambda: any("isolation.server" in " ".join(one.cmdline()) for one in cluster.hosts.processes(2)))
        raylets = [one for one in cluster.hosts.processes(2) if one.name() == "raylet"]
        assert raylets
        for one in raylets:
            one.kill()

    said, nodes = accepted(cluster, meanwhile=kill)
    assert set(nodes) == {alive, dead}
    (host,) = nodes[dead]["units"]
    assert host["verdict"] == "cannot tell" and not host["parts"] and "the node was lost" in host["causes"][0]
    assert len(nodes[alive]["units"][0]["parts"]) == 3
    assert f"{dead} host: cannot tell; the node was lost: " in said


def test_when_the_cluster_is_down_nothing_is_left_running(cluster):
    cluster.ray("down", "--yes", cluster.file)
    for worker in (1, 2):  # Ray's launcher stops the head only
        done = cluster.hosts.ssh(worker, "source ~/.bashrc; ray stop")
        assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: not cluster.hosts.processes(), 20)
