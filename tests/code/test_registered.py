"""Words that an installed package adds to the fields model, attention and optimizer by entry points."""

from pathlib import Path

import pandas as pd
import pytest

from tests.support.command import PYTHONPATH, answer_here, lmsweep

NET = """
from torch import nn
from torch.nn import functional
from torch.optim import SGD


class Net(nn.Module):
    def __init__(self, vocab_size, width=16):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def attend(q, k, v, is_causal):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


class Descent(SGD):
    pass
"""

ENTRY_POINTS = """
[lmsweep.models]
tiny-net = registered_net.parts:Net

[lmsweep.attention]
plain = registered_net.parts:attend

[lmsweep.optimizers]
descent = registered_net.parts:Descent
"""

SWEEP = """
name: words
grids:
  - workloads: [timing]
    axes: {model: [tiny-net, tiny]}
    fixed: {optimizer: descent, vocab_size: 50, context_length: 8, batch_size: 1, warmup_steps: 1, measure_steps: 2}
  - workloads: [attention]
    fixed: {attention: plain, d_model: 16, num_heads: 1, context_length: 16, warmup_steps: 1, measure_steps: 2}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep, and `site`, in which the package is installed as a package manager would."""
    folder = tmp_path_factory.mktemp("registered")
    metadata = folder / "site" / "registered_net-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: registered_net\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (metadata / "top_level.txt").write_text("registered_net\n")
    package = folder / "site" / "registered_net"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "parts.py").write_text(NET)
    (folder / "sweep.yaml").write_text(SWEEP)
    return folder


@pytest.mark.slow
def test_a_word_of_an_installed_package_is_run_under_its_name_and_version(folder: Path) -> None:
    path = f"{folder / 'site'}:{PYTHONPATH}"
    done = lmsweep("run", folder / "sweep.yaml", "--store", folder / "store", PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    stored = pd.read_parquet(folder / "store" / "measurements")
    assert {*stored["status"]} == {"ok"}
    assert {*stored["model"].dropna()} == {"tiny-net", "tiny"}
    assert {*stored["optimizer"]} == {"registered_net.parts:Descent", "adamw_fused"}
    assert stored["code_digest"].notna().all()

    again = lmsweep("plan", folder / "sweep.yaml", "--store", folder / "store", PYTHONPATH=path)
    assert "3 trials, 0 to run" in again.stdout
    metadata = folder / "site" / "registered_net-1.0.dist-info"
    metadata.rename(metadata.with_name("registered_net-1.1.dist-info"))
    newer = metadata.with_name("registered_net-1.1.dist-info") / "METADATA"
    newer.write_text(newer.read_text().replace("1.0", "1.1"))
    updated = lmsweep("plan", folder / "sweep.yaml", "--store", folder / "store", PYTHONPATH=path)
    assert "3 trials, 3 to run" in updated.stdout, "another version is other code"


def test_where_the_package_is_not_installed_the_word_is_unknown(folder: Path) -> None:
    done = answer_here("plan", folder / "sweep.yaml", "--store", folder / "store")
    assert done.returncode == 2
    assert "'tiny-net' is not a model" in done.stderr
    assert "'descent' is not an optimizer" in done.stderr
