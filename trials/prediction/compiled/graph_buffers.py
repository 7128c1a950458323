"""Estimate which values of a graph Inductor writes to memory, and how long they live, without generating code.

Values that a matrix product or another library call reads or returns are in memory, and so is what the graph returns.
Everything else is assumed to be fused into the kernels that use it. A fused kernel that is the last to read a value of
the size that it writes reuses that value's memory.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.fx import Graph, Node

from lmsweep.trials.machine.torch_private import (
    EFFICIENT,
    EFFICIENT_BACKWARD,
    FLASH,
    FLASH_BACKWARD,
    FLASH_ON_CPU,
    FLASH_ON_CPU_BACKWARD,
    returns_view,
)
from lmsweep.trials.prediction.compiled.aot_graph import returned
from lmsweep.trials.prediction.without_device.allocation_trace import PRODUCTS, Event

aten = torch.ops.aten

# Inductor calls a library or a template kernel for these, with operands and results in memory.
_CALLS = {
    *PRODUCTS,
    aten.index_put.default,
    *(FLASH, FLASH_BACKWARD, EFFICIENT, EFFICIENT_BACKWARD, FLASH_ON_CPU, FLASH_ON_CPU_BACKWARD),
}

_REDUCTIONS = {aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.max.dim}

_MOST_READS = 4
"""Inductor writes a value with several users to memory if it needs more reads (config.realize_reads_threshold)."""


class GraphBuffers:
    """The values of a graph that are in memory. In `a = mm(x, w); b = relu(a); c = sin(b); d = mm(c, w)`, which returns
    d, the products read and write a, c and d; b is fused into the kernel that writes c. That reads a last, so c takes
    its block if they have one size: `events` are (a, +), (a, -), (c, +), (d, +), (c, -)."""

    def __init__(self, graph: Graph, *, block: int, owned: dict[Node, int]) -> None:
        """`owned` maps the inputs that the graph frees to their pieces; allocations are multiples of `block` bytes."""
        self._block = block
        self._owned = owned
        last_of_piece = {piece: node for node, piece in owned.items()}
        self._representative = {node: last_of_piece[piece] for node, piece in owned.items()}
        """Owned input -> the one that stands for its piece (the last), as several may be views of all of it."""
        self._returned = {root(node) for node in returned(graph) if is_tensor(node)}
        in_memory = (*self._returned, *_of_calls(graph))
        self._in_memory = {node for node in in_memory if node.op == "call_function"}
        self._reads: dict[Node, frozenset[Node]] = {}
        for node in graph.nodes:  # operands come before their users, so it is known whether they are in memory
            self._reads[node] = reads = self._read_by(node)
            if len(reads) > _MOST_READS and len(node.users) > 1 and is_tensor(node) and not returns_view(node.target):
                self._in_memory.add(node)
        self._order = self._ordered(graph)
        self._last_reader = {part: reader for reader in self._order for part in self._reads[reader]}  # later ones win

    def events(self) -> tuple[tuple[Event, ...], dict[Node, int]]:
        """The allocations and frees of the graph, and the piece of each value."""
        numbers = dict(self._owned)
        count = len(set(numbers.values()))  # the next number: pieces of inputs are numbered from 0
        events = []
        for node in self._order:
            size = self._bytes(node)
            freed = sorted(self._last_read_by(node), key=numbers.__getitem__)
            reused = next((part for part in freed if self._is_fused(node) and self._bytes(part) == size), None)
            if reused:  # freed before the allocation, which takes its block; all others after it
                freed.remove(reused)
                events.append((numbers[reused], -size))
            numbers[node] = count
            count += 1
            events.append((numbers[node], size))
            if node not in self._returned and node not in self._last_reader:  # nothing reads it
                freed.append(node)
            events += [(numbers[part], -self._bytes(part)) for part in freed]
        return tuple(events), numbers

    def _last_read_by(self, node: Node) -> Iterator[Node]:
        """Yield the values that are freed when this node has read them."""
        for part in self._reads[node]:
            is_freed = part in self._owned or part.op == "call_function"
            if is_freed and self._last_reader[part] is node and part not in self._returned:
                yield part

    def _ordered(self, graph: Graph) -> list[Node]:
        """The values in memory that the graph makes, in order; the tensors that scatters write into are early."""
        order = [node for node in graph.nodes if node in self._in_memory and is_tensor(node)]
        zeroed = {root(node.args[0]) for node in graph.nodes if node.target == aten.scatter.src}
        first = next((i for i, node in enumerate(order) if self._is_fused(node)), 0)  # before which they are zeroed
        before, after = order[:first], order[first:]
        return before + [node for node in after if node in zeroed] + [node for node in after if node not in zeroed]

    def _read_by(self, node: Node) -> frozenset[Node]:
        """The values in memory that this node reads: its operands or, for fused operands, what those read."""
        reads: set[Node] = set()
        for part in node.all_input_nodes:
            source = root(part)
            if source in self._in_memory or source.op == "placeholder":
                reads.add(self._representative.get(source, source))
            else:
                reads |= self._reads[source]
        return frozenset(reads)

    @staticmethod
    def _is_fused(node: Node) -> bool:
        return node.target not in _CALLS and not _is_item(node)

    def _bytes(self, node: Node) -> int:
        value: Tensor = node.meta["val"]
        return -(-value.numel() * value.element_size() // self._block) * self._block


def _of_calls(graph: Graph) -> Iterator[Node]:
    """Yield what library calls read and make, what reductions make, and what a scatter makes and writes into."""
    for node in graph.nodes:
        made_by = node.args[0] if _is_item(node) else node
        if is_tensor(node) and made_by.target in _CALLS | _REDUCTIONS:
            yield node
        if node.target in _CALLS:
            yield from map(root, node.all_input_nodes)
        if node.target == aten.scatter.src:
            yield from (node, root(node.args[0]))


def is_tensor(node: object) -> bool:
    """Whether this output of a graph, a node or a constant, is a tensor."""
    return isinstance(node, Node) and isinstance(node.meta.get("val"), Tensor)


def _is_item(node: Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def root(node: Node) -> Node:
    """The node that this one is a view of, or the node itself."""
    while node.op == "call_function" and returns_view(node.target):
        node = node.all_input_nodes[0]
    return node
