"""Attention alone, as the workload times it, beside `triton.testing.do_bench` in the same process, on a GPU.

python benchmarks/attention_rates.py [FILE.json]

Shapes are those of FlashAttention's benchmark: hidden dimension 2048, 16384 tokens in all, heads of 64 and 128. Rates
are in TFLOP/s by its count: causal work is half, backward is 2.5 times forward. do_bench
runs before and after ours: the ratio is to its mean, and the difference between the two runs is in parentheses.
"""

import json
import sys
from collections.abc import Iterator
from itertools import product
from statistics import median
from typing import Any

from triton.testing import do_bench

from lmsweep.trials.bench.run_trial import run_here
from lmsweep.trials.model.attention_step import AttentionStep
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.transformer.attention_functions import kernel_chosen
from lmsweep.trials.results.record import records_of
from lmsweep.trials.spec.config import Trial, TrialConfig

TOKENS, WIDTH = 16384, 2048
KERNELS = ("sdpa_flash", "sdpa_cudnn", "sdpa_efficient", "naive")
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384)
PHASES = ("forward", "backward", "step")
LARGEST_SCORES = 4096
"""Context beyond which attention that is written out takes too much memory."""


def configurations() -> Iterator[TrialConfig]:
    for heads, causal, context, kernel in product((32, 16), (True, False), CONTEXTS, KERNELS):
        if kernel != "naive" or context <= LARGEST_SCORES:
            yield TrialConfig(
                d_model=WIDTH,
                num_heads=heads,
                context_length=context,
                batch_size=TOKENS // context,
                precision="bf16",
                attention=kernel,
                causal=causal,
                device="cuda",
                warmup_steps=500,
                measure_steps=200,
                max_seconds=0.3,  # long enough for the clocks of a GPU at its power limit
            )


def ours(config: TrialConfig) -> dict[str, float]:
    rows = records_of(run_here(Trial(config=config, workloads=("attention",), sweep="benchmark")))
    assert {row.status for row in rows} == {"ok"}, rows[0].error
    return {f"{row.phase}.{row.metric}": median(row.samples) for row in rows if row.samples and row.unit == "s"}


def theirs(config: TrialConfig) -> dict[str, float]:
    """Seconds by do_bench of forward, of backward through one output, and of both."""
    step = AttentionStep(config, set_math_mode("bf16", "cuda"))
    step.give_gradient()

    def timed(run: Any) -> float:
        return do_bench(run, warmup=100, rep=200, return_mode="median") / 1e3

    def backward() -> None:
        for tensor in step.inputs:
            tensor.grad = None
        step.output.backward(step.gradient, retain_graph=True)

    def both() -> None:
        step.drop()
        step.forward()
        step.backward()

    with kernel_chosen(config.attention):
        step.forward()
        found = {"forward": timed(step.forward), "backward": timed(backward), "step": timed(both)}
    step.drop()
    return found


def main() -> None:
    rows = []
    columns = ("head", "causal", "context", "kernel", *(f"{phase}: ours, do_bench, ratio" for phase in PHASES))
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for config in configurations():
        before, measured, after = theirs(config), ours(config), theirs(config)
        reference = {phase: (seconds + after[phase]) / 2 for phase, seconds in before.items()}
        flops = 4 * config.batch_size * config.context_length**2 * WIDTH / (2 if config.causal else 1)
        work = {"forward": flops, "backward": 2.5 * flops, "step": 3.5 * flops}
        cells = []
        for phase, seconds in reference.items():
            time = measured[f"{phase}.time"]
            rates = (work[phase] / one / 1e12 for one in (time, seconds))
            cells.append(
                "{:.0f}, {:.0f}".format(*rates) + f", {time / seconds:.3f} ({before[phase] / after[phase]:.3f})"
            )
        head = WIDTH // (config.num_heads or 1)
        print(f"| {head} | {config.causal} | {config.context_length} | {config.attention} | {' | '.join(cells)} |")
        kept = {"head": head, "causal": config.causal, "context": config.context_length, "kernel": config.attention}
        rows.append({**kept, "ours": measured, "do_bench": [before, after]})
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            json.dump(rows, file)


if __name__ == "__main__":
    main()
