"""What of the code folder travels to the other machines of a cluster."""

import subprocess
from pathlib import Path

import pytest

from lmsweep.trials.code import digest as digest_module
from lmsweep.trials.code.digest import code_digest, pack, unpack
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.reference import Code

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
def test_the_files_that_git_would_keep_and_all_sources_of_the_named_package_travel(
    folder: Path, under_git: bool
) -> None:
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


def test_a_folder_that_is_too_large_is_refused_with_its_largest_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest_module, "MAX_BYTES", 2_000_000)
    (folder / "data.bin").write_bytes(bytes(3_000_000))
    with pytest.raises(RequestError, match=r"at most 2 MB may; the largest files are data.bin \(3 MB\).*\.gitignore"):
        pack(Code(folder=str(folder)), CONFIG.references)
