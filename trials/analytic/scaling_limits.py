"""The number of ranks above which communication takes longer than computation, for four ways to divide a model.

They are the questions of section 8 of the CS336 assignment 2 of 2026 ("systems", handout): a feed-forward layer of m
matrices of D by F on a batch of B tokens, N ranks that each compute C FLOP/s and send W bytes per second, ring
collectives, e bytes per element (2 for 16 bits), communication that overlaps with computation unless said otherwise.

A ring all-reduce of S bytes takes 2 S (N - 1) / (N W) seconds; an all-gather or a reduce-scatter takes half of that.

    data parallel, FSDP   computes 4 m B D F / (N C) in backward, and sends 2 e m D F (N - 1) / (N W): the gradients, or
                          with FSDP the weights to gather and the gradients to scatter; FSDP's forward is half of both
    tensor parallel       computes 2 m B D F / (N C) in forward, and sends 2 e B D (N - 1) / (N W): the layer's output;
                          backward computes twice as much and sends as much
    FSDP x TP             X ranks divide batch and weights, Y the layer: computes 2 m B D F / (X Y C), gathers weights
                          in e m D F (X - 1) / (X Y W), and reduces outputs in 2 e B D (Y - 1) / (X Y W)

Setting computation equal to communication gives the functions below. D cancels. Attention's projections have the same
ratios with their own widths; attention itself communicates nothing and computes more, so the limits are on the safe
side.
"""

from typing import NamedTuple


class Limits(NamedTuple):
    """Numbers of ranks above which communication takes longer than computation."""

    data_parallel: float
    """Of data parallelism and FSDP: 1 + 2 B W / (e C)."""
    tensor_parallel: float
    """In forward: 1 + m F W / (e C). It does not depend on the batch."""
    tensor_parallel_backward: float
    """1 + 2 m F W / (e C): backward computes twice as much and sends as much."""
    mesh: float
    """Of every mesh of FSDP x TP: gathers and reductions overlap with computation and with each other, so each
    direction has its own limit, and their product is that of the mesh."""
    serial_mesh: float
    """The same if gathers and reductions share the links, one after the other, and together overlap with computation.

    With p = e m F and q = 2 e B, the constraint is p (X - 1) + q (Y - 1) <= K = 2 m B F W / C. The product X Y is
    largest where p X = q Y = (K + p + q) / 2, unless that leaves X or Y below 1: then one direction alone is best.
    """


def limits_of(
    *, tokens: float, d_ff: float, flops: float, bandwidth: float, matrices: int = 3, element_bytes: int = 2
) -> Limits:
    """Return the limits. tokens: B, of the whole batch. d_ff: F. flops: C, FLOP/s of a rank. bandwidth: W, bytes per
    second that a rank sends. matrices: m, 3 for SwiGLU. element_bytes: e."""
    data = 1 + 2 * tokens * bandwidth / (element_bytes * flops)
    beyond_one = matrices * d_ff * bandwidth / (element_bytes * flops)
    weights, outputs = element_bytes * matrices * d_ff, 2 * element_bytes * tokens
    room = 2 * matrices * tokens * d_ff * bandwidth / flops
    both = (room + weights + outputs) / 2
    if both < weights:  # no rank to spare for the batch: tensor parallelism alone
        serial = 1 + room / outputs
    else:
        serial = 1 + room / weights if both < outputs else both**2 / (weights * outputs)
    return Limits(data, 1 + beyond_one, 1 + 2 * beyond_one, data * (1 + beyond_one), serial)
