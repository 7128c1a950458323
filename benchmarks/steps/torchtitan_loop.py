"""Train a Llama by torchtitan's own loop on made-up tokens, and print the seconds of its steps and its peak.

torchrun --nproc-per-node 2 benchmarks/steps/torchtitan_loop.py --layers 16 --context 8192 --batch 1 --compile
"""

import argparse
import os
import time
from dataclasses import replace
from itertools import pairwise
from statistics import median

import torch
from torchtitan.config import JobConfig
from torchtitan.models.llama3 import TransformerModelArgs, get_train_spec
from torchtitan.protocols.train_spec import register_train_spec
from torchtitan.train import Trainer

VOCABULARY = 128256


class Tokens:
    """Batches of random tokens, in the place of a dataloader."""

    def __init__(self, rows: int, context: int) -> None:
        self.shape = rows, context + 1

    def __iter__(self):
        while True:
            tokens = torch.randint(0, VOCABULARY, self.shape)
            yield {"input": tokens[:, :-1].contiguous()}, tokens[:, 1:].contiguous()


class Clocked(Trainer):
    def train_step(self, data_iterator) -> None:
        super().train_step(data_iterator)
        torch.cuda.synchronize()
        self.times.append(time.perf_counter())


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in (("width", 4096), ("heads", 32), ("layers", 8), ("context", 4096), ("batch", 2), ("steps", 18)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--checkpointing", choices=["none", "selective", "full"], default="none")
    parser.add_argument("--compile", action="store_true")
    asked = parser.parse_args()
    size = TransformerModelArgs(
        dim=asked.width, n_layers=asked.layers, n_heads=asked.heads, n_kv_heads=8, vocab_size=VOCABULARY,
        ffn_dim_multiplier=1.3, multiple_of=1024, rope_theta=500000,
    )  # fmt: skip
    spec = replace(
        get_train_spec(), model_args={"made-up": size}, build_tokenizer_fn=None, build_validator_fn=None,
        build_dataloader_fn=lambda **_: Tokens(asked.batch, asked.context), state_dict_adapter=None,
    )  # fmt: skip
    register_train_spec("made-up", spec)
    job = JobConfig()
    job.model.name = job.model.flavor = "made-up"
    job.training.steps, job.training.seq_len = asked.steps, asked.context
    job.training.local_batch_size = asked.batch
    job.parallelism.tensor_parallel_degree = asked.tp
    job.activation_checkpoint.mode = asked.checkpointing
    job.activation_checkpoint.selective_ac_option = "op"
    job.compile.enable = asked.compile
    trainer = Clocked(job)
    trainer.times = []
    torch.cuda.reset_peak_memory_stats()
    trainer.train()
    gaps = sorted(after - before for before, after in pairwise(trainer.times[asked.steps // 3 :]))
    if os.environ["RANK"] == "0":
        words = " ".join(f"{name}={value}" for name, value in vars(asked).items())
        print(f"RESULT {words}: {1e3 * median(gaps):.1f} ms a step, {1e3 * gaps[0]:.1f} to {1e3 * gaps[-1]:.1f}; "
              f"peak {torch.cuda.max_memory_allocated()} bytes", flush=True)  # fmt: skip
    trainer.close()


if __name__ == "__main__":
    main()
