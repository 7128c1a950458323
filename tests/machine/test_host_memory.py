"""How much of the host's memory a trial may hold: in a small container on a large host, and as planning sees it."""

import os
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from lmsweep.orchestrator.features.doctor import machine_checks
from lmsweep.orchestrator.planning.memory_budget import HOST_RESERVE, budget
from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.machine import cgroups
from lmsweep.trials.machine.host_memory import VARIABLE, memory_for_a_trial, why_to_end
from lmsweep.trials.spec.config import TrialConfig
from tests.support.command import answer_here, write_sweep

LARGE_HOST = 2 * 10**12
Memory = namedtuple("Memory", "total available")
PERIODS = dict.fromkeys(("cpu/job/cpu.cfs_period_us", "cpu/cpu.cfs_period_us"), "100000")


def test_the_reserve_is_a_share_of_the_limit_not_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1.5GB")
    assert memory_for_a_trial(LARGE_HOST) == memory_for_a_trial(2 * 10**9) == 1_470_000_000
    monkeypatch.setenv(VARIABLE, "3000GB")
    assert memory_for_a_trial(10**9) == 980_000_000


def test_a_small_process_may_continue_in_a_small_share_of_a_large_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "24GB")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(LARGE_HOST, LARGE_HOST // 2))
    assert why_to_end(os.getpid()) is None
    # Others fill the host up to a few of its per cent: more than this trial could ask for.
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(LARGE_HOST, 30 * 10**9))
    assert why_to_end(os.getpid()) is None
    monkeypatch.setenv(VARIABLE, "10MB")
    assert (why_to_end(os.getpid()) or "").endswith("more than the 9.35 MiB that a trial may hold")


@pytest.mark.parametrize(
    ("groups", "files", "memory", "cores"),
    [
        ("0::/", {"memory.max": "24000000000", "cpu.max": "150000 100000"}, [24_000_000_000], [1.5]),
        ("0::/slurm/job_7/step_0", {"slurm/job_7/memory.max": "8000000000", "memory.max": "max"}, [8_000_000_000], []),
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, [], [2.0]),
        ("4:memory:/docker/1\n1:cpu:/", {"memory/memory.limit_in_bytes": "7000000000"}, [7_000_000_000], []),
        ("5:cpu,memory:/job", {"memory/job/memory.limit_in_bytes": "6000000000"}, [6_000_000_000], []),
        (
            "1:cpu,cpuacct:/job\n0::/",
            PERIODS | {"cpu/job/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_quota_us": "-1"},
            [],
            [0.5],
        ),
        ("0::/", {}, [], []),
    ],
)
def test_a_container_has_the_limits_of_its_group_and_of_those_above(
    tmp_path, monkeypatch, groups, files, memory, cores
):
    (tmp_path / "groups").write_text(groups + "\n")
    for name, text in files.items():
        path = tmp_path / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    monkeypatch.setattr(cgroups, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path / "mount")
    assert (cgroups.memory_limits(), machine_checks.cpu_quotas()) == (memory, cores)


def test_a_plan_gives_a_trial_on_a_cpu_what_the_guard_will_let_it_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "2.5GB")
    here = fingerprint("cpu")
    room = budget(TrialConfig(d_model=16, device="cpu"), here)
    assert room and room.bytes == memory_for_a_trial(psutil.virtual_memory().total) - HOST_RESERVE == 1_450_000_000
    assert room.words == "1.35 GiB of this host (2.28 GiB for a trial minus 954 MiB for Python and the system)"


def test_what_is_no_amount_of_memory_is_reported_once_before_anything_runs(tmp_path: Path) -> None:
    done = answer_here("run", write_sweep(tmp_path), "--store", tmp_path / "store", LMSWEEP_HOST_MEMORY="24")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "lmsweep: LMSWEEP_HOST_MEMORY=24: give a size, such as 24GB\n"
    assert not (tmp_path / "store").exists()
