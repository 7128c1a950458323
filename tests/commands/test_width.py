"""On a terminal no line is wider than it: neither tables, nor sentences, nor refusals. Commands stay whole."""

import re
import sys

import pytest

from lmsweep.orchestrator.terminal import folded
from tests.support.command import answer_here

ACROSS = ("--across", "device_name")
ANSI = re.compile(r"\x1b\[[0-9;]*m")

QUICK = (
    ("table", "--list-presets"),
    ("compare", "h100-devices", "h200-devices"),
)
SLOW = (
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


def widest(words: tuple[str, ...], width: int) -> list[str]:
    """The lines that are too long, of both streams; commands to paste stay in one line."""
    done = answer_here(*words, terminal=True, COLUMNS=str(width), LINES="30", PAGER="", TERM="xterm")
    lines = ANSI.sub("", done.stdout + done.stderr).splitlines()
    assert lines and done.returncode in (0, 2)
    return [
        line for line in lines if len(line) > width and not line.startswith(("  lmsweep table", f"  {sys.executable}"))
    ]


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_no_line_is_wider_than_the_terminal(words: tuple[str, ...]) -> None:
    assert widest(words, 80) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("words", SLOW, ids=" ".join)
def test_no_line_of_these_is_wider_than_the_terminal(words: tuple[str, ...], width: int) -> None:
    assert widest(words, width) == []


def test_words_are_folded_and_a_command_stays_whole() -> None:
    long = "lmsweep run does-compile-pay.yaml --store s3://my-bucket/results --set precision=bf16"
    text = f"2 trials did not fit into 30m and were left out. To resume: {long}"
    assert folded(text, 40).splitlines() == [
        "2 trials did not fit into 30m and were",
        "left out. To resume:",
        f"  {long}",
    ]
    assert folded(text, 200) == text


def test_lines_of_code_are_not_folded() -> None:
    code = f"    {'x' * 30} = 1"
    assert folded(f"In Python:\n\n{code}", 20) == f"In Python:\n\n{code}"


@pytest.mark.parametrize(
    "command", ["/a/long/folder/.venv/bin/python3 -m compileall -q /another/folder", "sudo swapoff -a"]
)
def test_a_command_of_the_doctor_stays_whole(command: str) -> None:
    assert folded(f"torch bytecode: Every process compiles torch's source again. Run once: {command}", 40).endswith(
        f"\n  {command}"
    )
