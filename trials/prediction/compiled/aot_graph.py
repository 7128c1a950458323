"""The forward and backward graphs that torch.compile would give to Inductor's code generator, from fake tensors.

Tracing takes most of the time, and the traced graph is the same for all sizes of a model. So it is traced once, with
primes as dimensions. The prime factors of each size in the graph then show which dimensions multiply to it, and so its
value in a model of other dimensions. PyTorch's own partitioner depends on sizes and runs for each model.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule

from lmsweep.trials.machine.torch_private import (
    FakeTensorMode,
    joint_passes,
    partitioned,
    takes_list,
    trace_ahead,
    tree_map_only,
    without_python_code,
)
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import SHAPE_FIELDS
from lmsweep.trials.spec.ways.attentions import FUSED_ATTENTION, WIDEST_HEAD

BATCH, CONTEXT, HEADS, HALF_HEAD, FEED_FORWARD, VOCABULARY = 3, 7, 5, 11, 13, 17
"""The dimensions of the traced model. Heads have an even dimension, 2 * HALF_HEAD; attention alone has HALF_HEAD."""

_WITHOUT_DIMENSIONS = ("qk_norm", "feed_forward", "tied_head")
"""Shape fields that change operators but add no dimension."""


@dataclass(frozen=True, kw_only=True)
class Captured:
    """A traced graph: forward and backward in one, or forward alone."""

    module: GraphModule
    """The graph after Inductor's passes on joint graphs."""
    partitioning: dict[str, Any] | None
    """Keyword arguments of PyTorch's partitioner, passed through; None without a backward."""
    lasting: int
    """Number of leading inputs that live as long as the trial: weights and tables, or the inputs of attention alone."""


@dataclass(frozen=True, kw_only=True)
class Traced:
    """The forward and backward graphs as given to Inductor's code generator."""

    forward: Graph
    """Its first output is the result, the others are saved for backward."""
    backward: Graph | None
    """None without gradients."""
    lasting: int


def capture(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], *, lasting: int, weights: int, gradients: bool
) -> Captured:
    """Trace `function` of these fake tensors up to the point where forward and backward are partitioned. The first
    `lasting` inputs outlive every step; the compiler treats the first `weights` as static. With gradients, the
    graph is captured in `partition`, which leaves it as it is; else in `compile_graph`."""
    captured: list[Captured] = []

    def partition(joint: GraphModule, arguments: Any, **options: Any) -> tuple[GraphModule, GraphModule]:
        joint_passes(joint)
        options["static_lifetime_input_indices"] = list(range(weights))
        captured.append(Captured(module=joint, partitioning=options, lasting=lasting))
        forward, backward = partitioned(joint, arguments, compiler="inductor", **options)
        return forward, backward

    def compile_graph(gm: GraphModule, example_inputs: Any) -> Callable[..., Any]:
        if not gradients:
            joint_passes(gm)
            captured.append(Captured(module=gm, partitioning=None, lasting=lasting))
        values = [node.meta["val"] if isinstance(node, torch.fx.Node) else node for node in returned(gm.graph)]

        def call(arguments: list[Any]) -> list[Any]:
            return [torch.empty_like(value) if isinstance(value, Tensor) else value for value in values]

        return takes_list(call)

    with torch.set_grad_enabled(gradients):
        trace_ahead(function, inputs, compiler=compile_graph, partition=partition)
    return captured[0]  # the only one


def divide(captured: Captured, primes: Mapping[int, int] | None = None) -> Traced:
    """Partition a captured graph into forward and backward. `primes` maps each prime to the dimension that replaces it.
    Raises UnscalableError if a size in the graph is not a product of primes and at most one factor of 2."""
    if primes is not None:
        scale_graph(captured.module.graph, primes)
    if captured.partitioning is None:
        return Traced(forward=deepcopy(captured.module.graph), backward=None, lasting=captured.lasting)
    with without_python_code():
        forward, backward = partitioned(captured.module, None, **captured.partitioning)
    return Traced(forward=forward.graph, backward=backward.graph, lasting=captured.lasting)


class UnscalableError(Exception):
    """A size in the graph is not a product of the dimensions."""


def in_primes(config: TrialConfig) -> tuple[TrialConfig, dict[int, int]] | None:
    """Return the configuration with primes as dimensions, and prime -> the dimension that it replaces. None if a
    dimension is 1, which makes some operations unnecessary, if the model has further dimensions, if the batch is
    divided, as no prime can be, or if the width of a head decides which kernel a GPU takes."""
    further = (name for name in SHAPE_FIELDS if name not in _WITHOUT_DIMENSIONS)
    if config.accumulate > 1 or not all(config.is_default(name) for name in further):
        return None
    on_gpu = config.device_type == "cuda" and config.attention in FUSED_ATTENTION
    if on_gpu and (config.head_width % 8 or config.head_width > WIDEST_HEAD):
        return None
    primes = {BATCH: config.batch_size, CONTEXT: config.context_length}
    shape: dict[str, int] = {"batch_size": BATCH, "context_length": CONTEXT}
    if config.num_heads is None:  # attention alone, of one head; it has neither d_ff nor a vocabulary
        primes[HALF_HEAD] = config.d_model
        shape["d_model"] = HALF_HEAD
    else:
        primes |= {HEADS: config.num_heads, HALF_HEAD: config.d_model // config.num_heads // 2}
        shape |= {"num_heads": HEADS, "d_model": HEADS * 2 * HALF_HEAD}
    if config.d_ff is not None:
        primes |= {FEED_FORWARD: config.d_ff, VOCABULARY: config.vocab_size}
        shape |= {"d_ff": FEED_FORWARD, "vocab_size": VOCABULARY}
    return None if 1 in primes.values() else (replace(config, model=None, **shape), primes)  # type: ignore[arg-type]


def returned(graph: Graph) -> list[Any]:
    """What the graph returns: fx Nodes, None, or constants."""
    return list(graph.output_node().args[0])  # type: ignore[arg-type]


def scale_graph(graph: Graph, primes: Mapping[int, int]) -> None:
    """Give each node's result the size that it has with these dimensions, without storage."""
    made: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}

    def scaled(traced: Tensor) -> Tensor:
        key = tuple(_scaled_size(size, primes) for size in traced.shape), traced.dtype
        if key not in made:  # of a tensor, only shape and type matter
            made[key] = torch.empty(key[0], dtype=traced.dtype)
        return made[key]

    with FakeTensorMode():
        for node in graph.nodes:
            if "val" in node.meta:
                node.meta.setdefault("traced", node.meta["val"])  # kept, to be scaled for other models
                node.meta["val"] = tree_map_only(Tensor, scaled, node.meta["traced"])


def _scaled_size(size: int, primes: Mapping[int, int]) -> int:
    result, left = 1, size
    for prime, value in primes.items():
        while left and left % prime == 0:
            result, left = result * value, left // prime
    if left > 2:  # else 0, 1 or the 2 of a head
        raise UnscalableError(f"{size} is not a product of dimensions")
    return result * left
