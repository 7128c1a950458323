"""Git is asked for the state of a folder without running what the folder's configuration names."""

import os
import subprocess
from pathlib import Path

import pytest

from lmsweep.trials.code.digest import code_folder, pack
from tests.support.command import lmsweep_here

SETTINGS = {
    "core.fsmonitor": "{}",
    "core.pager": "{}",
    "core.sshCommand": "{}",
    "core.askPass": "{}",
    "core.alternateRefsCommand": "{}",
    "credential.helper": "!{}",
    "diff.external": "{}",
    "diff.evil.command": "{}",
    "diff.evil.textconv": "{}",
    "merge.evil.driver": "{}",
    "filter.evil.clean": "{}",
    "filter.evil.required": "true",
    "filter.evil.process": "{}",
    "filter.evil.smudge": "{}",
    "alias.status": "!{}",
    "alias.ls-files": "!{}",
    "uploadpack.packObjectsHook": "{}",
    "remote.origin.url": "ext::{}",
    "remote.origin.promisor": "true",
    "protocol.ext.allow": "always",
}
HOOKS = ("post-index-change", "fsmonitor-watchman", "post-checkout", "reference-transaction", "query-watchman")


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with a submodule; in both, every setting that names a program names one that writes a log."""
    called, evil = tmp_path / "called", tmp_path / "evil"
    evil.write_text(f'#!/bin/sh\necho "$0 $@" >> {called}\ncat\n')
    evil.chmod(0o755)
    inner, folder = tmp_path / "inner", tmp_path / "code"
    for one in (inner, folder):
        one.mkdir()
        git(one, "init", "--quiet")
        (one / "mine.py").write_text("def attend(q, k, v, is_causal): ...\n")
        (one / "other.py").write_text("x = 1\n")
        git(one, "add", ".")
        git(one, "commit", "--quiet", "-m", "first")
    git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(folder, "commit", "--quiet", "-m", "second")
    for one, place in ((folder, folder / ".git"), (folder / "sub", folder / ".git" / "modules" / "sub")):
        (one / ".gitattributes").write_text("*.py filter=evil diff=evil merge=evil\n")
        (place / "info").mkdir(exist_ok=True)
        (place / "info" / "attributes").write_text("*.py filter=evil\n")
        for hook in HOOKS:
            (place / "hooks").mkdir(exist_ok=True)
            (place / "hooks" / hook).write_text(evil.read_text())
            (place / "hooks" / hook).chmod(0o755)
        for name in ("mine.py", "other.py"):
            os.utime(one / name, (1, 1))  # git has to read it again
        for name, value in SETTINGS.items():
            git(one, "config", name, value.format(evil))
    called.unlink(missing_ok=True)
    return folder


def test_asking_for_the_state_of_an_untrusted_folder_runs_nothing_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = code_folder(folder)
    assert code.revision and code.dirty
    assert pack(code, ("mine:attend",))
    fixed = "{attention: 'mine:attend', d_model: 16}"
    (folder / "sweep.yaml").write_text(f"name: s\ngrids: [{{workloads: [attention], fixed: {fixed}}}]")
    monkeypatch.chdir(folder)
    assert "1 to run" in lmsweep_here("plan", "sweep.yaml", "--no-predict", "--code", ".")
    git(folder, "config", "filter.p=q.clean", str(folder.parent / "evil"))  # which `git -c` cannot name
    (folder / ".gitattributes").write_text("*.py filter=p=q\n")
    assert code_folder(folder).dirty is None
    assert not (folder.parent / "called").exists(), (folder.parent / "called").read_text()


def test_a_file_that_was_only_touched_is_no_change(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "mine.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    os.utime(tmp_path / "mine.py", (1, 1))
    assert code_folder(tmp_path).dirty is False
    (tmp_path / "mine.py").write_text("x = 2\n")
    assert code_folder(tmp_path).dirty is True
