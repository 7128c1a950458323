"""What each of N data-parallel ranks holds of weights, gradients and optimizer state, by how they are shared.

ZeRO (S. Rajbhandari et al., 2020, arXiv:1910.02054) numbers three stages: the state alone is shared (1), gradients too
(2), weights too (3, as FSDP). With P parameters, float32 everywhere and AdamW, one rank holds

    whole       4P weights, 4P gradients, 8P state
    ZeRO-1      4P,         4P,           8P/N
    FSDP        4P/N,       4P/N,         8P/N

Buffers for communication, gathered weights and activations come on top.
"""

from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS

SHARDED_PARTS = {name: variant.shared for name, variant in DDP_VARIANTS.items() if not variant.in_groups}
"""Word of the field `ddp` -> the parts of the state that it shards. `hsdp` is left out: a rank's share depends on the
size of its group."""

HELD_AT: dict[str, tuple[str, ...]] = {
    "init": ("weights",),
    "before_optimizer": ("weights", "gradients", "optimizer_state"),
    "after_optimizer": ("weights", "gradients", "optimizer_state"),
    "after_step": ("weights", "optimizer_state"),
}
"""Moment of a step -> the parts that a rank holds then. Before the first update there is no optimizer state."""


def rank_bytes(*, parameters: float, ranks: int, ddp: str, moment: str, element_bytes: int = 4) -> dict[str, float]:
    """Return what a rank holds at this moment (a key of HELD_AT) with AdamW, part by part and in total; of a sharded
    part P / N parameters. ddp: a key of SHARDED_PARTS. element_bytes: bytes of a weight, a gradient and each of AdamW's
    two moments."""
    whole = {"weights": element_bytes, "gradients": element_bytes, "optimizer_state": 2 * element_bytes}
    held = {
        name: size * parameters / (ranks if name in SHARDED_PARTS[ddp] else 1) if name in HELD_AT[moment] else 0.0
        for name, size in whole.items()
    }
    return held | {"total": sum(held.values())}
