"""Logs: each trainer is known by its lines, and what they say is the claim."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import lmsweep
from lmsweep.orchestrator.features.audit.claims.read_claim import claim_of
from lmsweep.orchestrator.features.audit.claims.stated_claim import Claim
from lmsweep.orchestrator.features.audit.logs.read_log import read_log, trainers
from lmsweep.trials.spec.errors import RequestError

LOGS = Path(__file__).parent / "logs"

READ: dict[str, dict[str, object]] = {
    "torchtitan": {
        "model": "llama3 8B",
        "gpus": "8xNVIDIA H100 80GB HBM3",
        "context": 8192,
        "batch": 2,
        "global_batch": 16,
        "compile": "yes",
        "checkpointing": "selective",
        "peak": 989000000000000.0,
        "tokens_per_second_per_gpu": 6662.5,
        "tflops": 385840000000000.0,
        "mfu": 0.3901,
    },
    "nanochat": {
        "model": "d1280-f5120-l20-h10-gelu-v65536",
        "gpus": "8xNVIDIA A100-SXM4-80GB",
        "context": 2048,
        "batch": 32,
        "tokens_per_step": 524288,
        "tokens_per_second": 528601,
        "step_seconds": 0.99184,
        "mfu": 0.2333,
    },
    "megatron": {
        "model": "d4096-f14336-l32-h32-kv8-v128256",
        "context": 8192,
        "batch": 1,
        "global_batch": 128,
        "tp": 4,
        "step_seconds": 2.4707,
        "tflops": 384100000000000.0,
    },
    "foundry": {
        "model": "d4096-f16384-l32-h32-gelu-v50368",
        "context": 2048,
        "batch": 16,
        "global_batch": 1024,
        "checkpointing": "block",
        "tokens_per_second": 82858.75,
        "mfu": 0.46445,
    },
    "prime-rl": {
        "model": "Qwen/Qwen3-4B",
        "context": 16384,
        "batch": 1,
        "step_seconds": 2.61,
        "tokens_per_second": 71655,
    },
    "litgpt": {"model": "TinyLlama/tinyllama-1.1b/lit_model.pth", "context": 2048, "batch": 4, "step_seconds": 0.44765},
    "trl": {"step_seconds": 0.33278, "tokens_per_second": 24624.3},  # of SFTTrainer of TRL 1.16 on an H100
    "lightning": {"precision": "bf16", "step_seconds": 0.7722007722007722},
    # twenty steps of a tiny model on a CPU: torchtitan 0.2.2, Composer 0.32, Lightning 2.6 with either bar
    "torchtitan-cpu": {
        "model": "llama3 debugmodel",
        "context": 128,
        "batch": 4,
        "checkpointing": "selective",
        "peak": 312e12,
        "tokens_per_second_per_gpu": 46,
    },
    "foundry-cpu": {"batch": 8, "tokens_per_second": 751.98},
    "lightning-bar": {"step_seconds": 1 / 0.71},
    "lightning-rich": {"step_seconds": 1 / 1.08},
    "axolotl": {
        "model": "NousResearch/Meta-Llama-3-8B",
        "method": "lora",
        "context": 4096,
        "batch": 2,
        "accumulate": 8,
        "checkpointing": "block",
        "tokens_per_second_per_gpu": 770,
    },
}
"""File -> what a reader of it would write down."""


def claim_in(name: str) -> Claim:
    texts = read_log((LOGS / f"{name}.log").read_text(), name).texts
    return claim_of(texts if "gpus" in texts else texts | {"gpus": "H100"})


@pytest.mark.parametrize("name", READ)
def test_a_log_says_what_its_lines_say(name: str) -> None:
    claim = claim_in(name)
    for field, value in READ[name].items():
        found = getattr(claim, field)
        assert found == value or found == pytest.approx(value, rel=1e-3), (field, found)


@pytest.mark.parametrize(("name", "gpus"), [("megatron", 64), ("foundry", 8), ("prime-rl", 8), ("axolotl", 4)])
def test_the_number_of_gpus_is_that_of_the_log(name: str, gpus: int) -> None:
    assert claim_in(name).count == gpus


def test_every_trainer_of_the_table_has_a_log_here() -> None:
    known = {read_log(path.read_text(), path.name).trainer.name for path in LOGS.glob("*.log")}
    assert known == {one.name for one in trainers()}


def test_the_lines_that_were_read_are_shown_and_the_first_steps_do_not_count() -> None:
    log = read_log((LOGS / "torchtitan.log").read_text(), "torchtitan.log")
    assert any("tps: 6,666" in line for line in log.lines)
    assert not any("tps: 483" in line for line in log.lines)


def test_a_text_that_no_trainer_wrote_is_refused_with_the_names_of_those_that_are_known() -> None:
    with pytest.raises(RequestError, match=r"^notes\.txt: no line is known of a trainer's log \(torchtitan, nanochat"):
        read_log("a quiet day\n", "notes.txt")


TRAINER = """
import torch, transformers
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
transformers.logging.set_verbosity_info()
rows = [{"input_ids": (ids := torch.arange(32) % 50), "labels": ids}] * 80
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2))
asked = TrainingArguments(OUTPUT, max_steps=20, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                          logging_steps=5, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no")
Trainer(model=model, args=asked, train_dataset=rows).train()
"""


@pytest.mark.skipif(not (find_spec("transformers") and find_spec("accelerate")), reason="transformers is not installed")
def test_the_log_of_the_hugging_face_trainer_is_read_as_it_writes_it(tmp_path: Path) -> None:
    script = TRAINER.replace("OUTPUT", repr(str(tmp_path / "out")))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    log = read_log(done.stdout + done.stderr, "train.log")
    assert log.trainer.name == "Hugging Face Trainer (TRL)"
    claim = claim_of(log.texts | {"gpus": "H100"})
    assert (claim.batch, claim.accumulate, claim.global_batch) == (2, 2, 4)
    printed = re.search(r"'train_samples_per_second': '?([\d.]+)", done.stdout + done.stderr)
    assert printed
    assert claim.samples_per_second == pytest.approx(float(printed[1]))


NANOCHAT = """
import time, torch
torch.manual_seed(0)
layers, width, vocabulary, batch, context = 2, 128, 256, 2, 64
print(f"Vocab size: {vocabulary:,}", f"num_layers: {layers}", f"model_dim: {width}", "num_heads: 1", sep="\\n")
tokens = batch * context
print(f"Tokens / micro-batch / rank: {batch} x {context} = {tokens:,}")
print(f"Tokens / micro-batch: {tokens:,}")
print(f"Total batch size {tokens:,} => gradient accumulation steps: 1")
model = torch.nn.Sequential(torch.nn.Embedding(vocabulary, width), torch.nn.Linear(width, vocabulary))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    began = time.time()
    ids = torch.randint(vocabulary, (batch, context))
    loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    loss.backward(), optimizer.step(), optimizer.zero_grad()
    dt = time.time() - began
    print(f"step {step:05d}/00020 ({5 * step:.2f}%) | loss: {loss.item():.6f} | lrm: 1.00 | dt: {dt * 1000:.2f}ms | "
          f"tok/sec: {int(tokens / dt):,} | mfu: {0.01:.2f} | total time: 0.00m")
"""


def test_the_log_of_a_loop_like_nanochats_is_read_as_it_writes_it() -> None:
    done = subprocess.run([sys.executable, "-c", NANOCHAT], capture_output=True, text=True, check=True)
    claim = claim_of(read_log(done.stdout, "train.log").texts | {"gpus": "H100"})
    assert (claim.model, claim.batch, claim.context) == ("d128-f512-l2-h1-gelu-v256", 2, 64)
    assert claim.tokens_per_second and claim.step_seconds
    assert claim.tokens_per_second * claim.step_seconds == pytest.approx(128, rel=0.05)


def test_a_log_beside_options_is_one_claim(tmp_path: Path) -> None:
    (found,) = lmsweep.audit(LOGS / "axolotl.log", gpus="RTX 4090", model="8B")
    assert found.name and "axolotl" in found.name
    assert found.rates == {"tokens/s": 4 * 770}
    assert any("770.0" in line for line in found.read) and json.dumps(found.read)
