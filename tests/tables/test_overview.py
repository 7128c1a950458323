"""`lmsweep table` of a store whose tables do not fit a screen: what was measured, and the command that shows each."""

import re
import shlex
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from lmsweep import analysis
from lmsweep.analysis import api
from tests.support.command import answer_here
from tests.support.made_up_results import Attempts, config, samples

ANSI = re.compile(r"\x1b\[[0-9;]*m")
COMMAND = re.compile(r"^  (lmsweep table .*)$", flags=re.MULTILINE)
SCREEN = 40


def screen(*words: str, width: int, terminal: bool) -> str:
    """What the command prints. It fits a screen, where a long command continues on the next line."""
    done = answer_here(*words, terminal=terminal, COLUMNS=str(width), LINES="100", TERM="xterm")
    assert done.returncode == 0, done.stderr
    shown = ANSI.sub("", done.stdout)
    lines = ANSI.sub("", done.stdout + done.stderr).splitlines()
    wraps = [line for line in lines if terminal or line.startswith("  lmsweep")]
    assert len(lines) - len(wraps) + sum(max(1, -(-cell_len(line) // width)) for line in wraps) <= SCREEN, shown
    return shown


def results_behind(shown: str, words: list[str], seen: tuple[str, ...] = (), **on: Any) -> set[tuple[str, ...]]:
    """The successful results of the tables to which the printed commands lead. Each table has one."""
    commands = COMMAND.findall(shown)
    found = set()
    for command in commands:
        assert command not in seen, "a command leads on"
        (_, *next_words) = shlex.split(command)
        found |= results_behind(screen(*next_words, **on), next_words, (*seen, command), **on)
    if not commands:
        store, *rest = words[1:]
        where = dict(text.split("=", 1) for text in rest[1::2])
        cells = api.table(store, where=where).cells
        found = {*cells.loc[cells["median"].notna(), RESULT].itertuples(index=False, name=None)}
        assert found
    return found


RESULT = ["measurement_id", "environment_id", "workload"]


def check(store: str, **on: Any) -> str:
    """The screen of the store. What it leads to is every successful result."""
    shown = screen("table", store, **on)
    frame = analysis.load(store)
    there = frame.loc[(frame["status"] == "ok") & frame["median"].notna(), RESULT]
    if COMMAND.search(shown):
        assert results_behind(shown, ["table", store], **on) == {*there.itertuples(index=False, name=None)}
    return shown


@pytest.mark.slow
@pytest.mark.parametrize(("width", "terminal"), [(80, True), (120, False)])
@pytest.mark.parametrize("store", ["h100-best-grid", "h100-published-steps", "h200-memory", "h200-x2-sharded"])
def test_the_commands_of_a_shipped_store_lead_to_all_its_results_a_screen_at_a_time(
    store: str, width: int, terminal: bool
) -> None:
    check(store, width=width, terminal=terminal)


def test_a_grid_is_cut_along_the_axis_whose_parts_fit_also_if_they_have_several_values(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    for contexts, batch in product(range(1, 13), range(1, 17)):
        seconds = {"forward.time": samples(0.1 * contexts * batch, 0.001)}
        attempts.ok(config(context_length=16 * contexts, batch_size=batch), seconds)
    shown = screen("table", str(tmp_path), width=120, terminal=False)
    assert shown.count("timing over context_length (12), batch_size (2): 24 ok") == 8
