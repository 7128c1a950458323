"""The graphs that torch.compile would give to Inductor's code generator, forward and backward, found on fake tensors.

Tracing takes most of the time, and what is traced is the same for all sizes of a model. So it is traced once, with
dimensions that are primes: in each size of it the factors say of which dimensions it is the product, and so what it is
in a model of other dimensions. PyTorch's own partitioner, which goes by sizes, then decides for each model anew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.utils._pytree import tree_map_only

from lmsweep.trials.spec.config import TrialConfig

BATCH, CONTEXT, HEADS, HALF_HEAD, FEED_FORWARD, VOCABULARY = 3, 7, 5, 11, 13, 17
"""The dimensions with which what many models share is traced. Half of a head, as heads are of even width."""


@dataclass(frozen=True, kw_only=True)
class Captured:
    """What was traced: forward and backward in one graph, or forward alone."""

    module: GraphModule
    partitioning: dict[str, Any] | None
    """What the partitioner needs to know besides; None where there is no backward."""
    lasting: int
    """How many inputs, the first ones, outlive every step: weights and tables, or what attention alone is given."""


@dataclass(frozen=True, kw_only=True)
class Traced:
    """One graph as it would be given to Inductor's code generator, forward and backward."""

    forward: Graph
    backward: Graph | None
    """None where no gradients are wanted."""
    lasting: int
    """As of Captured."""


def capture(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], *, lasting: int, weights: int, gradients: bool
) -> Captured:
    """Traces `function` of these fake tensors up to where forward and backward would be divided.

    Of the inputs, the first `lasting` outlive every step, and of these the first `weights` are known to the compiler to
    do so.
    """
    # Inductor is imported where it is needed: that takes as long as predicting ten models that are not compiled.
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch.fx._lazy_graph_module import _use_lazy_graph_module

    found: list[Captured] = []

    def partition(joint: GraphModule, arguments: Any, **options: Any) -> tuple[GraphModule, GraphModule]:
        joint_graph_passes(joint)
        options["static_lifetime_input_indices"] = list(range(weights))
        found.append(Captured(module=joint, partitioning=options, lasting=lasting))
        return min_cut_rematerialization_partition(joint, arguments, compiler="inductor", **options)

    def keep(gm: GraphModule, example_inputs: Any) -> Callable[..., Any]:
        if not gradients:
            joint_graph_passes(gm)
            found.append(Captured(module=gm, partitioning=None, lasting=lasting))
        values = [node.meta["val"] if isinstance(node, torch.fx.Node) else node for node in returned(gm.graph)]

        def call(arguments: list[Any]) -> list[Any]:
            return [torch.empty_like(value) if isinstance(value, Tensor) else value for value in values]

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    # As torch.compile does; nobody runs the code that would be generated after every pass.
    with torch.set_grad_enabled(gradients), _use_lazy_graph_module(True):
        aot_function(
            function,
            fw_compiler=keep,
            bw_compiler=keep,
            partition_fn=partition,
            decompositions=select_decomp_table(),
            keep_inference_input_mutations=True,
        )(*inputs)
    return found[0]


def divide(captured: Captured, primes: Mapping[int, int] | None = None) -> Traced:
    """Forward and backward of what was captured; with `primes`, those that it has by what they stand for.

    Raises UnscalableError where a size in the graph is not a product of these and at most one 2.
    """
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch.fx._lazy_graph_module import _use_lazy_graph_module

    if primes is not None:
        _scale(captured.module.graph, primes)
    if captured.partitioning is None:
        return Traced(forward=_copy(captured.module.graph), backward=None, lasting=captured.lasting)
    with _use_lazy_graph_module(True):
        forward, backward = min_cut_rematerialization_partition(captured.module, None, **captured.partitioning)
    return Traced(forward=forward.graph, backward=backward.graph, lasting=captured.lasting)


class UnscalableError(Exception):
    """A size is not a product of the dimensions."""


def in_primes(config: TrialConfig) -> tuple[TrialConfig, dict[int, int]] | None:
    """The configuration with primes for its dimensions, and what they stand for. None where one is 1: with that, other
    operations can be left out.
    """
    primes = {BATCH: config.batch_size, CONTEXT: config.context_length}
    shape: dict[str, int] = {"batch_size": BATCH, "context_length": CONTEXT}
    if config.num_heads is None:
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
    """The nodes that the graph returns, None among them."""
    return list(graph.output_node().args[0])  # type: ignore[arg-type]


def _scale(graph: Graph, primes: Mapping[int, int]) -> None:
    """Gives each node's result the shape that it has with these dimensions."""
    made: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}

    def scaled(traced: Tensor) -> Tensor:
        key = tuple(_scaled_size(size, primes) for size in traced.shape), traced.dtype
        if key not in made:
            made[key] = torch.empty(key[0], dtype=traced.dtype)
        return made[key]

    with FakeTensorMode():
        for node in graph.nodes:
            if "val" in node.meta:
                node.meta.setdefault("traced", node.meta["val"])
                node.meta["val"] = tree_map_only(Tensor, scaled, node.meta["traced"])


def _scaled_size(size: int, primes: Mapping[int, int]) -> int:
    result, left = 1, size
    for prime, value in primes.items():
        while left and left % prime == 0:
            result, left = result * value, left // prime
    if left > 2:
        raise UnscalableError(f"{size} is not a product of dimensions")
    return result * left


def _copy(graph: Graph) -> Graph:
    copy = Graph()
    copy.output(copy.graph_copy(graph, {}))
    return copy
