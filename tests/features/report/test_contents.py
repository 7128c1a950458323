"""What the page contains before a browser opens it: icicles, pieces of memory, lines, tables and the Pareto front."""

import re
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.kernels import classified
from lmsweep.analysis.presets import presets
from lmsweep.analysis.reference import stores
from lmsweep.analysis.tables.render import render
from lmsweep.analysis.tables.text_table import HTML, sheet_of
from lmsweep.orchestrator.features.report.figures import pareto
from lmsweep.orchestrator.features.report.figures.charts import timelines
from lmsweep.orchestrator.features.report.figures.html_table import html_of
from lmsweep.orchestrator.features.report.figures.icicle import icicles, pieces
from lmsweep.orchestrator.features.report.figures.pieces import largest_pieces
from lmsweep.orchestrator.features.report.lines import COLOURS, chart_of
from lmsweep.trials.analytic.prices import parse_prices
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.record import Attempt
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.store.store import Store
from tests.support.command import ROOT, lmsweep_here
from tests.support.made_up_results import H100, H200, Attempts, config, gpu, kernel


def test_the_tooltip_of_a_timeline_names_the_lines_that_hold_the_most_memory() -> None:
    figure = next(iter(timelines(Results(stores()["h200-memory"]))))
    of_category = {trace["name"]: trace["hovertemplate"] for trace in figure.traces}
    assert "optimize training_step.py:88" in of_category["optimizer_state"]
    assert "GiB from __init__ model.py:" in of_category["weights"] and "at the peak" not in of_category["total"]


def test_an_icicle_divides_a_step_into_phases_parts_and_kernels_that_fill_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "results"))
    attempt = Attempt.begin(Trial(config=config(), workloads=("profile",), sweep="made-up"))
    kernels = [
        kernel("backward of softmax", "b", 2 * 3e-3),
        kernel("softmax", "a", 2 * 1e-3),
        kernel("feed_forward", "g", 2 * 2e-3),
        kernel("softmax", "b", 2 * 5e-4),
        kernel("softmax", "c", 2 * 1e-6),
        kernel("softmax", "d", 2 * 1e-6),
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


BLINDNESS = {
    "none": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""What each kind of colour blindness makes of linear RGB (Machado, Oliveira and Fernandes, 2009, severity 1)."""


def cielab(linear: Any) -> Any:
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    xyz = np.clip(linear, 0, 1) @ np.transpose(to_xyz) / [0.95047, 1, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


@pytest.mark.parametrize("kind", BLINDNESS)
@pytest.mark.parametrize("scheme", [0, 1])
def test_the_colours_of_lines_are_far_apart_for_every_eye(kind: str, scheme: int) -> None:
    css = (ROOT / "analysis/tables/page.css").read_text()
    pairs = re.findall(r"--line-\d: light-dark\(#(\w{6}), #(\w{6})\)", css)
    assert len(pairs) == COLOURS
    bytes_ = np.array([list(bytes.fromhex(pair[scheme])) for pair in pairs]) / 255
    linear = np.where(bytes_ <= 0.04045, bytes_ / 12.92, ((bytes_ + 0.055) / 1.055) ** 2.4)
    seen = cielab(linear @ np.transpose(BLINDNESS[kind]))
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)[np.triu_indices(COLOURS, 1)]
    assert apart.min() > 25  # 2.3 is a just noticeable difference


def test_lines_of_one_panel_differ_in_colour_and_in_dash() -> None:
    points = pd.DataFrame(
        [(length, name, length * place) for length in (128, 256) for place, name in enumerate("abcdefg", 1)],
        columns=["context_length", "option", "y"],
    )
    points = points.assign(low=points["y"], high=points["y"], limit=np.nan, text="", cell=range(len(points)))
    chart: Any = chart_of(points, ["context_length", "option"], title="y", unit="ms", colour="option")
    assert chart["x"] == "context_length" and chart["ticks"] == [128, 256]
    looks = [(trace["colour"], trace["dash"]) for trace in chart["traces"]]
    assert len({colour for colour, _ in looks}) == 7 and len({dash for _, dash in looks}) == 4
    assert all(one[1] != other[1] for one, other in pairwise(looks))


def test_a_line_is_named_after_what_is_switched_on_and_not_after_how_long_it_was_measured() -> None:
    lines = [
        ("fp32", "none", "none", "naive", 10), ("fp32", "block", "none", "naive", 10),
        ("fp32", "none", "block", "naive", 10), ("bf16", "none", "none", "sdpa", 5),
    ]  # fmt: skip
    names = ["precision", "compile", "checkpointing", "attention", "measure_steps"]
    points = pd.DataFrame(
        [(length, *line, 1.0) for length in (128, 256) for line in lines], columns=["context_length", *names, "y"]
    )
    points = points.assign(low=points["y"], high=points["y"], limit=np.nan, text="", cell=range(len(points)))
    chart: Any = chart_of(points, ["context_length", *names], title="y", unit="ms")
    assert {trace["name"] for trace in chart["traces"]} == {
        "fp32, naive", "fp32, compile block, naive", "fp32, checkpointing block, naive", "bf16, sdpa",
    }  # fmt: skip
    assert chart["legend"] == "precision, attention"


def test_a_table_of_the_page_is_what_pandas_writes_with_all_keys_in_each_row() -> None:
    table = presets()["end-to-end"].make(Results("h100-cs336-2025"))
    with pd.option_context("styler.sparse.index", False):
        of_pandas = re.sub(r"(<t[hd][^>]*?) >", r"\1>", render(table, "html"))
    assert html_of(sheet_of(table, HTML)) == of_pandas


def test_a_range_of_the_users_model_has_a_name_with_points_as_its_module(attempts: Attempts, tmp_path: Path) -> None:
    values = {f"{phase}.kernel_time": (0.1,) for phase in ("h.0.attn", "backward of h.0.attn")}
    attempts.ok(config(), values, workload="profile")
    lmsweep_here("report", attempts.store.location, "-o", str(tmp_path / "page.html"))
    data = (tmp_path / "page.html").read_text("utf-8")
    assert '"h.0.attn.kernel_time":{"result"' in data and '"backward of h.0.attn.kernel_time":{"result"' in data
    assert "100 [" in lmsweep_here("table", attempts.store.location, "--value", "h.0.attn.kernel_time")


def test_full_circles_are_the_front_and_the_line_joins_the_best_in_what_is_shown(attempts: Attempts) -> None:
    """A larger batch is faster per token and takes more memory; checkpointing saves memory for time; two devices."""
    cells = product(((H100, 1.15), (H200, 1.0)), (2, 8), ("none", "block"), ("naive", "sdpa"))
    for (device, slower), batch, checkpointing, attention in cells:
        again = 1.3 if checkpointing == "block" else 1.0
        seconds = slower * again * (0.004 * batch + 0.006) * (1.4 if attention == "naive" else 1.0)
        each = (1.5e9 if checkpointing == "block" else 3e9) * (1.8 if attention == "naive" else 1.0)
        one = gpu(batch_size=batch, checkpointing=checkpointing, attention=attention)
        attempts.step(one, seconds, 0.9 * seconds, within=1e-5, fingerprint=device)
        attempts.peak(one, 2e9 + batch * each, fingerprint=device)
    memory, money = pareto.fronts(Results(attempts.store, prices=parse_prices(["H100=2", "H200=3"])))
    assert memory.title == "speed and memory of small, context_length 256, mode train_step"
    for figure in (memory, money):
        *devices, line = figure.traces
        shown = [
            (x, y, trace["name"].endswith("on the front"))
            for trace in devices
            for x, y in zip(trace["x"], trace["y"], strict=True)
        ]
        assert len(shown) == 16
        assert list(line["x"]) == sorted(line["x"]) and list(line["y"]) == sorted(line["y"])
        for x, y, is_full in shown:
            beaten = any((a >= x and b < y) or (a > x and b <= y) for a, b, _ in shown)
            assert beaten or is_full
            assert ((x, y) in zip(line["x"], line["y"], strict=True)) == (not beaten)
    assert memory.traces[0]["lines"][0][1].startswith("peak ")


def test_without_memory_and_without_prices_there_is_no_front(attempts: Attempts) -> None:
    for batch in (1, 2, 4):
        attempts.step(gpu(batch_size=batch), 0.1)
    assert list(pareto.fronts(Results(attempts.store))) == []
    (money,) = pareto.fronts(Results(attempts.store, prices=parse_prices(["H200=3"])))
    assert money.title.startswith("speed and money")
