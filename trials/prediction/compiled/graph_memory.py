"""What a compiled graph saves for backward and allocates, found without a GPU and without generating code.

What forward saves and what backward recomputes is exact: PyTorch's own partitioner decides it on fake tensors. Which
intermediate values are written to memory is an estimate (`lmsweep.trials.prediction.compiled.graph_buffers`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

from lmsweep.trials.prediction.compiled.aot_graph import Traced, returned
from lmsweep.trials.prediction.compiled.graph_buffers import GraphBuffers, is_tensor, root
from lmsweep.trials.prediction.without_device.allocation_trace import PRODUCTS, Event, Recorder


class Layout(NamedTuple):
    """Shape and type of a tensor that a graph returns."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class GraphMemory:
    """The allocations of one compiled graph, forward and backward. For example, inputs x and w (a lasting one) give
    values h and z and an output y; backward reads x, w and h::

        pieces of forward: h is 0, z is 1, y is 2   `made` (2, 0) are y and h
        inputs: x is 0, w is 1                      `saved_inputs` (0, 1) are x and w
        saved: x is 0, w is 1, h is 2               `owned` (0, 2) are x and h; `saved` is the layout of h
        pieces of backward: x is 0, h is 1          `made_by_backward` are numbered from 2 on
    """

    output: Layout
    forward: tuple[Event, ...]
    """Allocations and frees of forward. What one of them allocates is a piece, numbered from 0 in their order."""
    made: tuple[int, ...]
    """Pieces of forward: of the output and of `saved`."""
    saved_inputs: tuple[int, ...] = ()
    """Indices of the inputs that forward saves for backward."""
    saved: tuple[Layout, ...] = ()
    """Tensors that forward creates and saves too."""
    owned: tuple[int, ...] = ()
    """Indices into `saved_inputs` followed by `saved`: the tensors that backward frees or passes on."""
    backward: tuple[Event, ...] = ()
    """Allocations and frees of backward, whose first pieces are those of `owned`."""
    gradients: tuple[Layout | None, ...] = ()
    """What backward returns for each input, None for no gradient; empty without a backward."""
    made_by_backward: tuple[int, ...] = ()
    """Pieces of backward: of the gradients."""
    products: tuple[int | None, int | None] = (None, None)
    """Pieces that the first products of forward and of backward write, if any. cuBLAS allocates a workspace at each."""


def graph_memory(traced: Traced, *, block: int) -> GraphMemory:
    """The allocations of the graph, with sizes rounded up to multiples of `block` bytes."""
    output, *kept = returned(traced.forward)
    forward, pieces = GraphBuffers(traced.forward, block=block, owned={}).events()
    if traced.backward is None:
        made, products = (pieces[root(output)],), (_first_product(pieces), None)
        return GraphMemory(output=_layout(output), forward=forward, made=made, products=products)
    inputs = traced.forward.find_nodes(op="placeholder")
    roots = list(dict.fromkeys(root(node) for node in kept if is_tensor(node)))  # of a view, what it is a view of
    saved_inputs = [node for node in roots if node in inputs]
    # The output and lasting inputs are not freed by the graph, whether they are saved or not.
    saved = [node for node in roots if node not in inputs and node is not root(output)]
    lasting = set(inputs[: traced.lasting])  # such as weights, which outlive the step
    for_backward = saved_inputs + saved
    owned_nodes = [node for node in for_backward if node not in lasting]  # by piece of backward
    # The inputs of backward are what forward saved, in that order, and then the gradient of the output.
    given = zip(traced.backward.find_nodes(op="placeholder"), kept, strict=False)
    saved_roots = ((its, root(node)) for its, node in given if is_tensor(node))
    piece_of_input = {its: owned_nodes.index(node) for its, node in saved_roots if node in owned_nodes}
    backward, backward_pieces = GraphBuffers(traced.backward, block=block, owned=piece_of_input).events()
    gradients = [node if is_tensor(node) else None for node in returned(traced.backward)]
    return GraphMemory(
        output=_layout(output),
        forward=forward,
        made=tuple(pieces[node] for node in (root(output), *saved)),
        saved_inputs=tuple(inputs.index(node) for node in saved_inputs),
        saved=tuple(_layout(node) for node in saved),
        owned=tuple(for_backward.index(node) for node in owned_nodes),
        backward=backward,
        gradients=tuple(_layout(node) if node else None for node in gradients),
        made_by_backward=tuple(backward_pieces[root(node)] for node in gradients if node),
        products=(_first_product(pieces), _first_product(backward_pieces)),
    )


def _first_product(pieces: dict[Node, int]) -> int | None:
    return min((piece for node, piece in pieces.items() if node.target in PRODUCTS), default=None)


def _layout(node: Node) -> Layout:
    value = node.meta["val"]
    return Layout(tuple(value.shape), value.dtype)


def as_compiled(memory: GraphMemory, recorder: Recorder) -> Callable[..., Tensor]:
    """A function of the graph's inputs, that allocates as the compiled graph would."""
    return partial(_Call.apply, memory, recorder)


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, memory: GraphMemory, recorder: Recorder, *inputs: Tensor) -> Tensor:
        ctx.memory, ctx.recorder = memory, recorder
        pieces = recorder.play(memory.forward, (), memory.products[0])
        with recorder.giving([pieces[number] for number in memory.made]):
            output = _make(memory.output)
            saved = [_make(layout) for layout in memory.saved]
        ctx.save_for_backward(*(inputs[i] for i in memory.saved_inputs), *saved)
        return output

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        memory: GraphMemory = ctx.memory
        kept = ctx.saved_tensors
        pieces = ctx.recorder.play(memory.backward, [kept[place] for place in memory.owned], memory.products[1])
        with ctx.recorder.giving([pieces[number] for number in memory.made_by_backward]):
            return None, None, *(_make(layout) if layout else None for layout in memory.gradients)


def _make(layout: Layout) -> Tensor:
    return torch.empty(layout.shape, dtype=layout.dtype, device="cpu")
