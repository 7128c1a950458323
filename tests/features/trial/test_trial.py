"""`lmsweep trial`: one trial in the command's own process, which nothing else would end."""

import re
from pathlib import Path

import pandas as pd
import pytest

from tests.support.clean_process import program_in_clean_process
from tests.support.command import answer_here, start

pytestmark = pytest.mark.usefixtures("one_core")

TINY = ("model=tiny", "vocab_size=100", "batch_size=1", "context_length=16", "warmup_steps=1")


def test_a_trial_that_cannot_fit_is_refused_in_a_sentence_before_it_starts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ("model=tiny", "context_length=256", "batch_size=10000000", "--store", tmp_path / "store")
    done = answer_here("trial", *words)
    exceeds = r"trial: its predicted peak, \d{4,} GiB in backward, exceeds the [\d.]+ GiB of this host \(.*\); "
    assert done.returncode == 2 and re.search(f"{exceeds}--no-predict runs it anyway", done.stderr), done.stderr
    assert not (tmp_path / "store" / "measurements").exists()


@pytest.mark.slow  # a running trial says so after ten seconds
def test_a_trial_says_once_elsewhere_than_on_a_terminal_that_it_runs_and_ends_at_its_timeout(tmp_path: Path) -> None:
    words = (*TINY, "measure_steps=10000000", "workloads=noop,timing", "timeout_seconds=13", "--no-predict")
    hanging = start("trial", *words, "--store", tmp_path / "late")
    out, err = hanging.communicate(timeout=120)
    assert hanging.returncode == 1, out + err
    assert len(re.findall(r"^noop, timing: [\d.]+ m?s of at most 13\.0 s, .* of memory$", err, re.MULTILINE)) == 1, err
    assert "trials/workloads/timing.py" in err, "the stack says where it was"
    assert "ended when its time was up: timeout_seconds is 13" in out
    rows = pd.read_parquet(tmp_path / "late" / "measurements").drop_duplicates("workload")
    assert dict(zip(rows["workload"], rows["status"], strict=True)) == {"noop": "ok", "timing": "timeout"}


WATCHED = """
import re, time
from lmsweep.orchestrator.features.trial import watchdog
watchdog.PATIENCE = 0.5
with watchdog.Watchdog(seconds=0.6, end=lambda status, reason: print(status, flush=True)):
    {body}
print("came to its end")
"""


@pytest.mark.parametrize(
    ("body", "code", "said", "stack"),
    [
        ("time.sleep(0.1)", 0, "came to its end", ""),
        ("time.sleep(60)", 1, "timeout", '"<string>", line 6'),
        # What never lets go of Python's lock has no words, but ends, and its stack is there.
        ("re.match('(a+)+$', 60 * 'a' + 'b')", 1, "", "Timeout"),
        # The rows of its end cannot be stored.
        ("print = None; watchdog.PATIENCE = 60; time.sleep(3); exit(5)", 1, "", "TypeError"),
        # Somebody looks at it: the clock stands still.
        ("exec('time.sleep(1.5)', {'__name__': 'pdb', 'time': time})", 0, "came to its end", ""),
    ],
)
def test_the_watchdog_lets_a_trial_within_its_limits_finish(
    body: str, code: int, said: str, stack: str, tmp_path: Path
) -> None:
    done = program_in_clean_process(WATCHED.format(body=body), tmp_path)
    assert (done.returncode, done.stdout.strip()) == (code, said), done.stderr
    assert stack in done.stderr
