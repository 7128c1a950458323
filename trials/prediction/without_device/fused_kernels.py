"""The kernels that torch.compile makes of the operators of a step: element-wise operators and reductions fuse.

An estimate, without Inductor: an operator joins the kernels that make its operands, and a kernel that reads one of the
same operands, unless the joined kernel would then need its own result. A kernel moves the bytes that enter and leave
it. If only kernels of backward read a value of forward, each of them computes it again, and so reads the operands
of the kernel that made it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import prod
from typing import NamedTuple

from lmsweep.trials.analytic.rates.operators import Operator, class_of

SMALL_SHARE = 0.25
"""A value of forward smaller than this share of its kernel's largest value, such as the norm of a row, is saved for
backward and not computed again; a copy in 16 bits, with half of the bytes, is computed again."""

UNFUSED = frozenset(("sort", "topk", "index_put_", "index_add", "index_add_", "scatter_add", "scatter_add_"))
"""Operators that never fuse: in 16 bits Inductor calls PyTorch's kernels for them."""
UNFUSED_REDUCTIONS = ("max_all", "amax_columns", "scale")
"""Reductions of `float8_operators` whose result no operator of the same kernel can read."""

Storage = tuple[int, int]
"""Index of a storage, and the number of earlier storages with this index that were freed."""


class Seen(NamedTuple):
    """An operator that ran, and the storages that it touched."""

    operator: Operator
    block: str
    """The layer that it belongs to, by number; empty outside of layers."""
    read: tuple[tuple[Storage, int], ...]
    """Storage and bytes."""
    wrote: tuple[tuple[Storage, int], ...]


@dataclass(kw_only=True, eq=False)
class Kernel:
    """Operators that run as one."""

    first: Operator
    call: tuple[object, ...]
    """Phase, layer and micro-batch: what one call of compiled code runs."""
    is_generated: bool
    """Whether the compiler generates it, and does not call one of PyTorch's, such as a matrix product."""
    is_open: bool
    """Whether further operators of the same call can join it."""
    after: set["Kernel"] = field(default_factory=set)
    """Kernels that make the values it reads."""
    bits: int = 0
    """A bit of its own, and those of the kernels that were merged into it."""
    needs: int = 0
    """The bits of all kernels that it comes after, directly or not."""
    into: "Kernel | None" = None
    """The kernel that it was merged into."""
    inside: set[int] = field(default_factory=set)
    """Values that it makes."""
    used: set[int] = field(default_factory=set)
    """Values that it makes and reads itself."""
    read: dict[int, int] = field(default_factory=dict)
    """Values made elsewhere that it reads -> bytes."""
    wrote: dict[int, int] = field(default_factory=dict)
    """Those of its values that are read elsewhere, or not at all."""

    @property
    def now(self) -> "Kernel":
        """Return the kernel that it is or has become a part of."""
        return self if self.into is None else self.into.now

    @property
    def operator(self) -> Operator:
        """Return what the kernel counts as: its only operator, or `fused` with the bytes that it moves."""
        if not self.is_generated:
            return self.first
        moved = sum(self.read.values()) + sum(self.wrote.values())
        return replace(self.first, name="fused", bytes=moved, flops=0, layout="")

    def merge(self, other: "Kernel") -> None:
        """Make another kernel part of this one. `_order` must follow: it finds what both, and all after them, need."""
        other.into = self
        self.bits, self.needs = self.bits | other.bits, 0
        self.inside |= other.inside
        read = self.read | other.read
        self.used |= other.used | (read.keys() & self.inside)
        self.read = {value: size for value, size in read.items() if value not in self.inside}
        self.after = {one.now for one in self.after | other.after} - {self}


def fused(seen: Sequence[Seen], is_compiled: Callable[[Operator], bool], *, across_layers: bool) -> list[Operator]:
    """The kernels of an iteration, in order. `across_layers`: the whole model is one graph."""
    fusion = _Fusion(is_compiled, across_layers=across_layers)
    for one in seen:
        fusion.take(one)
    return list(_called(fusion.kernels()))


def _called(kernels: Iterable[Kernel]) -> Iterator[Operator]:
    """Yield the operators of the kernels; the first of each call of compiled code has `Operator.calls` set."""
    known: set[tuple[object, ...]] = set()
    for kernel in kernels:
        one = kernel.operator
        if one.is_compiled and kernel.call not in known:
            known.add(kernel.call)
            one = replace(one, calls=2 if one.is_again else 1)  # a checkpoint calls through hooks: counts as two
        yield one


class _Fusion:
    """The kernels of the operators taken so far."""

    def __init__(self, is_compiled: Callable[[Operator], bool], *, across_layers: bool) -> None:
        self._is_compiled = is_compiled
        self._across_layers = across_layers
        self._numbers = count()  # for new values
        self._value_in: dict[Storage, int] = {}
        """Storage -> the value that it holds now."""
        self._kernels: list[Kernel] = []
        """Also those that were merged into others."""
        self._made_by: dict[int, Kernel] = {}
        self._read_by: dict[int, list[Kernel]] = {}
        self._bytes: dict[int, int] = {}
        """Of each value that an operator made."""
        self._casts: dict[tuple[object, ...], list[int]] = {}
        """Cast of a compiled graph, by its operand and bytes, which tell the type -> what it made."""
        self._latest_phase, self._micro_batch = "forward", 0

    def take(self, seen: Seen) -> None:
        """Take the operator that ran next: it joins kernels, or becomes one."""
        operator, block, read, wrote = seen
        operator = replace(operator, is_compiled=self._is_compiled(operator))
        operands = {self._value_in.setdefault(storage, next(self._numbers)): size for storage, size in read}
        cast = (operator.phase, operator.is_again, block, operator.bytes, *operands)
        is_cast = operator.is_compiled and operator.name == "_to_copy"
        if is_cast and cast in self._casts:  # a compiler casts a value once
            for (storage, _), value in zip(wrote, self._casts[cast], strict=True):
                self._value_in[storage] = value
            return
        made = {storage: next(self._numbers) for storage, _ in wrote}
        self._value_in |= made
        results = {made[storage]: size for storage, size in wrote}
        self._bytes |= results
        if is_cast:
            self._casts[cast] = list(results)
        if operator.phase == "forward" and self._latest_phase == "backward":
            self._micro_batch += 1
        self._latest_phase = operator.phase
        call = operator.phase, operator.is_again, "" if self._across_layers else block, self._micro_batch
        kernel = self._kernel_of(operator, call, operands)
        self._add_operands(kernel, operands)
        self._order(kernel)
        kernel.inside |= results.keys()
        self._made_by |= dict.fromkeys(results, kernel)

    def kernels(self) -> list[Kernel]:
        """The kernels of all operators, with what they write."""
        found = [one for one in self._kernels if one.into is None]
        for one in found:  # in order, so that a maker already reads what it computes again
            if one.is_generated:
                self._write_or_recompute(one)
        return found

    def _kernel_of(self, operator: Operator, call: tuple[object, ...], operands: dict[int, int]) -> Kernel:
        is_generated = class_of(operator) == "compiled" and operator.name not in UNFUSED
        is_open = is_generated and not _sums_columns(operator)
        joined = self._to_join(operands, call) if is_open else []
        if not joined:
            bits = 1 << len(self._kernels)
            joined = [Kernel(first=operator, call=call, is_generated=is_generated, is_open=is_open, bits=bits)]
            self._kernels += joined
        for one in joined[1:]:
            joined[0].merge(one)
        return joined[0]

    def _to_join(self, operands: Iterable[int], call: tuple[object, ...]) -> list[Kernel]:
        """Return the kernels that an operator joins: all makers of its operands that it can, and one kernel that reads
        an operand, the latest. They become one in the place of the first returned, which is the latest maker."""
        makers = list(dict.fromkeys(self._made_by[value].now for value in operands if value in self._made_by))
        readers = (one.now for value in operands for one in reversed(self._read_by.get(value, [])))
        joined: list[Kernel] = []
        for kernel in (*reversed(makers), *readers):
            can_join = kernel.is_open and kernel.call == call and kernel not in joined
            if can_join and not _waits_for_itself({*joined, kernel}, makers):
                joined.append(kernel)
                if kernel not in makers:
                    break
        return joined

    def _add_operands(self, kernel: Kernel, operands: dict[int, int]) -> None:
        for value, size in operands.items():
            if value in kernel.inside:
                kernel.used.add(value)
                continue
            kernel.read[value] = max(size, kernel.read.get(value, 0))
            self._read_by.setdefault(value, []).append(kernel)
            if value in self._made_by:
                kernel.after.add(self._made_by[value].now)

    def _order(self, kernel: Kernel) -> None:
        """Find which kernels this one comes after.

        Usually it is the latest kernel, which none comes after. But an operator may have joined an earlier kernel, or
        merged two (so `needs` is 0): then the kernels that come after this one also come after all that it newly needs.
        """
        before, kernel.needs = kernel.needs, 0
        for maker in {one.now for one in kernel.after} - {kernel}:
            kernel.needs |= maker.needs | maker.bits
        if kernel.needs != before and kernel is not self._kernels[-1]:
            for later in self._kernels:
                if later.needs & kernel.bits:
                    later.needs |= kernel.needs | kernel.bits

    def _write_or_recompute(self, kernel: Kernel) -> None:
        """Note which values a kernel writes: all but small ones are computed again if only backward reads them."""
        largest = max((self._bytes[value] for value in kernel.inside), default=0)
        for value in kernel.inside:
            size = self._bytes[value]
            readers = [one.now for one in self._read_by.get(value, []) if one.now is not kernel]
            only_in_backward = kernel.first.phase == "forward" and all(
                one.is_generated and one.first.phase == "backward" for one in readers
            )
            if readers and only_in_backward and size > SMALL_SHARE * largest:
                for reader in readers:
                    reader.read.pop(value, None)
                    reader.read |= kernel.read  # computing it again reads what its maker read
            elif readers or value not in kernel.used:  # or nothing reads it: it is a result
                kernel.wrote[value] = size


def _waits_for_itself(joint: set[Kernel], makers: Iterable[Kernel]) -> bool:
    """Whether these kernels as one, which reads what the makers make, would need a kernel that needs them. If B, which
    is closed, reads what A makes, then an operator that reads what both make cannot join A: A would need B."""
    before = ({maker.now for one in joint for maker in one.after} | {*makers}) - joint
    return any(other.needs & one.bits for other in before for one in joint)


def _sums_columns(operator: Operator) -> bool:
    """Whether it sums over all but the last dimension, as for the gradient of a norm: a kernel of its own."""
    if operator.name in UNFUSED_REDUCTIONS:
        return True
    if operator.name != "sum" or not operator.shapes or not operator.shapes[0]:
        return False
    shape = operator.shapes[0]
    elements = prod(shape)
    size = 4 if operator.dtype == "float32" else 2
    bytes_of_result = operator.bytes - elements * size
    # At most one float32 for each column; sums of rows are more, as a step has more tokens than columns.
    return 0 < bytes_of_result <= 4 * shape[-1] < elements
