"""What of the user's folder is asked of git, without running what it names, and what travels to a cluster."""

import os
import subprocess
from pathlib import Path

import pytest

from lmsweep.trials.code import digest as digest_module
from lmsweep.trials.code.digest import code_digest, code_folder, pack, unpack
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.reference import Code
from tests.support.command import lmsweep_here

CONFIG = TrialConfig(step="mine.step:make")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A code folder with a package, files that git ignores, a virtual environment, and a link out of it."""
    folder = tmp_path / "code"
    package = folder / "mine"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "step.py").write_text("from mine import made\ndef make(): ...\n")
    (package / "made.py").write_text("version = 3\n")
    (package / "made.txt").touch()
    (folder / ".gitignore").write_text("made.*\nresults/\n")
    (folder / "results").mkdir()
    (folder / "results" / "large.bin").write_bytes(bytes(1000))
    (folder / "env").mkdir()
    (folder / "env" / "pyvenv.cfg").touch()
    (folder / "env" / "module.py").touch()
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    return folder


def copied(folder: Path) -> Path:
    """The folder as another machine gets it."""
    there = folder.parent / "there"
    unpack(pack(Code(folder=str(folder)), CONFIG.references), there)
    return there


@pytest.mark.parametrize("under_git", [True, False])
def test_files_that_git_would_keep_and_all_sources_of_the_named_package_travel(folder: Path, under_git: bool) -> None:
    if under_git:
        subprocess.run(["git", "init", "--quiet", folder], check=True)
    there = copied(folder)
    files = {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()}
    assert files == {".gitignore", "mine/__init__.py", "mine/step.py", "mine/made.py"}


def test_the_copy_has_the_digest_of_the_folder(folder: Path) -> None:
    there = copied(folder)
    digest = code_digest(CONFIG.references, Code(folder=str(folder)))
    assert digest == code_digest(CONFIG.references, Code(folder=str(there)))
    (folder / "mine" / "made.py").write_text("version = 4\n")
    assert digest != code_digest(CONFIG.references, Code(folder=str(folder)))


def test_a_folder_too_large_is_refused_with_its_largest_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_module, "MAX_BYTES", 2_000_000)
    (folder / "data.bin").write_bytes(bytes(3_000_000))
    with pytest.raises(RequestError, match=r"at most 2 MB may; the largest files are data.bin \(3 MB\).*\.gitignore"):
        pack(Code(folder=str(folder)), CONFIG.references)


PROGRAMS = (
    *("core.fsmonitor", "core.pager", "core.sshCommand", "core.askPass", "core.alternateRefsCommand", "diff.external"),
    *("diff.evil.command", "diff.evil.textconv", "merge.evil.driver", "uploadpack.packObjectsHook"),
    *("filter.evil.clean", "filter.evil.process", "filter.evil.smudge"),
)
SETTINGS = dict.fromkeys(PROGRAMS, "{}") | dict.fromkeys(("credential.helper", "alias.status", "alias.ls-files"), "!{}")
SETTINGS |= {"filter.evil.required": "true", "remote.origin.promisor": "true", "protocol.ext.allow": "always"}
SETTINGS |= {"remote.origin.url": "ext::{}"}
HOOKS = ("post-index-change", "fsmonitor-watchman", "post-checkout", "reference-transaction", "query-watchman")


def git(repository: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, "-C", str(repository), *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a submodule; in both, every setting that names a program names one that writes a log."""
    called, evil = tmp_path / "called", tmp_path / "evil"
    evil.write_text(f'#!/bin/sh\necho "$0 $@" >> {called}\ncat\n')
    evil.chmod(0o755)
    inner, repository = tmp_path / "inner", tmp_path / "code"
    for one in (inner, repository):
        one.mkdir()
        git(one, "init", "--quiet")
        (one / "mine.py").write_text("def attend(q, k, v, is_causal): ...\n")
        (one / "other.py").write_text("x = 1\n")
        git(one, "add", ".")
        git(one, "commit", "--quiet", "-m", "first")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(repository, "commit", "--quiet", "-m", "second")
    for one, place in ((repository, repository / ".git"), (repository / "sub", repository / ".git/modules/sub")):
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
    return repository


def test_asking_for_the_state_of_an_untrusted_folder_runs_nothing_of_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = code_folder(repository)
    assert code.revision and code.dirty
    assert pack(code, ("mine:attend",))
    fixed = "{attention: 'mine:attend', d_model: 16}"
    (repository / "sweep.yaml").write_text(f"name: s\ngrids: [{{workloads: [attention], fixed: {fixed}}}]")
    monkeypatch.chdir(repository)
    assert "1 to run" in lmsweep_here("plan", "sweep.yaml", "--no-predict", "--code", ".")
    git(repository, "config", "filter.p=q.clean", str(repository.parent / "evil"))  # which `git -c` cannot name
    (repository / ".gitattributes").write_text("*.py filter=p=q\n")
    assert code_folder(repository).dirty is None
    assert not (repository.parent / "called").exists(), (repository.parent / "called").read_text()


def test_a_file_that_was_only_touched_is_no_change(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "mine.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    os.utime(tmp_path / "mine.py", (1, 1))
    assert code_folder(tmp_path).dirty is False
    (tmp_path / "mine.py").write_text("x = 2\n")
    assert code_folder(tmp_path).dirty is True
