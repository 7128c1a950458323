"""Ranks on several nodes: a part of them on each, one measurement, and what becomes of it when a part is lost.

The nodes are two of Ray's on one machine.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
import yaml

from lmsweep.orchestrator.cluster.nodes import Node, Refusal, environment_here, missing_environment
from lmsweep.orchestrator.cluster.placement import able_nodes, place, side_by_side
from lmsweep.orchestrator.cluster.ray_session import NODE_SETTINGS
from lmsweep.trials.distributed.ranks.ranks import parts_of
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import RequestError, Trial, TrialConfig
from lmsweep.trials.spec.identity import trial_id
from tests.support.command import lmsweep, start
from tests.support.waiting import wait_until

SIZE = {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 50, "context_length": 8}
STEPS = {"batch_size": 2, "warmup_steps": 1, "measure_steps": 3, "timeout_seconds": 150.0}
FIELDS: dict[str, Any] = {**SIZE, **STEPS, "world_size": 2, "nodes": 2, "ddp": "flat"}
CONFIG = TrialConfig(**FIELDS)
ENDLESS = 10**7


def node(gpus: int = 0, name: str = "H200", **changes: Any) -> Node:
    there = Fingerprint(device_name=name, torch_version="2", python_version="3.12")
    environments = {"cuda": there, "cpu": there} if gpus else {"cpu": there}
    return replace(Node(cpus=32, gpus=gpus, names=(name,), environments=environments), **changes)


# Placement


def test_ranks_are_spread_evenly_and_one_node_is_the_default():
    parts = parts_of(replace(CONFIG, world_size=6, nodes=3))
    assert [(part.first, part.count, part.world_size) for part in parts] == [(0, 2, 6), (2, 2, 6), (4, 2, 6)]
    with pytest.raises(RequestError, match="nodes 2 does not divide world_size 3"):
        replace(CONFIG, world_size=3)
    without = {name: value for name, value in FIELDS.items() if name != "nodes"}
    assert trial_id(TrialConfig(**without)) == trial_id(replace(CONFIG, nodes=1)) != trial_id(CONFIG)


def test_a_gpu_of_intel_is_placed_like_one_of_nvidia() -> None:
    intel = replace(node(gpus=2), environments={"xpu": node().environments["cpu"], "cpu": node().environments["cpu"]})
    trial = replace(CONFIG, device="xpu", world_size=1, nodes=1, ddp="none")
    able = able_nodes(trial, [intel])
    assert able == [intel]
    placed = place(trial, able, [intel])
    assert dict(placed.bundle) == {"CPU": 16.0, "GPU": 1.0} and placed.slots == 2
    assert able_nodes(trial, [node(gpus=1)]) == Refusal("this machine has no xpu device")


def test_a_trial_of_several_nodes_asks_for_its_share_of_gpus_on_each_of_so_many_alike():
    config = replace(CONFIG, world_size=8, device="cuda")
    nodes = [node(4, "A100"), node(4), node(2), node(4)]
    able = able_nodes(config, nodes)
    assert able == [nodes[1], nodes[3]]
    placed = place(config, able, nodes)
    assert (dict(placed.bundle), placed.nodes, placed.slots) == ({"CPU": 32, "GPU": 4}, 2, 1)
    refusal = "nodes 4 needs 4 identical nodes with 2 GPUs each; available: 2"
    assert able_nodes(replace(config, nodes=4), nodes) == Refusal(refusal)
    refusal = "world_size 16 on 2 nodes needs 8 GPUs on each; the largest has 4"
    assert able_nodes(replace(config, world_size=16), nodes) == Refusal(refusal)
    assert able_nodes(CONFIG, [node()]) == Refusal("nodes 2 needs 2 identical nodes with 1 core each; available: 1")
    assert missing_environment(CONFIG, [node()]).device_name == "no cpu device for 2 ranks on 2 nodes"


def test_a_node_holds_one_part_of_a_trial_at_most():
    for nodes, most in (([8, 1], 1), ([8, 8], 8), ([2, 1, 1], 2), ([4, 4, 4], 6)):
        assert side_by_side(replace(CONFIG, device="cuda"), [node(gpus) for gpus in nodes]) == most


@pytest.mark.slow
def test_a_cancelled_trial_ends_at_once(environment, no_servers):
    began = time.monotonic()
    with IsolatedRunner() as runner:
        trial = Trial(config=replace(CONFIG, nodes=1, measure_steps=ENDLESS), workloads=("ddp",), sweep="test")
        rows = runner.run(trial, fallback=environment, is_cancelled=lambda: time.monotonic() - began > 1)
    assert rows == [] and time.monotonic() - began < 20
    assert not servers()


# The command, on a cluster


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        for name, setting in {**NODE_SETTINGS, "RAY_AUTH_MODE": "disabled"}.items():
            patch.setenv(name, setting)
        own = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 100_000_000}
        cluster = Cluster(initialize_head=True, head_node_args={**own, "include_dashboard": False})
        try:
            cluster.add_node(**own)
            yield cluster.address
        finally:
            cluster.shutdown()


def write(folder: Path, *rows: dict[str, Any], workloads: Sequence[str] = ("ddp",)) -> Path:
    path = folder / "nodes.yaml"
    fields = {name: value for name, value in FIELDS.items() if name not in rows[0]}
    grid = {"workloads": list(workloads), "fixed": fields, "include": list(rows)}
    path.write_text(yaml.safe_dump({"name": "nodes", "grids": [grid]}))
    return path


def servers() -> list[psutil.Process]:
    """The trial servers that this test has started by any way, and what they have forked."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "lmsweep.trials.isolation.server" in one.cmdline() and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def actor_and_rank() -> tuple[psutil.Process, psutil.Process]:
    found: list[psutil.Process] = []

    def begun() -> bool:
        with suppress(psutil.NoSuchProcess):
            for one in servers():
                above = one.parents()[:3]
                if len(above) == 3 and "_OtherNode" in " ".join(above[2].cmdline()):
                    found[:] = above[2], one
        return bool(found)

    wait_until(begun, 150)
    return found[0], found[1]


@pytest.mark.slow
def test_a_cluster_that_asks_for_no_token_is_joined_only_by_who_says_so(address, monkeypatch):
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    for mode in ({}, {"RAY_AUTH_MODE": "token"}):
        refused = lmsweep("plan", "quick", "--no-predict", "--address", address, **mode)
        assert refused.returncode == 2, refused.stdout + refused.stderr
        assert refused.stderr.startswith(f"lmsweep: the Ray cluster at {address} asks for no token")
        assert "if nobody else reaches them, set RAY_AUTH_MODE=disabled here" in refused.stderr
    joined = lmsweep("plan", "quick", "--no-predict", "--address", address, RAY_AUTH_MODE="disabled")
    assert joined.returncode == 0, joined.stdout + joined.stderr


@pytest.mark.slow
def test_two_nodes_run_one_trial_and_three_are_unsupported_before_anything_runs(address, tmp_path):
    rows = [{"world_size": 2, "nodes": 2}, {"world_size": 3, "nodes": 3}]
    sweep = write(tmp_path, *rows, workloads=["timing", "ddp"])
    done = lmsweep("run", sweep, "--address", address, "--store", tmp_path / "results")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 trials, 1 to run" in done.stdout + done.stderr  # what does not run of the first is one of them
    found = pd.read_parquet(tmp_path / "results" / "measurements")
    statuses = found.groupby(["nodes", "workload"])["status"].agg(set).to_dict()
    assert statuses == {
        (2, "ddp"): {"ok"},
        (2, "timing"): {"unsupported"},  # it runs in one process, and is no failure of the ranks'
        (3, "ddp"): {"unsupported"},
        (3, "timing"): {"unsupported"},
    }
    assert found[found["nodes"] == 2]["phase"].isin(["rank0", "rank1"]).any()


@pytest.mark.slow
def test_a_death_on_the_other_node_loses_the_trial_and_the_next_one_runs(address, tmp_path):
    rows = [{"measure_steps": ENDLESS}, {"measure_steps": ENDLESS + 1}]
    process = start("run", write(tmp_path, *rows), "--address", address, "--store", tmp_path / "results")
    began = time.monotonic()
    _, rank = actor_and_rank()
    time.sleep(1)
    rank.send_signal(signal.SIGKILL)
    psutil.wait_procs([rank], timeout=10)
    actor, second = actor_and_rank()
    time.sleep(1)
    assert second.pid != rank.pid
    actor.kill()
    out, err = process.communicate(timeout=150)
    assert process.returncode == 1, out + err
    assert time.monotonic() - began < 2 * FIELDS["timeout_seconds"]
    found = pd.read_parquet(tmp_path / "results" / "measurements")
    assert set(found["status"]) == {"lost"}
    errors = "\n".join(found["error"])
    assert "node 1: rank 1 of 2 was ended by SIGKILL" in errors
    assert "node 1: the worker or its node died" in errors
    wait_until(lambda: not servers(), 10)


OWN_STEP = """
import os, pathlib

HERE = pathlib.Path(__file__).parent

def make():
    assert str(HERE) != {folder!r}, "a node has a copy of its own"
    assert not (HERE / "weights.bin").exists(), "git ignores it"
    return lambda: None
"""


@pytest.mark.slow
def test_the_users_code_travels_to_the_nodes_without_what_git_ignores(address, tmp_path):
    code, sweep = tmp_path / "code", tmp_path / "own.yaml"
    code.mkdir()
    files = {"mine.py": OWN_STEP.format(folder=str(code)), ".gitignore": "*.bin\n", "weights.bin": ""}
    for name, text in files.items():
        (code / name).write_text(text)
    fixed = {"step": "mine:make", "warmup_steps": 1, "measure_steps": 2}
    sweep.write_text(yaml.safe_dump({"name": "own", "grids": [{"workloads": ["timing"], "fixed": fixed}]}))
    options = ("--code", code, "--address", address, "--store", tmp_path / "results")
    done = lmsweep("run", sweep, *options)
    found = pd.read_parquet(tmp_path / "results" / "measurements")
    assert set(found["status"]) == {"ok"}, found["error"].iloc[0] + done.stdout + done.stderr
    assert "1 trial, 0 to run" in lmsweep("plan", sweep, *options).stdout, "the copy has the digest of the folder"
    (code / "more.txt").write_bytes(bytes(101_000_000))
    (code / "mine.py").write_text("# changed\n" + OWN_STEP.format(folder=str(code)))
    refused = lmsweep("run", sweep, *options)
    assert refused.returncode == 2
    assert "at most 100 MB may; the largest files are more.txt (101 MB)" in refused.stderr


def test_a_raylet_that_is_none_does_not_say_which_gpus_there_are(monkeypatch):
    """A program that runs in a Ray inherits its number; later another process may have it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    for number in ("1", "0", "-1", "x", "999999999", str(os.getpid())):
        monkeypatch.setenv("RAY_RAYLET_PID", number)
        assert environment_here()["CUDA_VISIBLE_DEVICES"] == "3"
