"""`lmsweep table --plot`: bars whose lengths are the numbers."""

from pathlib import Path

from lmsweep.analysis import load, pivot
from lmsweep.analysis.tables.bar_chart import bar_charts
from lmsweep.analysis.tables.terminal_table import terminal_text
from tests.support.command import answer_here, lmsweep_here
from tests.support.made_up_results import Attempts, config, samples


def test_a_bar_is_as_long_as_its_number_and_a_failure_says_its_status(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "results")
    for context, seconds in ((256, 0.010), (512, 0.020), (1024, 0.040)):
        attempts.ok(config(context_length=context), {"step.time": samples(seconds, seconds / 100)})
    attempts.failed(config(context_length=2048), "oom")
    table = pivot(load(attempts.store), rows=["context_length"], cols=[], values=["step.time"], where={})
    (chart,) = bar_charts(table)
    text = terminal_text(chart, width=60).plain
    assert text.startswith("step.time, bars from 0\n") and "device_name NVIDIA H200" in " ".join(text.split())
    lines = text.splitlines()[-4:]
    assert [line.split()[:2] for line in lines] == [["256", "10"], ["512", "20"], ["1024", "40"], ["2048", "oom"]]
    lengths = [line.count("█") for line in lines]
    assert lengths[:2] == [lengths[2] // 4, lengths[2] // 2] and lengths[2] == 28 and lengths[3] == 0
    assert max(map(len, text.splitlines())) <= 60

    assert "█" in lmsweep_here("table", attempts.store.location, "--plot")
    done = answer_here("table", attempts.store.location, "--plot", "--format", "csv")
    assert done.returncode == 2 and "--plot is for" in done.stderr
