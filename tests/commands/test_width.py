"""On a terminal no line is wider than it: neither tables, nor sentences, nor refusals. Commands stay whole."""

import re
import sys

import pytest

from lmsweep.orchestrator.terminal import folded
from tests.support.command import answer_here

ACROSS = ("--across", "device_name")
ANSI = re.compile(r"\x1b\[[0-9;]*m")

FEW = (("table", "--list-presets"), ("compare", "h100-devices", "h200-devices"))
MANY = (
    *FEW,
    ("sweeps",),
    ("best", "h200-best-2.7b", "--no-predict"),
    ("best", "h100-devices", "--for", "H200", "--with", "h200-devices"),
    ("table", "h100-devices", "--preset", "nothing"),
    ("table", "h200-end-to-end", "--plot"),
    ("table", "h200-profile"),
    ("compare", "h100-devices", "h200-devices", *ACROSS),
    ("compare", "h200-end-to-end", "--with", "published"),
    ("compare", "h100-devices", "h200-devices", "--environment"),
    ("doctor",),
    ("plan", "full", "--for", "8xH100", "--no-predict", "--price", "H100=2.5"),
    ("plan", "quick", "--for", "H100", "--max-batch", "--set", "context_length=128", "--set", "device=cuda"),
    ("trial", "model=tiny", "context_length=16", "measure_steps=3", "batch_size=1"),
)


@pytest.mark.parametrize(
    ("words", "width"),
    [
        pytest.param(words, width, marks=() if words in FEW and width == 80 else pytest.mark.slow)
        for words in MANY
        for width in (80, 100)
    ],
)
def test_no_line_is_wider_than_the_terminal_but_those_of_commands_to_paste(words: tuple[str, ...], width: int) -> None:
    done = answer_here(*words, terminal=True, COLUMNS=str(width), LINES="30", PAGER="", TERM="xterm")
    lines = ANSI.sub("", done.stdout + done.stderr).splitlines()
    assert lines and done.returncode in (0, 2)
    wider = [line for line in lines if len(line) > width]
    assert [line for line in wider if not line.startswith(("  lmsweep table", f"  {sys.executable}"))] == []


def test_words_are_folded_and_commands_and_code_stay_whole() -> None:
    long = "lmsweep run does-compile-pay.yaml --store s3://my-bucket/results --set precision=bf16"
    text = f"2 trials did not fit into 30m and were left out. To resume: {long}"
    assert folded(text, 40).splitlines() == [
        "2 trials did not fit into 30m and were",
        "left out. To resume:",
        f"  {long}",
    ]
    code = f"In Python:\n\n    {'x' * 60} = 1"
    assert (folded(text, 200), folded(code, 40)) == (text, code)
    for command in ("/a/long/folder/.venv/bin/python3 -m compileall -q /another/folder", "sudo swapoff -a"):
        assert folded(f"{50 * 'words '}Run once: {command}", 40).endswith(f"\n  {command}")
