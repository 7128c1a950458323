"""The doctor: what it finds on this machine, and what it says of machines that would give wrong numbers."""

import contextlib
import importlib.util
import json
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from lmsweep.orchestrator.cluster.ray_session import NODE_SETTINGS
from lmsweep.orchestrator.features.doctor import examination, machine_checks
from lmsweep.orchestrator.features.doctor.gpu_inventory import GpuState, gpu_states
from lmsweep.orchestrator.features.doctor.machine_checks import Found
from lmsweep.trials.machine import cgroups
from tests.support.command import lmsweep, lmsweep_here, program

HEALTHY = GpuState(
    name="NVIDIA H200", driver_version="580.1", memory=150_000_000_000, memory_used=600_000_000, processes=0,
    utilization=0, temperature=35, slowdown_temperature=87, power_limit=700.0, default_power_limit=700.0,
    persistent=True, partitioned=False, ecc=True, uncorrected_errors=0,
)  # fmt: skip


def by_check(findings: Iterator[Found]) -> dict[str, Found]:
    return {one.check: one for one in findings}


def test_doctor_says_what_this_machine_can_measure_and_how_many_warnings_there_are():
    said = lmsweep_here("doctor")
    assert "\ndevices " in said and f"({psutil.cpu_count()} cores)" in said
    assert re.match(r"(no warnings|1 warning|\d+ warnings)\n", said)
    for check in ("torch", "ray", "nsys", "C++ compiler", "memory", "swap", "shared memory", "frequency governor"):
        assert f"\n{check} " in said


def test_a_machine_without_nvidias_driver_says_so_and_a_gpu_that_it_hides_is_a_warning(monkeypatch, tmp_path):
    if gpu_states().reason is None:
        pytest.skip("this machine has NVIDIA GPUs")
    monkeypatch.setattr(examination, "PCI", tmp_path)
    (only,) = examination.gpus()
    assert only.finding.startswith("none: trials run on the CPU alone (NVML") and only.advice is None
    for vendor, kind in (("0x10de", "0x030200"), ("0x10de", "0x068000"), ("0x1af4", "0x030000")):
        device = tmp_path / f"{vendor}-{kind}"
        device.mkdir()
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
    (only,) = examination.gpus()
    assert only.advice and only.advice.startswith("The machine has 1: install or repair NVIDIA's driver")


def test_each_wrong_state_of_a_gpu_gets_its_own_advice():
    assert [one.check for one in machine_checks.gpu_findings(HEALTHY) if one.advice] == []
    for change, check in (
        ({"processes": 2}, "other processes"),
        ({"utilization": 80}, "other processes"),
        ({"partitioned": True}, "MIG"),
        ({"persistent": False}, "persistence mode"),
        ({"temperature": 80}, "temperature"),
        ({"power_limit": 500.0}, "power limit"),
        ({"ecc": False}, "ECC"),
        ({"uncorrected_errors": 3}, "ECC"),
    ):
        found = machine_checks.gpu_findings(replace(HEALTHY, **change))
        assert [one.check for one in found if one.advice] == [check]


def test_limits_of_a_container_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "GROUPS", tmp_path / "none")
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path)
    assert "container CPU quota" not in by_check(machine_checks.cores())
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("2000000000\n")
    quota = by_check(machine_checks.cores())["container CPU quota"]
    assert quota.finding == "1.5 cores" and quota.advice
    limit = by_check(examination.memory())["container memory limit"]
    assert limit.finding == "1.86 GiB" and limit.advice
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert "container CPU quota" not in by_check(machine_checks.cores())
    # Version 1 of control groups says 2^63 bytes, less a page, where there is no limit; others are above the host's.
    for no_limit in (2**63 - 4096, psutil.virtual_memory().total, 2**50):
        (tmp_path / "memory.max").write_text(f"{no_limit}\n")
        assert by_check(examination.memory())["container memory limit"] == Found("container memory limit", "none")
    (tmp_path / "cpu.max").write_text("102400000 100000\n")  # 1024 cores
    assert by_check(machine_checks.cores())["container CPU quota"] == Found("container CPU quota", "none")


def test_variable_clocks_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(examination, "SYSTEM", tmp_path)
    assert by_check(examination.clocks())["frequency governor"].finding.startswith("unknown")
    for check, file, wrong, right in (
        ("frequency governor", "cpu0/cpufreq/scaling_governor", "powersave", "performance"),
        ("turbo", "intel_pstate/no_turbo", "0", "1"),
    ):
        (tmp_path / file).parent.mkdir(parents=True)
        for content in (wrong, right):
            (tmp_path / file).write_text(f"{content}\n")
            assert (by_check(examination.clocks())[check].advice is None) == (content == right)


def test_missing_bytecode_of_torch_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))  # where Python keeps none of it
    (found,) = examination.bytecode()
    assert found.advice and "PYTHONDONTWRITEBYTECODE" in found.advice and "-m compileall" in found.advice
    spec = importlib.util.find_spec("torch")
    assert spec and spec.origin
    kept = Path(importlib.util.cache_from_source(spec.origin))
    kept.parent.mkdir(parents=True)
    kept.touch()
    (found,) = examination.bytecode()
    assert found == Found(check="torch bytecode", finding="cached")


def test_a_node_with_wrong_settings_without_a_token_or_whose_token_others_may_read_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_RAYLET_PID", raising=False)
    assert list(examination.ray_settings()) == []
    monkeypatch.setenv("RAY_RAYLET_PID", "1")
    for name, value in NODE_SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    secret = tmp_path / ".ray" / "auth_token"
    secret.parent.mkdir()
    secret.touch(mode=0o600)
    assert [one.advice for one in examination.ray_settings()] == [None, None]
    secret.chmod(0o644)
    *_, file = examination.ray_settings()
    assert "chmod 600 ~/.ray/auth_token" in (file.advice or "") and file.state == "warning"
    monkeypatch.delenv("RAY_memory_monitor_refresh_ms")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    settings, token = examination.ray_settings()
    assert "RAY_memory_monitor_refresh_ms=0" in (settings.advice or "")
    assert "RAY_AUTH_MODE=token" in (token.advice or "")


def test_gpus_that_ray_counts_and_no_trial_can_use_are_a_failure() -> None:
    for counts, found, advice in (
        ((2, 0, 0, "NVML: no driver"), "Ray counts 2, NVIDIA's driver 0 (NVML: no driver), torch", "--num-gpus=0"),
        ((2, 1, 1, None), "Ray counts 2, NVIDIA's driver 1, torch can use 1", "--num-gpus=1"),
        ((2, 2, 0, None), "Ray counts 2, NVIDIA's driver 2, torch can use 0", "Install a torch with CUDA"),
        ((2, 4, 1, None), "Ray counts 2, NVIDIA's driver 4, torch can use 1", "CUDA_VISIBLE_DEVICES of `ray start`"),
    ):
        finding = examination.missing_gpus(*counts)
        assert finding.state == "fails" and finding.finding.startswith(found) and advice in (finding.advice or "")


@pytest.mark.slow
def test_a_node_with_fewer_gpus_than_ray_counts_makes_the_doctor_fail(monkeypatch):
    from ray.cluster_utils import Cluster

    for name, setting in {**NODE_SETTINGS, "RAY_AUTH_MODE": "disabled", "CUDA_VISIBLE_DEVICES": "3,4"}.items():
        monkeypatch.setenv(name, setting)
    own = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 100_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**own, "include_dashboard": False})
    try:
        healthy = lmsweep("doctor", "--address", cluster.address)
        cluster.add_node(**{**own, "num_gpus": 2})
        contradictory = lmsweep("doctor", "--address", cluster.address)
    finally:
        cluster.shutdown()
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    assert contradictory.returncode == 1, contradictory.stdout + contradictory.stderr
    (line,) = re.findall(r"^GPUs of this node .*", contradictory.stdout, re.MULTILINE)
    assert "Ray counts 2, NVIDIA's driver " in line and line.rstrip().endswith("fails")
    assert "GPUs of this node: Trials on GPUs fail here. " in contradictory.stdout


@pytest.mark.slow  # Ray waits
@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])])
def test_a_server_that_is_no_ray_head_is_reported_in_one_line(greeting):
    """Nothing that answers, a web server, and one that speaks gRPC's protocol without being Ray."""
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            with contextlib.suppress(OSError):  # the server is closed
                while connections.append(server.accept()[0]) is None:
                    connections[-1].sendall(greeting)
                    if greeting:
                        connections[-1].close()

        threading.Thread(target=answer, daemon=True).start()
        began = time.monotonic()
        done = lmsweep("doctor", "--address", f"127.0.0.1:{port}", RAY_AUTH_MODE="disabled")
        seconds = time.monotonic() - began
    assert done.returncode == 2 and f"cannot join a Ray cluster at 127.0.0.1:{port}" in done.stderr
    assert done.stderr.count("\n") == 1 and seconds < 30  # 9 on two busy cores; Ray takes minutes


@pytest.mark.slow  # Ray tries for twenty seconds
def test_a_cluster_that_refuses_the_token_is_not_called_silent(tmp_path: Path) -> None:
    folder, home = Path(tempfile.mkdtemp(dir="/tmp")), {"HOME": str(tmp_path), "RAY_AUTH_MODE": "token"}
    tokens = {one: {**home, "RAY_AUTH_TOKEN": 64 * one} for one in "ab"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    ray = Path(sys.executable).with_name("ray")
    head = ("--head", "--port", port, "--num-cpus", "1", "--include-dashboard=false", "--temp-dir", folder)
    started = program(ray, "start", *head, **tokens["a"])
    try:
        done = lmsweep("doctor", "--address", f"127.0.0.1:{port}", **tokens["b"])
    finally:
        for process in psutil.process_iter(["cmdline"]):
            if any(str(folder) in word for word in process.info["cmdline"] or ()):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    assert started.returncode == 0, started.stderr
    assert done.returncode == 2 and f"cannot join a Ray cluster at 127.0.0.1:{port}: Failed to connect" in done.stderr


def test_the_json_has_each_check_of_this_machine_with_its_state_and_the_advice() -> None:
    (here,) = json.loads(lmsweep_here("doctor", "--format", "json"))["nodes"]
    assert here["node"] is None and {"devices", "torch", "memory"} <= {one["check"] for one in here["findings"]}
    assert {(one["state"], one["advice"] is None) for one in here["findings"]} <= {("ok", True), ("warning", False)}
