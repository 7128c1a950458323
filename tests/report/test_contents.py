"""What the page contains before a browser opens it: the icicle, the largest pieces."""

from pathlib import Path
from typing import Any

import pytest

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.kernels import classified
from lmsweep.analysis.presets import PRESETS
from lmsweep.analysis.reference import stores
from lmsweep.analysis.report.figures.charts import timelines
from lmsweep.analysis.report.figures.icicle import icicles, pieces
from lmsweep.analysis.report.figures.pieces import largest_pieces
from lmsweep.analysis.report.joined import Joined
from lmsweep.trials.results.attempt import Attempt
from lmsweep.trials.results.measurement import Kernel, Measurement
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.store.store import Store
from tests.support.command import ROOT
from tests.support.made_up_results import H200, config


def kernel(range_: str, name: str, seconds: float) -> Kernel:
    rest: dict[str, Any] = dict.fromkeys(("share", "mean", "median", "min", "max"), 0.0)
    none: dict[str, Any] = dict.fromkeys(("operator", "stdev", "grid", "block"))
    return Kernel(range=range_, kernel=name, total=2 * seconds, instances=4, steps=2, **rest, **none)


def test_an_icicle_divides_a_step_into_phases_parts_and_kernels_that_fill_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "results"))
    attempt = Attempt.begin(Trial(config=config(), workloads=("profile",), sweep="made-up"))
    kernels = [
        kernel("backward of softmax", "b", 3e-3),
        kernel("softmax", "a", 1e-3),
        kernel("feed_forward", "g", 2e-3),
        kernel("softmax", "b", 5e-4),
        kernel("softmax", "c", 1e-6),
        kernel("softmax", "d", 1e-6),
    ]
    time = Measurement(phase="step", metric="kernel_time", unit="s", samples=(6.5e-3,))
    store.keep(attempt.rows("profile", [*kernels, time], H200))
    made = pieces(classified(Results(store).details("kernels", "profile")))
    at = {level: [piece.name for piece in made if piece.level == level] for level in range(4)}
    assert at[0] == ["step"] and at[1] == ["forward", "backward"]
    assert at[2] == ["feed_forward", "softmax", "backward of softmax"]  # the longest of a phase first
    assert at[3] == ["g", "a", "b", "shorter kernels", "b"]
    for level in range(4):
        end = 0.0
        for piece in (one for one in made if one.level == level):
            assert piece.start == pytest.approx(end)
            end = piece.start + piece.time
        assert end == pytest.approx(6.502e-3)
    figure = next(iter(icicles(Results(store))))
    assert figure.top == pytest.approx(6.502)  # ms


def test_the_largest_pieces_are_those_held_at_the_peak_with_their_share_of_it() -> None:
    figure = next(iter(largest_pieces(Results(stores()["h200-memory"]))))
    bars = {
        (trace["name"], name): held
        for trace in figure.traces
        for name, held in zip(trace["y"], trace["x"], strict=True)  # type: ignore[call-overload]
        if held
    }
    assert max(bars, key=bars.__getitem__) == ("optimizer_state", "optimize training_step.py:88")
    assert bars["activations", "softmax attention.py:57"] == pytest.approx(0.564, abs=0.001)  # GiB
    texts = [one["text"] for one in figure.layout["annotations"]]  # type: ignore[index, call-overload, union-attr]
    assert texts[-1] == "0.958 GiB, 19 %"


def test_a_report_reads_each_table_of_the_store_once() -> None:
    class CountingStore(Store):
        def read(self, table_name: str = "measurements", columns: list[str] | None = None) -> Any:
            tables.append(table_name)
            return super().read(table_name, columns)

    tables: list[str] = []
    results = Results(CountingStore(str(ROOT / "tests/support/stores/cpu")))
    assert len(Joined({"cpu": results}).attempts)
    for name in ("kernels", "matmul-share", "memory"):
        PRESETS[name].make(results)
    assert list(icicles(results)) and list(largest_pieces(results)) and list(timelines(results))
    assert sorted(tables) == ["allocations", "kernels", "measurements", "timelines"]
