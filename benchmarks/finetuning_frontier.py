"""Check the largest batches and peaks that `fits` predicts for fine-tuning against what runs on this GPU.

python benchmarks/finetuning_frontier.py [SECONDS]

For each of FRONTIERS, predict the largest batch and its peak, then run three steps with it and with one sequence more,
each in a fresh process, from random weights of configurations that ship. Prints a line for each, and how many
predictions are right, too large or too small. Starts none after SECONDS. Exits with 1 if one is too large, or a peak is
more than MOST off. Needs lmsweep[hf,qlora].
"""

import multiprocessing
import sys
import time
from collections import Counter
from dataclasses import replace
from multiprocessing.connection import Connection

import torch
from frontier import OUT_OF_MEMORY, STEPS, device, judge
from tabulate import tabulate

from lmsweep.orchestrator.fitting.fit_request import FULL, FitRequest
from lmsweep.orchestrator.planning.memory_budget import CUDA_RESERVE
from lmsweep.orchestrator.planning.prediction_process import Answers
from lmsweep.trials.bench.run_trial import status_of
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import TrialConfig

FRONTIERS = (
    ("Qwen/Qwen3-0.6B", "lora", "none", 4096),
    ("Qwen/Qwen3-0.6B", "dora", "none", 4096),
    ("Qwen/Qwen3-0.6B", "qlora", "none", 4096),
    ("Qwen/Qwen3-0.6B", FULL, "none", 8192),
    ("Qwen/Qwen3-1.7B", "lora", "none", 8192),
    ("Qwen/Qwen3-1.7B", "lora", "block", 8192),
    ("Qwen/Qwen3-1.7B", "dora", "block", 8192),
    ("Qwen/Qwen3-1.7B", "qlora", "none", 4096),
    ("Qwen/Qwen3-1.7B", FULL, "block", 8192),
    ("Qwen/Qwen3-8B", "lora", "none", 2048),
    ("Qwen/Qwen3-8B", "qlora", "none", 2048),
    ("Qwen/Qwen3-8B", "qlora", "block", 8192),
)
"""Model, method, checkpointing and tokens of a sequence."""
MOST = 0.02
"""Share of the measured peak by which the predicted one may be off."""


def config_of(model: str, method: str, checkpointing: str, context: int) -> TrialConfig:
    """The configuration with a batch size of 1."""
    settings = [f"checkpointing={checkpointing}"]
    return FitRequest(f"hf:{model}", context=context, methods=[method], settings=settings).trial().config


def peak_of(config: TrialConfig) -> int | None:
    """Bytes of the allocator's blocks at the peak of a fresh process; None if it ran out of memory."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_steps, args=(config, sender))
    process.start()
    process.join(120)
    if process.exitcode not in (0, OUT_OF_MEMORY):
        process.kill()
        raise RuntimeError(f"{config}: exited with {process.exitcode}, neither finished nor out of memory")
    return int(receiver.recv()) if process.exitcode == 0 else None


def _steps(config: TrialConfig, sender: Connection) -> None:
    try:
        bench = Workbench(config, requested_at=time.monotonic())
        with bench.quiet():
            for _ in range(STEPS):
                for phase in bench.step.phases():
                    phase.run()
                bench.step.drop()
            torch.cuda.synchronize()
    except (RuntimeError, MemoryError) as error:
        if status_of(error) != Status.OOM:
            raise
        sys.exit(OUT_OF_MEMORY)
    sender.send(torch.cuda.max_memory_allocated())


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else float("inf")
    began = time.monotonic()
    name, memory = device()
    configs = [config_of(*one) for one in FRONTIERS]
    rooms = [[(name, memory - CUDA_RESERVE)]] * len(configs)
    code = FitRequest(f"hf:{FRONTIERS[0][0]}", methods=[FULL]).trial().code
    answers = Answers("room", configs, rooms=rooms, code=vars(code) if code else None).wait()
    print(f"{name}, {memory} bytes; predicted in {time.monotonic() - began:.0f} s", flush=True)
    lines, verdicts, apart = [], [], []
    for one, config, answer in zip(FRONTIERS, configs, answers, strict=True):
        if time.monotonic() - began > seconds - 15:
            break
        if "rooms" not in answer:
            raise RuntimeError(f"{one}: {answer}")
        ((batch, predicted),) = answer["rooms"]
        measured = peak_of(replace(config, batch_size=max(batch, 1)))
        beyond = peak_of(replace(config, batch_size=batch + 1)) is not None
        verdicts.append(judge(batch, batch, batch == 0 or measured is not None, beyond))
        off = predicted / measured - 1 if measured else None
        apart += [abs(off)] if off is not None else []
        peaks = ["-" if size is None else f"{size / 2**30:.2f} GiB" for size in (predicted, measured)]
        lines.append([*one, batch, *peaks, "-" if off is None else f"{off:+.2%}", verdicts[-1]])
        print(*lines[-1], flush=True)
    headers = ["model", "method", "checkpointing", "context", "batch", "predicted", "measured", "off", "verdict"]
    print(tabulate(lines, headers=headers, disable_numparse=True, tablefmt="github"))
    print(", ".join(f"{count} {verdict}" for verdict, count in Counter(verdicts).items()))
    print(f"{len(lines)} of {len(configs)} in {time.monotonic() - began:.0f} s")
    sys.exit("too large" in verdicts or max(apart, default=0.0) > MOST)


if __name__ == "__main__":
    main()
