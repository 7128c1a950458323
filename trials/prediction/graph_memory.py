"""What a compiled part of the model keeps and allocates, found without a GPU and without generating code.

PyTorch's own partitioner decides, on fake tensors, what forward saves for backward and what backward computes again:
this is exact. Which of the values in between Inductor writes to memory is an estimate: those that a matrix product or
another call of a library reads or returns, and what the graph returns; everything else is taken to be fused into the
kernels that do. A fused kernel that is the last to read a value of the size that it writes, writes there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node

from lmsweep.trials.prediction.allocation_trace import PRODUCTS, Event, Recorder
from lmsweep.trials.prediction.aot_graph import Traced, returned

aten = torch.ops.aten

# What Inductor leaves to a library or to a kernel of its own, with its operands and results in memory.
_CALLS = {
    *PRODUCTS,
    aten.index_put.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_backward.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_efficient_attention_backward.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
}

_REDUCTIONS = {aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.max.dim}

_MOST_READS = 4
"""Inductor (config.realize_reads_threshold) writes down a value that is used again and needs more reads than this."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A tensor that a graph returns."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class GraphMemory:
    """The memory of one compiled graph, forward and backward."""

    output: Layout
    """What forward returns."""
    saved: tuple[Layout, ...] = ()
    """What forward makes and keeps for backward."""
    saved_inputs: tuple[int, ...] = ()
    """Which of its inputs are kept too."""
    gradients: tuple[Layout | None, ...] = ()
    """What backward returns, for each input; empty where there is no backward."""
    forward: tuple[Event, ...]
    """What forward allocates and frees. Pieces are numbered from 0 in the order in which they are made."""
    made: tuple[int, ...]
    """The pieces that are the output and what was saved."""
    backward: tuple[Event, ...] = ()
    """The same of backward. The first pieces are those of `owned`."""
    owned: tuple[int, ...] = ()
    """What backward frees or gives away of what was kept, `saved_inputs` and then `saved`: its places there."""
    made_by_backward: tuple[int, ...] = ()
    """The pieces that are the gradients."""
    products: tuple[int | None, int | None] = (None, None)
    """The pieces that the first matrix product of forward and that of backward make."""


def graph_memory(traced: Traced, *, block: int) -> GraphMemory:
    """What the graph allocates where the allocator rounds up to multiples of `block` bytes."""
    output, *kept = returned(traced.forward)
    forward, pieces = _Memory(traced.forward, block=block, owned={}).events()
    if traced.backward is None:
        made_only = (pieces[_root(output)],)
        products = (_first_product(pieces), None)
        return GraphMemory(output=_layout(output), forward=forward, made=made_only, products=products)
    roots = list(dict.fromkeys(_root(node) for node in kept if _is_tensor(node)))
    inputs = traced.forward.find_nodes(op="placeholder")
    saved_inputs = [node for node in roots if node in inputs]
    # The output is there for others, whether it is saved or not; so are inputs that last.
    saved = [node for node in roots if node not in inputs and node is not _root(output)]
    lasting = set(inputs[: traced.lasting])
    owned_places = [i for i, node in enumerate(saved_inputs + saved) if node not in lasting]
    numbers = {(saved_inputs + saved)[place]: number for number, place in enumerate(owned_places)}
    # The inputs of backward are what forward kept, in that order, and then the gradient of its output.
    owned = {
        placeholder: numbers[_root(node)]
        for placeholder, node in zip(traced.backward.find_nodes(op="placeholder"), kept, strict=False)
        if _is_tensor(node) and _root(node) in numbers
    }
    backward, made = _Memory(traced.backward, block=block, owned=owned).events()
    gradients = [node if _is_tensor(node) else None for node in returned(traced.backward)]
    return GraphMemory(
        output=_layout(output),
        saved=tuple(_layout(node) for node in saved),
        saved_inputs=tuple(inputs.index(node) for node in saved_inputs),
        gradients=tuple(node and _layout(node) for node in gradients),
        forward=forward,
        made=tuple(pieces[node] for node in (_root(output), *saved)),
        backward=backward,
        owned=tuple(owned_places),
        made_by_backward=tuple(made[_root(node)] for node in gradients if node),
        products=(_first_product(pieces), _first_product(made)),
    )


def _first_product(pieces: dict[Node, int]) -> int | None:
    return min((piece for node, piece in pieces.items() if node.target in PRODUCTS), default=None)


class _Memory:
    """Which values of a graph are in memory, and from when to when."""

    def __init__(self, graph: Graph, *, block: int, owned: dict[Node, int]) -> None:
        """`owned` are inputs that the graph frees, with the numbers of their pieces."""
        self.block = block
        self.owned = owned
        by_number = {number: node for node, number in owned.items()}
        self._same = {node: by_number[number] for node, number in owned.items()}
        """Of inputs that are one piece, which stands for it."""
        self.returned = {_root(node) for node in returned(graph) if _is_tensor(node)}
        nodes = [node for node in graph.nodes if node.op == "call_function" and _is_tensor(node)]
        self.in_memory = {node for node in self.returned if node.op == "call_function"}
        for node in nodes:
            made_by = node.args[0] if _is_item(node) else node
            if made_by.target in _CALLS | _REDUCTIONS:
                self.in_memory.add(node)
        for node in graph.nodes:
            if node.target in _CALLS:
                self.in_memory |= {_root(part) for part in node.all_input_nodes if _root(part).op == "call_function"}
        zeros = [_root(node.args[0]) for node in graph.find_nodes(op="call_function", target=aten.scatter.src)]
        self.in_memory |= {*zeros, *graph.find_nodes(op="call_function", target=aten.scatter.src)}
        self._reads: dict[Node, frozenset[Node]] = {}
        self.last_reader: dict[Node, Node] = {}
        for node in graph.nodes:
            self._find_reads(node)
        self.order = [node for node in nodes if node in self.in_memory]
        # What a scatter writes into is filled beside the first fused kernel, long before.
        first = next((i for i, node in enumerate(self.order) if self._is_fused(node)), 0)
        early = [node for node in self.order[first:] if node in zeros]
        self.order[first:] = early + [node for node in self.order[first:] if node not in early]
        for node in self.order:
            for part in self._reads[node]:
                self.last_reader[part] = node

    def events(self) -> tuple[tuple[Event, ...], dict[Node, int]]:
        """What is allocated and freed, and the number of each value's piece."""
        numbers = dict(self.owned)
        count = len(set(numbers.values()))
        events = []
        for node in self.order:
            dying = [
                part
                for part in self._reads[node]
                if self.last_reader[part] is node
                and part not in self.returned
                and (part in self.owned or part.op == "call_function")
            ]
            dying.sort(key=numbers.__getitem__)
            size = self._bytes(node)
            reused = next((part for part in dying if self._is_fused(node) and self._bytes(part) == size), None)
            if reused:  # its block is free, and taken at once
                dying.remove(reused)
                events.append((numbers[reused], -size))
            numbers[node] = count
            count += 1
            events.append((numbers[node], size))
            if node not in self.returned and node not in self.last_reader:
                dying.append(node)
            events += [(numbers[part], -self._bytes(part)) for part in dying]
        return tuple(events), numbers

    def _find_reads(self, node: Node) -> None:
        """What is in memory and is read to compute this node: its operands, or through fused ones, theirs."""
        reads: set[Node] = set()
        for part in node.all_input_nodes:
            root = _root(part)
            if root in self.in_memory or root.op == "placeholder":
                reads.add(self._same.get(root, root))
            else:
                reads |= self._reads[root]
        self._reads[node] = frozenset(reads)
        if len(reads) > _MOST_READS and len(node.users) > 1 and _is_tensor(node) and not _is_view(node):
            self.in_memory.add(node)

    @staticmethod
    def _is_fused(node: Node) -> bool:
        return node.target not in _CALLS and not _is_item(node)

    def _bytes(self, node: Node) -> int:
        value = node.meta["val"]
        return -(-value.numel() * value.element_size() // self.block) * self.block


def as_compiled(memory: GraphMemory, recorder: Recorder) -> Callable[..., Tensor]:
    """A function of the graph's inputs on the meta device that allocates as the compiled graph would."""

    def call(*inputs: Tensor) -> Tensor:
        result: Tensor = _Call.apply(memory, recorder, *inputs)
        return result

    return call


def install(module: nn.Module, memory: GraphMemory, constants: Sequence[Tensor], recorder: Recorder) -> None:
    """Has a module on the meta device allocate as its compiled graph would; `constants` are the lasting inputs."""
    module.forward = partial(as_compiled(memory, recorder), *constants)


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
            return None, None, *(layout and _make(layout) for layout in memory.gradients)


def _make(layout: Layout) -> Tensor:
    return torch.empty(layout.shape, dtype=layout.dtype, device="meta")


def _layout(node: Node) -> Layout:
    value = node.meta["val"]
    return Layout(shape=tuple(value.shape), dtype=value.dtype)


def _is_tensor(node: Any) -> bool:
    return isinstance(node, Node) and isinstance(node.meta.get("val"), Tensor)


def _is_item(node: Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def _root(node: Node) -> Node:
    """The node whose storage this one is, or is a view of."""
    while node.op == "call_function" and _is_view(node):
        node = node.all_input_nodes[0]
    return node


def _is_view(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info and not r.alias_info.is_write for r in schema.returns)
