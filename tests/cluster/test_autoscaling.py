"""A cluster that starts as a head without cores: Ray's own autoscaler starts what the plan's trials ask for. Its nodes
are processes of one host, by Ray's provider for tests; all else is as `ray up` leaves it on a head.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support import hosts
from tests.support.command import ROOT
from tests.support.hosts import Hosts

pytestmark = pytest.mark.slow

HEAD_ID = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"
FAKE_NODES = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
LISTS = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
CLUSTER: dict[str, Any] = {
    **{f"{name}_commands": [] for name in LISTS},
    "cluster_name": "from-zero",
    "max_workers": 3,
    "idle_timeout_minutes": 0.5,
    "upscaling_speed": 1.0,
    "provider": {
        **dict.fromkeys(("use_node_id_as_ip", "disable_node_updaters", "disable_launch_config_check"), True),
        "type": "external",
        "module": FAKE_NODES,
        "launch_multiple": True,
        "head_node_id": HEAD_ID,
    },
    "auth": {},
    "docker": {},
    "file_mounts": {},
    "file_mounts_sync_continuously": False,
    "cluster_synced_files": [],
    "rsync_exclude": [],
    "rsync_filter": [],
    "head_node_type": "ray.head.default",  # the provider knows it by this name
    "available_node_types": {
        name: {"resources": resources, "node_config": {}, "max_workers": most}
        for name, resources, most in (
            ("ray.head.default", {"CPU": 0}, 0),
            ("cpu", {"CPU": 2}, 2),
            ("h200", {"CPU": 16, "GPU": 8, "accelerator_type:H200": 1}, 1),
        )
    },
}
SWEEP = """
name: from-zero
grids:
  - workloads: [timing]
    axes: {device: [cpu, "cuda:*", "cuda:H100"], context_length: [16, 24]}
    fixed: {model: tiny, vocab_size: 100, batch_size: 1, measure_steps: 3, mode: forward}
"""
ENVIRONMENT = (
    f"export PATH={Path(sys.executable).parent}:$PATH PYTHONPATH={ROOT} RAY_AUTH_MODE=disabled "
    "RAY_USAGE_STATS_ENABLED=0 RAY_memory_monitor_refresh_ms=0"
)
START = (
    "AUTOSCALER_UPDATE_INTERVAL_S=1 RAY_FAKE_CLUSTER=1 RAY_enable_autoscaler_v2=1 "
    f"RAY_CLOUD_INSTANCE_ID={HEAD_ID} RAY_OVERRIDE_NODE_ID_FOR_TESTING={HEAD_ID} "
    "ray start --head --num-cpus=0 --autoscaling-config=$HOME/ray_bootstrap_config.yaml"
)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if reason := hosts.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("from-zero")
    with Hosts(folder, [ENVIRONMENT], keep=[ROOT, Path(sys.prefix), Path(sys.base_prefix)]) as made:
        (made.home(0) / "ray_bootstrap_config.yaml").write_text(json.dumps(CLUSTER))
        (made.home(0) / "sweep.yaml").write_text(SWEEP)
        started = made.ssh(0, f"source ~/.bashrc; {START}")
        assert started.returncode == 0, started.stdout + started.stderr
        yield made


def test_the_plan_counts_only_nodes_that_could_start(head):
    done = head.ssh(0, "source ~/.bashrc; cd; lmsweep plan sweep.yaml --address auto --format json")
    assert done.returncode == 0, done.stderr
    trials = json.loads(done.stdout)["trials"]
    found = {(one["config"]["device"], one["action"], one["reason"]) for one in trials}
    unsupported = ("cuda:H100", "unsupported", "no H100 here, only H200")
    assert found == {("cpu", "run", None), ("cuda:H200", "run", None), unsupported}


def test_a_node_is_started_for_the_trials_that_ask_for_it(head):
    done = head.ssh(0, "source ~/.bashrc; cd; lmsweep run sweep.yaml --address auto --set device=cpu", timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = pd.read_parquet(head.home(0) / "results" / "measurements")
    assert set(rows["status"]) == {"ok"} and rows["trial_id"].nunique() == 2
    again = head.ssh(0, "source ~/.bashrc; cd; lmsweep plan sweep.yaml --address auto --set device=cpu")
    assert "2 stored: already measured on" in again.stdout, again.stdout + again.stderr
