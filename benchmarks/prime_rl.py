"""What a step of prime-rl does that no plan has, by its code of the days of its baselines (d8f290ef0, 2026-01-16)."""

import math
from collections.abc import Iterator
from dataclasses import replace

from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.analytic.rates.operators import Operator, Operators
from lmsweep.trials.analytic.rates.rate_set import LAUNCH_SECONDS, LAUNCHES
from lmsweep.trials.spec.config import TrialConfig

PIECE = 2048
"""Words of a piece of the head: the default from 2026-01-09 (1fa70e83d) to 01-23 (e3146ba9f)."""
FORWARD = (("_to_copy", 6), ("mul_", 8), ("amax", 4), ("sub", 8), ("exp", 8), ("sum", 4), ("mul", 12), ("sum", 4))
BACKWARD = (*(("_to_copy", 6), ("mul_", 8), ("sub", 8), ("exp", 8)),
            *(("mul", 8), ("mul_", 8), ("_to_copy", 6), ("_to_copy", 6)))  # fmt: skip
"""Operators of a piece, and the bytes that each moves for a logit: `_ChunkedLogProbEntropyFn` of reinforcement learning
(models/layers/lm_head.py)."""
WITHOUT_LOOP = "2026-06-15"
"""When fa21395a6 removed the loop in which the host asked the device for each position whether a sequence begins there
(`get_response_lengths`): between forward and backward, with nothing else for the device to do."""
ROUND_TRIP = LAUNCHES["launch_forward"] + 12.5e-6
"""Seconds of such a question: the launch of a comparison, and the host's wait for its result. A wait for a device took
10 to 15 µs on an A100 (NVIDIA/cuda-quantum pull request 4596)."""
ADAPTED, ADAPTED_WITH_EXPERTS = 7, 6
"""How often a block with adapters waits for the device: at `repeat_interleave` of each linear layer, and with experts
twice for the number of the adapter. There compiled code ends, and begins again."""
FLASH_3 = 0.94
"""Time of FlashAttention 3 forward over what is predicted of cuDNN's on an H100: causal, heads of 128, 8192 and 16 384
positions (assets/flash3_fp16_fwd.png of flash-attention). Backward it has no public figure, and is as cuDNN's."""
CLIPPED = 12
"""Bytes of a float32 gradient that clipping reads for the norm, and reads and writes to scale it."""


def as_it_runs(operators: Operators, config: TrialConfig, device: Device, is_rl: bool) -> Operators:
    """Return the operators of a step. Gradients are reduced after each micro-batch."""
    rank = config.adapter_arguments.rank if config.adapter != "none" else 0
    in_one = device.chip.compute[0] == 9 or not rank
    found = [*_of_experts(operators, rank, in_one)] if config.num_experts else [*operators]
    for place, one in enumerate(found):
        if one.name == "reduce_scatter":
            found[place] = replace(one, count=one.count * config.accumulate)
        elif one.name == "sdpa_cudnn":
            found[place] = replace(one, flops=round(FLASH_3 * one.flops))
        elif "adamw" in one.name:
            found.append(replace(one, name="_foreach_mul_", bytes=CLIPPED * math.prod(one.shapes[0])))
    return _with_chunked_head(tuple(found), config.vocab_size) if is_rl else tuple(found)


def waits(config: TrialConfig, is_rl: bool, measured: str) -> float:
    """Return the seconds of a step in which the device waits for the host's questions."""
    seconds = 0.0
    if is_rl and measured < WITHOUT_LOOP:
        seconds += config.batch_size * config.context_length * ROUND_TRIP
    if config.adapter != "none":
        times = 2 * (config.num_layers or 0) * config.accumulate  # forward, and again in backward
        stops = ADAPTED_WITH_EXPERTS if config.num_experts else ADAPTED
        seconds += times * stops * (ROUND_TRIP + LAUNCH_SECONDS["call"])
    return seconds


def _of_experts(operators: Operators, rank: int, in_one: bool) -> Iterator[Operator]:
    """Yield the operators with torchtitan's experts (a1fdd7e): grouped products, scatters in 16 bits and, without
    adapters, copies that pad the rows of an expert to a multiple of 8. in_one: whether groups are in one kernel: with
    adapters on other chips than Hopper a loop of products for each expert."""
    for one in operators:
        if one.name == "bmm":
            experts, m, k = one.shapes[0]
            n = one.shapes[1][-1]
            shapes = [(m, n, k)]
            if rank:
                shapes += [(m, rank, k), (m, n, rank)] * (1 if one.phase == "forward" or one.is_again else 2)
            for rows, outputs, inner in shapes:
                yield _grouped(one, experts, rows, outputs, inner, in_one)
            if rank:  # the sum with what the adapter adds
                moved = 6 * experts * m * n
                yield replace(one, name="fused", shapes=((experts * m, n),), bytes=moved, flops=0, layout="")
        elif one.module.endswith("feed_forward") and one.name in ("index_add", "index_put_"):
            tokens, width = one.shapes[0]
            rows = one.shapes[1][0]
            moved = 2 * width * (rows + 2 * tokens)
            yield replace(one, name="scatter_add", dtype="bfloat16", bytes=moved)
            if rank:
                continue
            copy = replace(one, name="fused", shapes=((rows, width),), dtype="bfloat16", bytes=4 * rows * width)
            yield replace(copy, count=copy.count * (2 if one.name == "index_add" else 1))
            if one.name == "index_put_":
                yield replace(one, dtype="bfloat16", bytes=6 * rows * width)
        else:
            yield one


def _grouped(one: Operator, experts: int, m: int, n: int, k: int, in_one: bool) -> Operator:
    """Return the product of each expert with its rows: (m, k) by (k, n)."""
    size, flops = 2 * experts * (m * k + k * n + m * n), 2 * experts * m * n * k
    if not in_one:
        return replace(one, name="mm", shapes=((m, k), (k, n)), bytes=size // experts, flops=flops // experts,
                       count=one.count * experts, is_compiled=False)  # fmt: skip
    shapes: tuple[tuple[int, ...], ...] = ((experts * m, k), (experts, k, n), (experts,))
    if one.layout == "tn":
        shapes = ((m, experts * k), (experts * k, n), (experts,))
    return replace(one, name="_grouped_mm", shapes=shapes, bytes=size, flops=flops)


def _with_chunked_head(operators: Operators, vocabulary: int) -> Operators:
    """Return the operators of a step with this head in place of logits that are there at once. Backward computes the
    logits again, and the head's gradient also where adapters do not need it."""
    kept = [one for one in operators if not (one.module == "loss" and _has_logits(one, vocabulary))]
    head = next(one for one in kept if one.name == "mm" and one.shapes[-1][-1] == vocabulary)
    (tokens, width), _ = head.shapes
    pieces = math.ceil(vocabulary / PIECE)
    for phase, passes in (("forward", FORWARD), ("backward", BACKWARD)):
        for name, size in passes:
            moved = size * tokens * vocabulary // pieces
            shapes = ((tokens, PIECE),)
            kept.append(replace(head, name=name, shapes=shapes, dtype="float32", bytes=moved, flops=0, layout="",
                                phase=phase, count=head.count * pieces))  # type: ignore[arg-type] # fmt: skip
    kept.append(replace(head, phase="backward", is_again=True))
    if not any(one.name == "mm" and one.shapes[0] == (vocabulary, tokens) for one in kept):
        gradient = ((vocabulary, tokens), (tokens, width))
        kept.append(replace(head, phase="backward", shapes=gradient, layout="tn"))
    return tuple(kept)


def _has_logits(one: Operator, vocabulary: int) -> bool:
    return one.stream == "compute" and any(shape[-1:] == (vocabulary,) for shape in one.shapes)
