"""Rules of the workloads `ddp` and `collectives`: each yields why no machine runs a configuration `c`."""

from collections.abc import Iterator

from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from lmsweep.trials.spec.ways.losses import HIDDEN_LOSSES, LOSSES
from lmsweep.trials.spec.ways.optimizers import SHARDED
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS, NARROW_PRECISIONS
from lmsweep.trials.spec.workloads import Workload

DIVIDED = tuple(name for name, one in LOSSES.items() if one.is_divided)
"""Losses that can be computed with the vocabulary divided among ranks."""


def of_ddp(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.ddp == "none":
        yield "ddp: none synchronizes nothing; choose naive, flat, bucketed, ..."
    if c.bucket_bytes is not None and c.ddp in DDP_VARIANTS and DDP_VARIANTS[c.ddp].call != "bucket":
        yield f"bucket_bytes has no effect with ddp {c.ddp}, which has no buckets"
    if c.mode not in ("forward_backward", "train_step"):
        yield f"mode {c.mode} computes no gradients; ddp needs forward_backward or train_step"
    yield from _of_sharding(c)
    yield from _of_tensor_parallel(c)
    if c.accumulate > 1 and (is_reference(c.ddp) or is_reference(c.optimizer)):
        yield "your own code offers no known way to hold back its communication; use accumulate: 1"
    if (c.fully_shards or c.tp > 1) and c.optimizer not in SHARDED:
        yield f"divided weights are measured with AdamW; with {c.optimizer} choose bucketed or another"
    if c.fully_shards and c.loss in HIDDEN_LOSSES:
        yield f"loss {c.loss} reads the weight of the head, which {c.ddp} has divided; use eager"
    if c.ddp == "zero1" and c.mode != "train_step":
        yield "ddp zero1 shards the optimizer's state; it needs mode train_step"
    if c.ddp == "zero1" and c.optimizer not in SHARDED:
        yield f"ddp zero1 shards AdamW's state, not that of {c.optimizer}"
    if c.ddp == "torch" and c.compilation.whole and (c.bucket_bytes or 2**20) < 2**20:
        yield "torch.compile splits the model at the boundaries of buckets; bucket_bytes must be 1 MiB or more"
    if c.records_cuda_graphs:
        yield f"compile_mode {c.compile_mode} keeps gradients in the memory pool of CUDA graphs"


def _of_sharding(c: TrialConfig) -> Iterator[str]:
    formats = PRECISIONS[c.precision]
    gathers = c.fully_shards or is_reference(c.ddp)  # the user's wrapper reads `gather` as well
    # `gather` casts float32 weights to what autocast computes in.
    if c.gather == "bf16" and gathers and formats.autocast != "bfloat16":
        # bf16_pure has nothing left to cast: its weights are bfloat16. fp32 would compute in fewer bits than it says.
        why = "computes in it" if formats.operand == "bfloat16" else "computes in another"
        yield f"gather bf16 is the type in which precision bf16 computes; precision {c.precision} {why}"
    if not c.fully_shards:
        unused = ["reshard", "shards"] if is_reference(c.ddp) else ["reshard", "shards", "gather"]
        for field in unused:
            if not c.is_default(field):
                yield f"{field} has no effect with ddp {c.ddp}, which gathers no weights"
        return
    if c.ddp == "zero2" and c.reshard != "true":
        yield "reshard has no effect with ddp zero2, which is fsdp with reshard: false"
    if c.ddp == "hsdp":
        yield from _of_groups(c)
    elif c.shards is not None:
        yield f"shards has no effect with ddp {c.ddp}, which shards over all ranks; use hsdp"
    if c.reshard.isdecimal():  # else a word: after forward over as many ranks as before, or not at all
        sharing_ranks, fewer = c.shard_ranks, int(c.reshard)
        if sharing_ranks % fewer or fewer >= sharing_ranks:
            yield (
                f"reshard {fewer}: weights that {sharing_ranks} ranks share can be resharded over a smaller number of "
                "ranks that divides theirs"
            )
        if c.tp > 1:
            yield f"PyTorch does not reshard layers that tp divides over {fewer} ranks"


def _of_groups(c: TrialConfig) -> Iterator[str]:
    """Rules of hsdp: the ranks of a group share the weights, and each group has all of them."""
    ranks, sharing_ranks = c.world_size // c.tp, c.shard_ranks
    if c.shards is None and c.nodes == 1:
        yield "hsdp shards within a node and replicates between nodes; on one node give shards"
    if c.shards is None and c.ranks_per_node % c.tp:
        yield f"tp {c.tp} does not divide the {c.ranks_per_node} ranks of a node"
    if ranks % sharing_ranks or sharing_ranks in (1, ranks):
        yield (
            f"hsdp over groups of {sharing_ranks} of {ranks} ranks: shards must divide them, into more than one group "
            "of more than one; use fsdp for one group, and a variant without shards for groups of one"
        )


def _of_tensor_parallel(c: TrialConfig) -> Iterator[str]:
    if c.tp == 1:
        return
    if c.precision in FLOAT8_PRECISIONS:
        yield f"precision {c.precision} is measured with whole layers in each rank; with tp use bf16"
    if c.ddp != "naive" and not c.fully_shards:
        yield f"tp is measured with ddp naive, zero2, fsdp and hsdp, not with {c.ddp}"
    if c.model_code is not None or c.num_experts is not None or c.qk_norm:
        yield "tp divides lmsweep's own model, without experts and without norms of queries and keys"
    if c.loss not in DIVIDED:
        yield f"loss {c.loss} reads all logits of a token, which tp divides; use {' or '.join(DIVIDED)}"
    rows = -(-c.vocab_size // c.tp)  # of each rank but the last, which has the others
    if c.vocab_size <= (c.tp - 1) * rows:
        yield f"tp {c.tp} leaves a rank without a part of the vocabulary; vocab_size is {c.vocab_size}"
    heads = c.num_kv_heads or c.num_heads or 1
    for name, count in (("heads of keys", heads), ("d_ff", c.d_ff or 1), ("context_length", c.context_length)):
        if count % c.tp:
            yield f"tp {c.tp} does not divide {name} {count}"


def of_collectives(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.world_size == 1:
        yield "one rank sends nothing; collectives needs world_size: 2 or more"
    if c.ddp != "none" or c.tp > 1:
        yield "collectives has no model; ddp and tp are for the workload ddp"
    if c.precision in FLOAT8_PRECISIONS:
        yield "collectives send no float8 numbers; its messages are of fp32, bf16 or fp16"
    if c.message_bytes < c.world_size * (2 if c.precision in NARROW_PRECISIONS else 4):
        yield f"message_bytes {c.message_bytes} has no element for each of {c.world_size} ranks"
