"""A configuration is rebuilt from what is stored of it."""

from pathlib import Path

import pytest

from lmsweep import analysis
from lmsweep.trials.results.stored_config import config_of, environment_of
from lmsweep.trials.spec.config import TrialConfig
from tests.support.made_up_results import H200, Attempts, config, samples


@pytest.mark.parametrize(
    "stored",
    [
        config(measure_steps="auto"),
        config(measure_steps=12, window=64, compile="block", tp=2, world_size=4, cold_l2=True, device="cuda"),
    ],
)
def test_a_configuration_is_rebuilt_from_a_row_of_the_store_and_of_a_table(tmp_path: Path, stored: TrialConfig) -> None:
    attempts = Attempts(tmp_path / "results")
    attempts.ok(stored, {"step.time": samples(0.1, 0.001)}, fingerprint=H200)
    for row in (attempts.store.read()[0].to_pylist()[0], analysis.load(attempts.store).iloc[0].to_dict()):
        assert config_of(row) == stored
        assert environment_of(row) == H200
