"""Train a small model by TRL's SFTTrainer, and print the seconds of its steps, between its callbacks, and its peak.

python benchmarks/steps/trl_loop.py benchmarks/steps/qwen3.json --context 2048 --batch 4 --steps 24 [--pure]
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import SFTConfig, SFTTrainer


class Clock(TrainerCallback):
    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *_, **__) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    for name, value in (("context", 2048), ("batch", 4), ("steps", 24)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--pure", action="store_true", help="weights in bfloat16, no autocast")
    asked = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    config = AutoConfig.for_model(**json.loads(asked.config.read_text()))
    torch.manual_seed(0)
    with torch.device("cuda" if on_gpu else "cpu"):
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation="sdpa", dtype=torch.bfloat16 if asked.pure else torch.float32
        )
    words = {f"w{i}": i for i in range(config.vocab_size - 2)}
    words |= {"<eos>": config.vocab_size - 2, "<pad>": config.vocab_size - 1}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="w0")), eos_token="<eos>", pad_token="<pad>"
    )
    rows = torch.randint(0, config.vocab_size - 2, (asked.batch * asked.steps, asked.context)).tolist()
    clock = Clock()
    with TemporaryDirectory() as folder:
        options = SFTConfig(
            output_dir=folder, per_device_train_batch_size=asked.batch, max_steps=asked.steps, save_strategy="no",
            logging_steps=asked.steps, report_to=[], bf16=on_gpu and not asked.pure, gradient_checkpointing=False,
            max_length=asked.context, packing=False, optim="adamw_torch_fused", use_cpu=not on_gpu, disable_tqdm=True,
            dataset_kwargs={"skip_prepare_dataset": True},
        )  # fmt: skip
        trainer = SFTTrainer(
            model=model, args=options, train_dataset=Dataset.from_dict({"input_ids": rows}),
            processing_class=tokenizer, callbacks=[clock],
        )  # fmt: skip
        trainer.train()
    times = clock.times[asked.steps // 3 :]
    gaps = sorted(after - before for before, after in pairwise(times))
    peak = torch.cuda.max_memory_allocated() if on_gpu else None
    print(f"{1e3 * median(gaps):.1f} ms a step, {1e3 * gaps[0]:.1f} to {1e3 * gaps[-1]:.1f}; peak {peak} bytes")


if __name__ == "__main__":
    main()
