"""Steps of DDP and FSDP, and bus bandwidth, by a plain PyTorch script: what the workloads `ddp` and `collectives` must
agree with. It shares the transformer with them, and nothing that measures.

    python benchmarks/sharded_beside.py --ranks 2                       # GPUs; the cells of `lmsweep run fsdp`
    python benchmarks/sharded_beside.py --ranks 2 --bandwidth           # those of `lmsweep run collectives`
    python benchmarks/sharded_beside.py --ranks 2 --device cpu --model tiny --context 32 --precision fp32      # try it

It prints the median over steps of the slowest rank's time, and the peak of a rank.
"""

import argparse
import os
import time
from statistics import median

import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from lmsweep.trials.model.attention import sdpa
from lmsweep.trials.model.transformer import Transformer, cross_entropy
from lmsweep.trials.spec.model_sizes import SIZES

VARIANTS = ("ddp", "fsdp", "fsdp kept", "fsdp bf16", "fsdp bf16 kept")
WARMUP, STEPS, BATCH, VOCABULARY = 5, 20, 4, 10_000
SIZES_OF_MESSAGES = [1024 * 4**power for power in range(11)]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options.add_argument("--model", default="xl")
    options.add_argument("--context", type=int, default=512)
    options.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    options.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    options.add_argument("--bandwidth", action="store_true", help="all-reduces instead of steps")
    chosen = options.parse_args()
    multiprocessing.spawn(run, (chosen,), nprocs=chosen.ranks)


def run(rank: int, chosen: argparse.Namespace) -> None:
    """One rank."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
    cuda = chosen.device == "cuda"
    if cuda:
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=chosen.ranks)
    if chosen.bandwidth:
        bandwidths(rank, chosen)
    else:
        for variant in chosen.variants:
            if "bf16" not in variant or chosen.precision == "bf16":
                steps(rank, chosen, variant)
    dist.destroy_process_group()


def steps(rank: int, chosen: argparse.Namespace, variant: str) -> None:
    """Time the steps of one variant."""
    torch.manual_seed(0)
    size = SIZES[chosen.model]
    model = Transformer(
        size,
        vocab_size=VOCABULARY,
        context_length=chosen.context,
        attention=sdpa,
        device=chosen.device,
        dtype=torch.float32,
    )
    if variant == "ddp":
        wrapped: torch.nn.Module = DistributedDataParallel(model)
    else:
        policy = MixedPrecisionPolicy()
        if "bf16" in variant:
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, reshard_after_forward="kept" not in variant, mp_policy=policy)
        wrapped = fully_shard(model, reshard_after_forward=False, mp_policy=policy)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-4, fused=True)
    tokens, targets = (torch.randint(VOCABULARY, (BATCH, chosen.context), device=chosen.device) for _ in "xy")

    def step() -> None:
        with torch.autocast(chosen.device, torch.bfloat16, enabled=chosen.precision == "bf16"):
            loss = cross_entropy(wrapped(tokens), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times = [seconds(step, chosen.device) for _ in range(WARMUP + STEPS)][WARMUP:]
    peak = 0
    if chosen.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        step()
        peak = torch.cuda.max_memory_allocated()
    slowest = torch.tensor(times, device=chosen.device, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    if rank == 0:
        print(f"{chosen.model} {variant}: {1e3 * median(slowest.tolist()):.1f} ms, {peak / 1e9:.1f} GB", flush=True)


def bandwidths(rank: int, chosen: argparse.Namespace) -> None:
    """Time all-reduces of each size, 20 in a row, as nccl-tests does."""
    for size in SIZES_OF_MESSAGES:
        vector = torch.zeros(size // 4, device=chosen.device)

        def several(vector: torch.Tensor = vector) -> None:
            for _ in range(20):
                dist.all_reduce(vector)

        taken = torch.tensor([seconds(several, chosen.device) / 20 for _ in range(10)][3:], device=chosen.device)
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        each = median(taken.tolist())
        bus = size / each * 2 * (chosen.ranks - 1) / chosen.ranks
        if rank == 0:
            print(f"all_reduce {size} B: {1e6 * each:.1f} us, bus bandwidth {bus / 1e9:.2f} GB/s", flush=True)


def seconds(work: object, device: str) -> float:
    """Seconds of the work, which all ranks begin together."""
    assert callable(work)
    dist.barrier()
    if device == "cpu":
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


if __name__ == "__main__":
    main()
