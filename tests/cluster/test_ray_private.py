"""Names of Ray that are not its promise: one that is gone is named."""

import pytest
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
