"""Words that an installed package adds to the fields model, attention and optimizer by entry points."""

from pathlib import Path

import pandas as pd
import pytest

from tests.support.command import PYTHONPATH, answer_here, lmsweep
from tests.support.installed import install

ATTEND = """
from torch.nn import functional

def attend(q, k, v, is_causal):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
"""
SWEEP = """
name: words
grids:
  - workloads: [timing]
    axes: {model: [tiny_net, tiny]}
    fixed: {optimizer: descent, vocab_size: 50, context_length: 8, batch_size: 1, warmup_steps: 1, measure_steps: 2}
  - workloads: [attention]
    fixed: {attention: plain, d_model: 16, num_heads: 1, context_length: 16, warmup_steps: 1, measure_steps: 2}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep, and `site`, in which three packages are installed as a package manager would."""
    folder = tmp_path_factory.mktemp("registered")
    zoo = Path(__file__).parent / "folder" / "zoo.py"
    install(folder / "site", "lmsweep.models", "tiny_net", zoo.read_text(), "Linear")
    install(folder / "site", "lmsweep.attention", "plain", ATTEND, "attend")
    descent = "from torch.optim import SGD\n\nclass Descent(SGD): ...\n"
    install(folder / "site", "lmsweep.optimizers", "descent", descent, "Descent")
    (folder / "sweep.yaml").write_text(SWEEP)
    return folder


@pytest.mark.slow
def test_a_word_of_an_installed_package_is_run_under_its_name_and_version(folder: Path) -> None:
    path = f"{folder / 'site'}:{PYTHONPATH}"
    done = lmsweep("run", folder / "sweep.yaml", "--store", folder / "store", PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    stored = pd.read_parquet(folder / "store" / "measurements")
    assert {*stored["status"]} == {"ok"}
    assert {*stored["model"].dropna()} == {"tiny_net", "tiny"}
    assert {*stored["optimizer"]} == {"descent:Descent", "adamw_fused"}
    assert stored["code_digest"].notna().all()

    again = lmsweep("plan", folder / "sweep.yaml", "--store", folder / "store", PYTHONPATH=path)
    assert "3 trials, 0 to run" in again.stdout
    metadata = folder / "site" / "descent-1.0.dist-info"
    newer = metadata.rename(metadata.with_name("descent-1.1.dist-info")) / "METADATA"
    newer.write_text(newer.read_text().replace("1.0", "1.1"))
    updated = lmsweep("plan", folder / "sweep.yaml", "--store", folder / "store", PYTHONPATH=path)
    assert "3 trials, 2 to run" in updated.stdout, "another version is other code"


def test_where_the_package_is_not_installed_the_word_is_unknown(folder: Path) -> None:
    done = answer_here("plan", folder / "sweep.yaml", "--store", folder / "store")
    assert done.returncode == 2
    assert "'tiny_net' is not a model" in done.stderr
    assert "'descent' is not an optimizer" in done.stderr
