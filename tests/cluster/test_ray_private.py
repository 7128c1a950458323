"""Names of Ray that are not its promise: one that is gone is named."""

import subprocess
import sys
from pathlib import Path

import pytest
from ray._private import services
from ray.job_config import JobConfig
from ray.tune import registry

from lmsweep.orchestrator.cluster import ray_private
from lmsweep.trials.spec.config import RequestError


def test_a_private_name_that_ray_lacks_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    says = r"Ray \d.* has no {}, which lmsweep relies on; .* pip install 'ray\[tune\]=="
    with pytest.raises(RequestError, match=says.format("object._actor_cache")):
        ray_private.with_free_actor(object(), [])
    with pytest.raises(RequestError, match=says.format("object.run_metadata")):
        ray_private.forget_metrics(object())
    monkeypatch.delattr(registry, "_internal_kv_put")
    with pytest.raises(RequestError, match=says.format("ray.tune.registry._internal_kv_put")):
        ray_private.registry_asked_once().__enter__()
    monkeypatch.delattr(JobConfig, "_runtime_env_has_working_dir")
    with pytest.raises(RequestError, match=says.format("JobConfig._runtime_env_has_working_dir")):
        ray_private.job_config()


def test_auto_is_a_ray_that_others_reach_and_none_of_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where `ray start` had a --temp-dir, so that Ray finds clusters by the command lines of their raylets."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    started = []
    try:
        for host in ("127.0.0.1",) * 9 + ("192.0.2.7",):
            line = ["raylet", "-c", "import time; time.sleep(60)", f"--gcs-address={host}:{6379 + len(started)}"]
            started.append(subprocess.Popen(line, executable=sys.executable))
        services.find_gcs_addresses.cache_clear()
        assert not ray_private.head_address("auto").startswith("127."), "perhaps of a test that runs beside this one"
        assert ray_private.head_address("127.0.0.1:6379") == "127.0.0.1:6379"
    finally:
        for process in started:
            process.kill()
            process.wait()
        services.find_gcs_addresses.cache_clear()
