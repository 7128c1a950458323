"""The commands of the pages, run: those of the tutorial in order, and those that read shipped stores."""

import re
import shlex
from pathlib import Path

import pytest

from tests.docs.test_docs import PAGES, ROOT, Snippet, blocks, commands
from tests.support.command import lmsweep, lmsweep_here

NEEDS_A_GPU = ("lmsweep run devices --store h200",)
"""Commands of the tutorial that need hardware."""


def shipped() -> list[Snippet]:
    """The commands that read only stores which ship with lmsweep."""
    everywhere = [snippet for page in PAGES for snippet in commands(page) if not snippet.is_mention]
    return [one for one in everywhere if re.search(r"^lmsweep \w+ (analysis/reference/)?h[12]00-", one.text)]


@pytest.mark.slow
@pytest.mark.parametrize("snippet", shipped(), ids=str)
def test_a_command_about_a_shipped_store_ends_well(
    snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "analysis").symlink_to(ROOT / "analysis")
    assert lmsweep_here(*shlex.split(snippet.text)[1:])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_commands_of_the_tutorial_run_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (sweep,) = (block for block in blocks("yaml") if block.page == "tutorial.md")
    (tmp_path / "does-compile-pay.yaml").write_text(sweep.text)
    ran = 0
    for snippet in commands(ROOT / "docs" / "tutorial.md"):
        if not snippet.is_mention and snippet.text not in NEEDS_A_GPU:
            # On a busy machine few of the 8 trials fit into 45 s, and the tables need both precisions.
            more = ["--set", "context_length=32", "--budget", "4m"] if snippet.text == "lmsweep run quick" else []
            done = lmsweep(*shlex.split(snippet.text)[1:], *more)
            assert done.returncode == 0, f"{snippet.text}\n{done.stdout}{done.stderr}"
            ran += 1
    assert ran >= 9 and (tmp_path / "report.html").exists() and (tmp_path / "devices.html").exists()
