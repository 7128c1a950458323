"""Long output goes through the pager only where a person can answer it."""

import os
import pty
import select
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="setsid gives the command a terminal of its own")

QUESTION, ANSWER = b"\x1b[6n", b"\x1b[12;1R"


def printed_on_terminal(*, answers: bool, types: bytes = b"", **environment: str) -> bytes:
    """What a long table prints on a terminal of ten lines, which a person sees if it `answers`."""
    ours, theirs = pty.openpty()
    os.write(ours, types)
    settings = {"LINES": "10", "TERM": "xterm", "PAGER": "sh -c 'echo the pager; cat'"} | environment
    command = ["setsid", "--ctty", sys.executable, "-m", "lmsweep.orchestrator.cli", "table", "--list-presets"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | settings)
    os.close(theirs)
    text, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline and select.select([ours], [], [], 60)[0]:
        try:
            text += os.read(ours, 4096)
        except OSError:  # how Linux says that the last process has closed its side
            break
        if answers and QUESTION in text:
            os.write(ours, ANSWER)
            answers = False
    os.close(ours)
    assert process.wait(10) == 0, text
    assert b"memory" in text
    return text


def test_a_terminal_that_a_person_sees_gets_the_pager() -> None:
    assert b"the pager" in printed_on_terminal(answers=True)


def test_a_terminal_that_nobody_sees_gets_the_output_itself() -> None:
    """As `ray exec`, `ssh -tt` and `script` make one: less would wait there for ever."""
    assert b"the pager" not in printed_on_terminal(answers=False)


@pytest.mark.parametrize(
    "how",
    [*(pytest.param(how, marks=pytest.mark.slow) for how in ({"PAGER": ""}, {"TERM": "dumb"})), {"types": b"ls\n"}],
    ids=str,
)
def test_no_pager_where_it_is_not_wanted_or_cannot_work_or_would_swallow_what_was_typed_ahead(how) -> None:
    text = printed_on_terminal(answers=True, **how)
    assert b"the pager" not in text and QUESTION not in text
