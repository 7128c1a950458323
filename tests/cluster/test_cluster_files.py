"""The cluster files: what Ray makes of them, and that they open nothing to who has no token."""

import re
from importlib.util import find_spec
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from lmsweep.orchestrator.cluster.ray_session import NODE_SETTINGS
from tests.support.command import ROOT

needs_aws = pytest.mark.skipif(find_spec("ray.autoscaler.aws") is None, reason="Ray's files for AWS are not installed")


def content_of(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text())


@pytest.mark.parametrize(
    ("name", "at_first", "at_most"),
    [pytest.param("cluster.yaml", 0, 8, marks=needs_aws), ("cluster-local.yaml", 2, 2)],
)
def test_ray_accepts_the_file_and_reads_from_it_how_many_workers_there_are(name, at_first, at_most):
    prepared = prepare_config(content_of(name))
    validate_config(prepared)
    workers = [kind["min_workers"] for kind in prepared["available_node_types"].values()]
    assert (sum(workers), prepared["max_workers"]) == (at_first, at_most)


@pytest.mark.parametrize("name", ["cluster.yaml", "cluster-local.yaml"])
def test_every_node_has_the_project_and_the_settings_of_one_machine_and_requires_the_token(name):
    content = content_of(name)
    assert content["file_mounts"]["~/lmsweep"] == "."
    assert content["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    (install,) = (command for command in content["setup_commands"] if "pip install" in command)
    assert "-c ~/lmsweep/constraints.txt -e ~/lmsweep" in install
    assert any("RAY_AUTH_MODE=token" in command for command in content["setup_commands"])
    for kind in ("head_start_ray_commands", "worker_start_ray_commands"):
        (start,) = (command for command in content[kind] if "ray start" in command)
        settings = {**NODE_SETTINGS, "RAY_AUTH_MODE": "token"}
        assert [one for one in map("=".join, settings.items()) if one not in start] == []
        assert "dashboard-host" not in start, "Ray's default is the loopback interface"
        assert "unset OMP_NUM_THREADS" in start, "Ray's launcher sets it to 1, and a trial on the CPU would inherit it"
    assert not re.search(r"(?i)aws_secret|password|[0-9a-f]{32}", (ROOT / name).read_text())


@needs_aws
def test_the_aws_cluster_opens_no_port_but_ssh_grows_from_its_head_alone_and_shrinks_to_it():
    content = prepare_config(content_of("cluster.yaml"))
    # To its own two rules (all ports within the group, and ssh) Ray adds what stands under IpPermissions.
    assert content_of("cluster.yaml")["provider"]["security_group"] == {"GroupName": "lmsweep"}
    workers = {name: kind for name, kind in content["available_node_types"].items() if name != "head"}
    assert content["available_node_types"]["head"]["resources"]["CPU"] == 0, "no trial runs beside the driver"
    assert {kind["min_workers"] for kind in workers.values()} == {0}
    assert content["idle_timeout_minutes"] <= 10
    assert content["provider"]["cache_stopped_nodes"] is False
