"""The ready files of deploy/: what KubeRay, SkyPilot, Modal and Docker make of them."""

import ast
import re
import subprocess
from typing import Any

import pytest
import yaml

from lmsweep.orchestrator.cluster.ray_session import NODE_SETTINGS
from lmsweep.orchestrator.feature import packaged_sweeps
from tests.support.command import ROOT

DEPLOY = ROOT / "deploy"
FREE = ("env", "envs", "requests", "limits", "nodeSelector", "rayStartParams")
"""Fields below which any name may stand."""
JOB = """
    apiVersion kind metadata name namespace spec entrypoint runtimeEnvYAML submissionMode activeDeadlineSeconds
    shutdownAfterJobFinishes ttlSecondsAfterFinished backoffLimit rayClusterSpec rayVersion authOptions mode
    enableInTreeAutoscaling headGroupSpec workerGroupSpecs rayStartParams template containers image env envFrom
    secretRef resources requests limits nodeSelector groupName replicas minReplicas maxReplicas numOfHosts
"""
"""Of the custom resource ray.io/v1 RayJob and of a pod: the fields that are settings of a sweep."""
TASK = """
    name workdir num_nodes resources infra accelerators cpus memory disk_size use_spot autostop idle_minutes down
    envs file_mounts setup run
"""
"""The fields of SkyPilot's task."""


def content_of(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


def fields_of(content: Any) -> set[str]:
    if isinstance(content, list):
        return set().union(*map(fields_of, content))
    if not isinstance(content, dict):
        return set()
    return content.keys() | set().union(*(fields_of(value) for name, value in content.items() if name not in FREE))


@pytest.mark.parametrize(("name", "known"), [("rayjob.yaml", JOB), ("skypilot.yaml", TASK)])
def test_the_file_has_only_fields_that_its_reader_knows(name: str, known: str) -> None:
    assert fields_of(content_of(name)) <= set(known.split())
    assert (DEPLOY / name).read_text("utf-8").count("# EDIT") >= 2


def test_the_job_on_kubernetes_has_ray_s_settings_the_token_and_the_version_of_the_image() -> None:
    cluster = content_of("rayjob.yaml")["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert f"ray=={cluster['rayVersion']}\n" in (ROOT / "constraints.txt").read_text()
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        for one in group["template"]["spec"]["containers"]:
            assert {entry["name"]: entry["value"] for entry in one["env"]} == NODE_SETTINGS


def test_the_shells_of_the_task_are_valid_and_a_store_must_be_named() -> None:
    task = content_of("skypilot.yaml")
    for name in ("setup", "run"):
        subprocess.run(["bash", "-n"], input=task[name], text=True, check=True)
    assert task["envs"]["STORE"] is None and task["envs"]["SWEEP"] in packaged_sweeps()
    assert task["resources"]["autostop"]["down"]


def test_the_app_for_modal_uses_what_modal_has() -> None:
    text = (DEPLOY / "modal_sweep.py").read_text("utf-8")
    tree = ast.parse(text)
    compile(tree, "modal_sweep.py", "exec")
    (function,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "run_sweep")
    (decorator,) = function.decorator_list
    assert isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "app.function"
    assert {one.arg for one in decorator.keywords} <= {"image", "gpu", "cpu", "memory", "volumes", "timeout"}
    of_modal = set(re.findall(r"modal\.((?:Image|Volume|App)\.?\w*)", text))
    assert of_modal == {"App", "Image.from_dockerfile", "Volume.from_name"}
    assert (ROOT / re.search(r'from_dockerfile\("([^"]+)', text)[1]).exists()
    named = {re.search(words, text)[1] for words in (r"--sweep (\w+)", r'sweep: str = "(\w+)"')}
    assert named <= packaged_sweeps().keys()


def test_the_image_leaves_out_what_is_not_installed() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    assert {".git", ".venv*", "results"} <= set(ignored)
    install = (DEPLOY / "Dockerfile").read_text()
    assert "-c constraints.txt -e ." in install and "lmsweep" in re.search(r"ENTRYPOINT (.*)", install)[1]
