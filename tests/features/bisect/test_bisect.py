"""`lmsweep bisect` over releases that these tests write as wheels: an end that fails, the search, its explanation."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from tests.support.command import answer_here, lmsweep
from tests.support.wheels import write_wheel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MEASURE = """
from lmsweep.trials.results.measurement import Measurement


def measure(bench):
    import speedy

    yield Measurement(phase="step", metric="size", unit="B", samples=(float(speedy.SIZE),) * 10)
"""


def asked(folder: Path, workload: str = "mine:measure", *, budget: str | None = None, **fixed: object) -> list[object]:
    """The command, without the releases, for a sweep of one trial."""
    grid = {"workloads": [workload], "fixed": {"device": "cpu", **fixed}}
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({"name": "one", "grids": [grid]} | ({"budget": budget} if budget else {})))
    words = ["bisect", path, "--package", "speedy", "--trust", "speedy", "--code", folder, "--store", folder / "store"]
    return [*words, "--processes", "1"]


def test_bisect_measures_nothing_if_an_end_cannot_be_installed(wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MEASURE)
    done = answer_here(*asked(tmp_path), "--good", "9.9", "--bad", "1.0")
    assert done.returncode == 2 and "[1/" not in done.stdout
    said = done.stderr.splitlines()[-1]
    assert said.startswith("lmsweep: speedy==9.9 is an end of the search: the environment speedy==9.9 cannot be made: ")
    assert said.endswith("; name another release by --good, --bad or --releases")
    assert not list((tmp_path / "store").rglob("*.parquet"))


def test_bisect_measures_the_ends_and_halves_and_resumes_from_the_store(wheels: Path, tmp_path: Path) -> None:
    for version, size in (("1.1", 1000), ("1.2", 1500)):
        write_wheel(wheels, "speedy", version, f"SIZE = {size}\n")
    (tmp_path / "mine.py").write_text(MEASURE)
    words = asked(tmp_path, budget="1s")  # of one run, not of a search
    done = lmsweep(*words, "--good", "1.0", "--bad", "1.2")  # and those that the index has between: not 2.0
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The change came with speedy==1.2, after speedy==1.1: 1.5x, more." in done.stdout
    measured = {row["software"] for row in pq.read_table(tmp_path / "store" / "measurements").to_pylist()}
    assert len(measured) == 3
    again = lmsweep(*words, "--releases", "1.0,1.1,1.2")
    assert "The change came with speedy==1.2" in again.stdout and "[1/" not in again.stdout, "nothing is measured again"
    same = lmsweep(*words, "--releases", "1.0,1.1")
    assert "speedy==1.0 and speedy==1.1 do not differ beyond the noise" in same.stdout


NET = """
import speedy
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        for _ in range(int(speedy.SIZE)):
            x = self.first(x)
        return self.second(x)

class Net(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.tokens, self.head = nn.Embedding(vocab_size, d_model), nn.Linear(d_model, vocab_size)
        self.blocks = nn.ModuleList([Block(d_model)])

    def forward(self, tokens):
        return self.head(self.blocks[0](self.tokens(tokens)))
"""


def test_bisect_explains_the_change_by_its_part_of_the_model(wheels: Path, tmp_path: Path) -> None:
    for version, size in (("3.0", 1), ("3.1", 1), ("3.2", 60)):
        write_wheel(wheels, "speedy", version, f"SIZE = {size}\n")
    (tmp_path / "net.py").write_text(NET)
    model = {"name": "net", "call": "net.py:Net", "d_model": 256, "blocks": "blocks"}
    words = asked(tmp_path, "timing", model=model, vocab_size=64, context_length=64, batch_size=8)
    done = lmsweep(*words, "--releases", "3.0,3.1,3.2", "--explain", "--value", "step.time")
    assert done.returncode == 0, done.stdout + done.stderr
    if "on a busy machine" in done.stdout and "The change came with" not in done.stdout:
        pytest.skip("the host is too busy to tell releases apart")
    assert "The change came with speedy==3.2, after speedy==3.1" in done.stdout, done.stdout
    assert re.search(r"^first: blocks\.\*\.first (forward|backward): .* -> \d+ calls, \+", done.stdout, re.MULTILINE)
