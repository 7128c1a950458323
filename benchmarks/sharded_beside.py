"""Steps of DDP and FSDP, and bus bandwidth, by a plain PyTorch script: what the workloads `ddp` and `collectives` must
agree with. It shares the transformer with them, and nothing that measures.

    python benchmarks/sharded_beside.py --ranks 2                       # GPUs; the cells of `lmsweep run fsdp`
    python benchmarks/sharded_beside.py --ranks 2 --alternate           # the same, in turn with lmsweep's own steps
    python benchmarks/sharded_beside.py --ranks 8 --alternate --model 2.7b --variants hsdp "tp fsdp" --shards 4 --tp 2
    python benchmarks/sharded_beside.py --ranks 2 --alternate --variants tp --compile       # torchtitan's plan of tp
    python benchmarks/sharded_beside.py --ranks 2 --bandwidth           # the cells of `lmsweep run collectives`
    python benchmarks/sharded_beside.py --ranks 2 --device cpu --model tiny --context 32 --precision fp32      # try it

It prints the median over steps of the slowest rank's time, and the peak of a rank. With `--alternate` each rank takes a
step of the script and one of the workload `ddp` in turn, so that both meet the same host: where the host sets the pace,
steps of two processes, minutes apart, differ by more than the programs do.
"""

import argparse
import gc
import os
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from lmsweep.orchestrator.features.ddp.checked.compared_step import ComparedStep
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.transformer.attention_functions import attention_for
from lmsweep.trials.model.transformer.transformer import Transformer, cross_entropy
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import DIMENSIONS, SIZES, ModelSize
from lmsweep.trials.statistics.median_interval import median_interval

VARIANTS = ("ddp", "fsdp", "fsdp kept", "fsdp bf16", "fsdp bf16 kept")
MESHES = ("hsdp", "hsdp bf16", "tp", "tp fsdp", "tp fsdp bf16")
"""Variants that are asked for by name: sharded within groups of `--shards` ranks, each layer divided over `--tp`."""
COLUMNS = ("attention.query", "attention.key", "attention.value", "feed_forward.w1", "feed_forward.w3")
ROWS = ("attention.output", "feed_forward.w2")
"""The layers of a block that tensor parallelism divides by outputs, and by inputs."""
WARMUP, STEPS, BATCH, VOCABULARY = 5, 20, 4, 10_000
SIZES_OF_MESSAGES = [1024 * 4**power for power in range(11)]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options.add_argument("--model", default="xl")
    options.add_argument("--context", type=int, default=512)
    options.add_argument("--batch", type=int, default=BATCH)
    options.add_argument("--vocabulary", type=int, default=VOCABULARY)
    options.add_argument("--layers", type=int, help="in place of the model's")
    options.add_argument("--compile", action="store_true", help="compile each block")
    options.add_argument("--precision", choices=("fp32", "bf16", "bf16_pure"), default="bf16")
    options.add_argument("--variants", nargs="+", choices=VARIANTS + MESHES, default=VARIANTS)
    options.add_argument("--shards", type=int, default=2, help="ranks of a group of hsdp")
    options.add_argument("--tp", type=int, default=2, help="ranks that share each layer with tp")
    options.add_argument("--alternate", action="store_true", help="a step of lmsweep's after each, and their ratio")
    options.add_argument("--own", action="store_true", help="steps of lmsweep in place of the script's")
    options.add_argument("--steps", type=int, default=STEPS)
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
                (alternate if chosen.alternate else steps)(rank, chosen, variant)
                gc.collect()  # the wrappers hold cycles
                torch.cuda.empty_cache()
    dist.destroy_process_group()


def steps(rank: int, chosen: argparse.Namespace, variant: str) -> None:
    """Time the steps of one variant."""
    step = own_step(chosen, variant) if chosen.own else script_step(chosen, variant)
    times = [seconds(step, chosen.device) for _ in range(WARMUP + chosen.steps)][WARMUP:]
    peak = 0
    if chosen.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        step()
        peak = torch.cuda.max_memory_allocated()
    taken = slowest(times, chosen.device)
    if rank == 0:
        print(f"{chosen.model} {variant}: {1e3 * median(taken):.1f} ms, {peak / 1e9:.1f} GB", flush=True)


def alternate(rank: int, chosen: argparse.Namespace, variant: str) -> None:
    """Time steps of the script and of lmsweep in turn; print the ratio of each pair, without garbage collection."""
    script, rank_step = script_step(chosen, variant), rank_step_of(chosen, variant)
    gc.collect()
    gc.disable()
    taken: dict[str, list[float]] = {"script": [], "lmsweep": []}
    for pair in range(WARMUP + chosen.steps):
        for program in list(taken)[:: 1 if pair % 2 else -1]:  # neither is always the second
            taken[program].append(
                seconds(script, chosen.device) if program == "script" else rank_step.step(synchronized=True).step
            )
    gc.enable()
    theirs, ours = (slowest(times[WARMUP:], chosen.device) for times in taken.values())
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    low, high = median_interval(ratios)
    if rank == 0:
        print(
            f"{chosen.model} {variant}: lmsweep {1e3 * median(ours):.1f} ms, script {1e3 * median(theirs):.1f} ms, "
            f"of each pair {median(ratios):.3f} [{low:.3f}, {high:.3f}]",
            flush=True,
        )


def rank_step_of(chosen: argparse.Namespace, variant: str) -> ComparedStep:
    config = trial_config(chosen, variant)
    step = ComparedStep(config, set_math_mode(config.precision, config.device_type))
    step.build()
    return step


def own_step(chosen: argparse.Namespace, variant: str) -> Callable[[], None]:
    """The phases of lmsweep's step, one after the other."""
    rank_step = rank_step_of(chosen, variant)

    def step() -> None:
        for phase in rank_step.phases():
            phase.run()
        rank_step.forget_gradients()

    return step


def size_of(chosen: argparse.Namespace) -> ModelSize:
    size = SIZES[chosen.model]
    return replace(size, num_layers=chosen.layers or size.num_layers)


def trial_config(chosen: argparse.Namespace, variant: str) -> TrialConfig:
    """The configuration of `lmsweep run fsdp` that takes the same step."""
    size = size_of(chosen)
    method: dict[str, Any] = {"ddp": "torch"}
    if variant == "tp":
        method = {"ddp": "naive"}
    elif variant != "ddp":
        kept = str("kept" not in variant).lower()
        method = {"ddp": "hsdp" if "hsdp" in variant else "fsdp", "gather": gathered_in(variant), "reshard": kept}
    return TrialConfig(
        **{name: getattr(size, name) for name in DIMENSIONS},
        vocab_size=chosen.vocabulary,
        context_length=chosen.context,
        batch_size=chosen.batch,
        compile="block" if chosen.compile else "none",
        precision=chosen.precision,
        device=chosen.device,
        attention="sdpa",
        mode="train_step",
        world_size=chosen.ranks,
        tp=chosen.tp if variant.startswith("tp") else 1,
        shards=chosen.shards if variant.startswith("hsdp") else None,
        **method,
    )


def gathered_in(variant: str) -> str:
    """The type in which the variant gathers weights."""
    return "bf16" if "bf16" in variant else "fp32"


def script_step(chosen: argparse.Namespace, variant: str) -> Callable[[], None]:
    """A training step as people write it."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if chosen.precision == "bf16_pure" else torch.float32
    model = Transformer(
        size_of(chosen),
        vocab_size=chosen.vocabulary,
        context_length=chosen.context,
        attention=attention_for(trial_config(chosen, variant), device=chosen.device, dtype=dtype),
        device=chosen.device,
        dtype=dtype,
    )
    mesh = mesh_of(chosen, variant)
    if variant.startswith("tp"):
        divide(model, mesh["tensor"])
    if chosen.compile:
        for block in model.blocks:
            block.compile()
    wrapped: torch.nn.Module = model
    if variant == "ddp":
        wrapped = DistributedDataParallel(model)
    elif variant != "tp":
        policy = MixedPrecisionPolicy()
        if gathered_in(variant) == "bf16":
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        ranks = mesh["replicas", "shards"] if variant.startswith("hsdp") else mesh["shards"]
        for block in model.blocks:
            fully_shard(block, mesh=ranks, reshard_after_forward="kept" not in variant, mp_policy=policy)
        wrapped = fully_shard(model, mesh=ranks, reshard_after_forward=False, mp_policy=policy)
    alike: dict[DeviceMesh | None, list[torch.Tensor]] = {}  # fused AdamW takes weights of one mesh at a time
    for parameter in wrapped.parameters():
        alike.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    optimizer = torch.optim.AdamW([{"params": weights} for weights in alike.values()], lr=1e-4, fused=True)
    replicated = [weight for weight in wrapped.parameters() if variant == "tp" and mesh["shards"].size() > 1]
    data = mesh["shards"].get_group()
    tokens, targets = (
        torch.randint(chosen.vocabulary, (chosen.batch, chosen.context), device=chosen.device) for _ in "xy"
    )
    measure_loss = loss_of_divided if variant.startswith("tp") else cross_entropy

    def step() -> None:
        with loss_parallel():
            with torch.autocast(chosen.device, torch.bfloat16, enabled=chosen.precision == "bf16"):
                loss = measure_loss(wrapped(tokens), targets)
            loss.backward()
        for weight in replicated:  # `tp` alone averages gradients over the data-parallel ranks, one by one
            gradient = weight.grad.to_local() if isinstance(weight.grad, DTensor) else weight.grad
            dist.all_reduce(gradient, dist.ReduceOp.SUM, data)
            gradient.div_(dist.get_world_size(data))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def divide(model: Transformer, mesh: DeviceMesh) -> None:
    """Divide each layer as torchtitan's plan for Llama 3 does."""
    is_tied = model.head.weight is model.token_embedding.weight
    for name, layer in list(model.named_modules()):  # PyTorch's styles divide its own layers only
        if name.endswith((*COLUMNS, *ROWS, "head")):
            linear = torch.nn.Linear(*reversed(layer.weight.shape), bias=False, device="meta")
            linear.weight = layer.weight
            model.set_submodule(name, linear)
    model.token_embedding = torch.nn.Embedding(
        *model.token_embedding.weight.shape, _weight=model.token_embedding.weight
    )
    tokens = Shard(1)
    parallelize_module(
        model,
        mesh,
        {
            "token_embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=tokens),
            "final_norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=tokens, output_layouts=Shard(-1), use_local_output=False),
        },
    )
    if is_tied:
        model.head.weight = model.token_embedding.weight
    # torch.compile gives an AsyncCollectiveTensor that enters a block no gradient.
    model.token_embedding.register_forward_hook(lambda layer, tokens, found: found.clone())
    for block in model.blocks:
        gathered = PrepareModuleInput(input_layouts=tokens, desired_input_layouts=Replicate())
        plan = {"attention_norm": SequenceParallel(), "feed_forward_norm": SequenceParallel()}
        plan |= {"attention": gathered, "feed_forward": gathered}
        plan |= {name: ColwiseParallel() for name in COLUMNS}
        plan |= {name: RowwiseParallel(output_layouts=tokens) for name in ROWS}
        parallelize_module(block, mesh, plan)


def loss_of_divided(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1))


def mesh_of(chosen: argparse.Namespace, variant: str) -> DeviceMesh:
    """(replicas, shards, tensor) ranks: replicas only with hsdp, several tensor ranks only with tp."""
    tensor = chosen.tp if variant.startswith("tp") else 1
    shards = chosen.shards if variant.startswith("hsdp") else chosen.ranks // tensor
    shape = (chosen.ranks // tensor // shards, shards, tensor)
    return init_device_mesh(chosen.device, shape, mesh_dim_names=("replicas", "shards", "tensor"))


def slowest(times: list[float], device: str) -> list[float]:
    """Of each step, the time of the rank that took longest."""
    longest = torch.tensor(times, device=device, dtype=torch.float64)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.tolist()


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
