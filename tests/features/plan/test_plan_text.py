"""What `lmsweep plan` prints beside its table: what all trials share, and the cheapest of those of ranks."""

import json
import re
from pathlib import Path

import pytest

from tests.support.command import answer_here, lmsweep_here, write_sweep

RANKS = """
name: ranks
grids:
  - workloads: [ddp]
    axes: {context_length: [16, 256], tp: [1, 2]}
    fixed: {device: cuda, model: tiny, world_size: 2, ddp: fsdp, precision: bf16, mode: train_step}
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    (tmp_path / "ranks.yaml").write_text(RANKS)
    return tmp_path / "ranks.yaml"


def fleets(shown: str) -> list[str]:
    """The trials whose rates and dollars a plan prints."""
    return re.findall(r"^(\w{8}): exposed ", shown, re.MULTILINE)


def test_the_trials_of_ranks_whose_dollars_are_printed_are_the_cheapest(ranks: Path) -> None:
    words = ("plan", ranks, "--for", "2xH100", "--price", "H100=2.5")
    trials = json.loads(lmsweep_here(*words, "--format", "json"))["trials"]
    by_price = sorted(trials, key=lambda one: -one["expected_tokens_per_second"])
    shown = lmsweep_here(*words)
    assert fleets(shown) == [one["trial_id"][:8] for one in by_price[:3]]
    assert "1 more with several ranks: dearer, or will not fit; --format json has all" in shown
    assert len(fleets(lmsweep_here(*words, "--all"))) == len(trials) == 4


def test_a_plan_of_ranks_says_what_is_exposed_and_names_other_nodes_only_with_a_network(ranks: Path) -> None:
    """A claim about 8192 GPUs was made as if one node held them, and parts of 1e-15 ms were printed."""
    few = ("--set", "context_length=256", "--set", "tp=1")
    alone = lmsweep_here("plan", ranks, "--for", "2xH100", "--all")
    divided = re.findall(r"exposed .*gathers and sums of divided layers [\d.]+ ms", alone)
    assert len(divided) == 2 and "e-" not in "".join(line for line in alone.splitlines() if ": exposed " in line)
    whole = lmsweep_here("plan", ranks, "--for", "8xH100", "--set", "world_size=8", *few)
    several = lmsweep_here("plan", ranks, "--for", "16xH100", "--network", "400Gb", *few)
    assert "8192" not in alone + whole and "GPUs up to 8," not in whole
    for shown, count, least, most in ((alone, 4, 2, 8), (several, 1, 16, 8192)):
        said = [int(number) for number in re.findall(r"GPUs (?:up to|beyond) (\d+)", shown)]
        assert len(said) == count
        assert all(least <= number <= most for number in said)


def test_a_plan_names_below_its_title_what_all_of_its_trials_share_and_decides_time_and_memory(tmp_path: Path) -> None:
    fields = {"checkpointing": "block", "mode": "forward_backward", "attention": "naive", "context_length": 256}
    sweep = write_sweep(tmp_path, device="cuda", precision=["fp32", "bf16"], **fields)
    words = ("plan", sweep, "--for", "H100", "--no-predict")
    shown = lmsweep_here(*words)
    (line,) = (line for line in shown.splitlines() if line.startswith("device_name H100 SXM, "))
    said = dict(part.rsplit(" ", 1) for part in line.split(", ")[1:])
    assert said == {
        "model": "tiny", "vocab_size": "100", "context_length": "256", "batch_size": "1", "compile": "none",
        "checkpointing": "block", "attention": "naive", "optimizer": "adamw_fused", "mode": "forward_backward",
    }  # fmt: skip
    assert "attention naive" not in lmsweep_here(*words, "--set", "attention=naive,sdpa")


def test_a_plan_says_whose_code_it_ran_for_a_model_of_transformers(tmp_path: Path) -> None:
    """With another version, a model may be another one: its steps took 17 times as long."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    (tmp_path / "small.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 64} | sizes))
    fixed = "{device: cuda, model: 'hf:small.json', precision: bf16, context_length: 16, mode: train_step}"
    (tmp_path / "s.yaml").write_text(f"name: s\ncode: .\ngrids:\n  - workloads: [timing]\n    fixed: {fixed}\n")
    words = ("plan", tmp_path / "s.yaml", "--for", "H100", "--no-predict")
    assert f"as transformers {transformers.__version__}, installed here, builds them" in lmsweep_here(*words)
    assert "transformers" not in lmsweep_here(*words, "--set", "model=tiny")


def test_what_a_workload_does_not_read_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ngrids:\n  - workloads: [collectives]\n    axes: {message_bytes: [1024, 4096]}\n"
        "    fixed: {device: cpu, world_size: 2, collective: all_reduce}\n"
    )
    shown = answer_here("plan", tmp_path / "mine.yaml").stdout
    assert "world_size 2" in shown and "attention" not in shown and "optimizer" not in shown
