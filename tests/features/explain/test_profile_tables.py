"""The tables that are made of profiles, of kernels whose times we chose."""

from pathlib import Path

import pandas as pd
import pytest

from lmsweep.analysis import render
from lmsweep.analysis.presets import make_preset
from lmsweep.analysis.tables.listing import Listing
from lmsweep.orchestrator.features.explain.kernel_table import range_rows
from lmsweep.trials.results.record import Attempt
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.store.store import Store
from tests.support.made_up_results import H200, Attempts, config, kernel

SMALL = config("small", context_length=512, mode="train_step")
MADE_UP = [
    # range, operator, milliseconds in both steps together
    ("attention", "aten::mm", 20.0),
    ("scores", "aten::bmm", 6.0),
    ("scores", "aten::where", 2.0),
    ("softmax", "aten::exp", 9.0),
    ("value_matmul", "aten::bmm", 3.0),
    ("loss", "aten::exp", 4.0),
    ("backward of attention", "aten::mm", 40.0),
    ("backward of fused_attention", "aten::_flash_attention_backward", 8.0),
    ("accumulate_grad", "torch::autograd::AccumulateGrad", 2.0),
    ("optimizer", "aten::_fused_adamw_", 5.0),
    (None, None, 1.0),
]


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """A store of one profile with kernels that we chose, and the same step as it was timed and traced."""
    attempts = Attempts(tmp_path)
    kernels = [kernel(where, str(name), ms / 1e3, operator=name, share=ms / 100) for where, name, ms in MADE_UP]
    attempt = Attempt.begin(Trial(config=SMALL, workloads=("profile",), sweep="made-up"))
    attempts.store.keep(attempt.rows("profile", [*kernels, *range_rows([], [])], H200))
    times = {"forward.time": (0.025,), "backward.time": (0.05,), "optimizer.time": (0.005,), "step.time": (0.08,)}
    attempts.ok(SMALL, times | {"step.device_time": (0.05,)})
    return tmp_path


def lines_of(store: Path, preset: str) -> pd.DataFrame:
    table = make_preset(preset, str(store))
    assert isinstance(table, Listing) and render(table, "text") and render(table, "latex")
    return table.frame


def test_the_share_of_matrix_products_forward_and_in_all(made_up: Path):
    found = lines_of(made_up, "matmul-share").set_index("phase")
    assert list(found.index) == ["forward", "loss", "backward", "optimizer", "other", "step"]
    kinds = found[["matmul", "fused_attention", "other"]]
    assert kinds.loc["forward"].tolist() == pytest.approx([29 / 40, 0, 11 / 40])
    assert kinds.loc["backward"].tolist() == pytest.approx([0.8, 0.16, 0.04])
    assert kinds.loc["step"].tolist() == pytest.approx([0.69, 0.08, 0.23])


def test_the_profiled_step_stands_beside_the_timed_one_and_the_busy_gpu(made_up: Path):
    found = lines_of(made_up, "profile-time").set_index("phase")
    assert list(found.index) == ["forward", "backward", "optimizer", "step"]
    assert found["kernels"].tolist() == pytest.approx([0.022, 0.025, 0.0025, 0.05])  # forward has the loss
    assert found["of_timed"].tolist() == pytest.approx([0.88, 0.5, 0.5, 0.625])
    assert found["of_busy"]["step"] == pytest.approx(1) and found["of_busy"].isna().sum() == 3


def test_without_softmax_as_a_kernel_of_its_own_there_is_nothing_to_compare(tmp_path: Path):
    with pytest.raises(RequestError, match="workload profile"):
        make_preset("kernels", str(Attempts(tmp_path).store))
    attempt = Attempt.begin(Trial(config=SMALL, workloads=("profile",), sweep="made-up"))
    rows = attempt.rows("profile", [kernel("graph 0/0", "triton_mm", 1.0), *range_rows([], [])], H200)
    store = Store(str(tmp_path))
    store.keep(rows)
    with pytest.raises(RequestError, match="attention naive, compile none"):
        make_preset("softmax-matmul", store)
