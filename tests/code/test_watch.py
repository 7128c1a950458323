"""`lmsweep run --watch` measures again at every save, says what changed, and survives a mistake."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.support.command import start

FLASH = """
import math

import torch


def attend(q, k, v, is_causal):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ v
"""
SWEEP = """
name: loop
grids:
  - workloads: [attention]
    axes: {attention: [sdpa, "./flash.py:attend"]}
    fixed: {d_model: 16, context_length: 32, batch_size: 1, warmup_steps: 1, measure_steps: 10}
"""


@pytest.mark.slow
def test_every_save_is_measured_and_compared_and_a_syntax_error_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flash = tmp_path / "flash.py"
    flash.write_text(FLASH)
    (tmp_path / "loop.yaml").write_text(SWEEP)
    process = start("run", "loop.yaml", "--code", ".", "--watch")
    said: list[str] = []
    assert process.stdout and process.stderr
    for stream in (process.stdout, process.stderr):
        threading.Thread(target=said.extend, args=(stream,), daemon=True).start()

    def wait_for(words: str, *, since: int = 0) -> str:
        deadline = time.monotonic() + 120
        while words not in "".join(said[since:]):
            assert time.monotonic() < deadline and process.poll() is None, "".join(said)
            time.sleep(0.1)
        return "".join(said[since:])

    wait_for("watching")
    assert "2 trials, 2 to run" in "".join(said)
    before = len(said)
    flash.write_text(FLASH.replace("def attend(", "def attend(("))
    wait_for("flash.py:7: SyntaxError", since=before)
    wait_for("watching", since=before)

    before = len(said)
    flash.write_text(FLASH.replace("math.sqrt(q.shape[-1])", "1.0"))
    round_two = wait_for("watching", since=before)
    assert "2 trials, 1 to run" in round_two, "sdpa stays stored"
    assert "against" in round_two and "error.output" in round_two and "disagrees" in round_two

    before = len(said)
    flash.write_text(FLASH)
    assert "0 to run" in wait_for("watching", since=before), "this state is stored already"
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) == 130
