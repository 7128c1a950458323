"""The workload `ceiling`: rates that follow from the work and the time."""

from pathlib import Path

import pytest

from lmsweep import analysis
from tests.support.command import lmsweep


@pytest.mark.slow
def test_the_rates_are_the_work_over_the_time(tmp_path: Path) -> None:
    store = tmp_path / "results"
    done = lmsweep("trial", "workloads=ceiling", "d_model=128", "precision=bf16", "warmup_steps=1", "measure_steps=3",
                   "--store", store)  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = analysis.load(str(store)).set_index(["phase", "metric"])
    seconds, rates = (list(rows.loc[("matmul", name), "samples"]) for name in ("time", "flops_rate"))
    assert rates == pytest.approx([2 * 128**3 / one for one in seconds])
    seconds, rates = (list(rows.loc[("copy", name), "samples"]) for name in ("time", "bandwidth"))
    assert rates == pytest.approx([2 * 2 * 128**2 / one for one in seconds])  # 2 bytes each, read and written
    assert rows.loc[("matmul", "time"), "parameter_dtype"] == "bfloat16"
