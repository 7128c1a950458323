"""Counts of results by status and by flag."""

from collections import Counter

import pytest

from lmsweep import analysis
from lmsweep.analysis.metrics.status import count_words, counts, flag_counts
from lmsweep.analysis.tables.text_table import flag_lines
from lmsweep.trials.results.outcome import Flag
from tests.support.made_up_results import LAPTOP, Attempts, config


def test_results_are_counted_by_sweep_and_device_as_a_plan_counts_them(attempts: Attempts) -> None:
    attempts.failed(config(), "error")
    attempts.ok(config(), {"forward.time": (1.0,), "step.time": (1.0,)})
    attempts.ok(config(context_length=512), {"step.time": (1.0,)})
    attempts.failed(config(context_length=512), "timeout")
    attempts.ok(config(context_length=1024), {"step.time": (1.0,)})
    attempts.failed(config(context_length=1024), "oom")
    attempts.failed(config(context_length=2048), "error")
    attempts.failed(config(context_length=2048), "timeout")
    attempts.ok(config(), {"step.time": (1.0,)}, workload="noop")
    attempts.ok(config(), {"step.time": (1.0,)}, fingerprint=LAPTOP)
    table = counts(analysis.load(attempts.store, pooled=False))
    assert list(table.columns) == ["sweep", "device_name", "ok", "oom", "timeout"]
    table = table.set_index(["sweep", "device_name"])
    assert table.loc[("made-up", "NVIDIA H200")].to_dict() == {"ok": 3, "oom": 1, "timeout": 1}
    assert table.loc[("made-up", "Laptop CPU (8 cores)")].to_dict() == {"ok": 1, "oom": 0, "timeout": 0}
    assert count_words(analysis.load(attempts.store, pooled=False)).splitlines() == [
        "sweep made-up on Laptop CPU (8 cores): 1 ok",
        "sweep made-up on NVIDIA H200: 3 ok, 1 oom, 1 timeout",
    ]
    assert table.sum().to_dict() == Counter(one.status for one in attempts.store.outcomes().values())


@pytest.fixture
def flagged(attempts: Attempts) -> Attempts:
    """Three results: one without flags, one with an outlier, one with an outlier on a throttled GPU."""
    times = {"forward.time": (1.0, 1.1), "step.time": (1.0, 1.1)}
    attempts.ok(config(context_length=128), times)
    attempts.ok(config(context_length=256), times, flags=(Flag.OUTLIERS,))
    attempts.ok(config(context_length=512), times, flags=(Flag.OUTLIERS, Flag.THROTTLED))
    return attempts


def test_a_line_of_each_flag_counts_its_results(flagged: Attempts):
    frame = analysis.load(flagged.store, pooled=False)
    assert flag_counts(frame) == {Flag.OUTLIERS: 2, Flag.THROTTLED: 1}
    assert flag_lines(flag_counts(frame)) == [
        "outliers (2): Some samples lie far from the others.",
        "throttled (1): The GPU lowered its clocks because of heat or its power supply.",
    ]


def test_the_flags_of_an_older_attempt_do_not_count(flagged: Attempts):
    flagged.ok(config(context_length=512), {"step.time": (1.0, 1.1)})
    assert flag_counts(analysis.load(flagged.store, pooled=False)) == {Flag.OUTLIERS: 1}
