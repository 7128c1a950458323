"""The kernels that torch.compile makes of the operators of a step: element-wise operators and reductions fuse.

An estimate, without Inductor: an operator joins the latest kernel that makes or reads one of its operands, unless a
matrix product has already read from that kernel. A kernel moves the bytes that enter and leave it. A value of forward
that only kernels of backward read is computed again there, from what the kernel that made it read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lmsweep.trials.analytic.rates.operators import Operator, class_of

SMALL = 0.25
"""Share of a kernel's largest value below which a value is kept for backward, not computed again: a row's norm."""


Storage = tuple[int, int]
"""Its number, and how often a storage of this number was freed before."""


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
    part: object
    """Kernels of different parts never fuse."""
    is_open: bool = True
    inside: set[int] = field(default_factory=set)
    """Values that it makes."""
    used: set[int] = field(default_factory=set)
    """Those of them that it reads itself."""
    read: dict[int, int] = field(default_factory=dict)
    """Values made elsewhere that it reads -> bytes."""
    wrote: dict[int, int] = field(default_factory=dict)
    """Those of its values that are read elsewhere, or not at all."""


class Values:
    """Numbers for the values that storages hold one after the other."""

    def __init__(self) -> None:
        self._now: dict[Storage, int] = {}
        self._count = 0

    def read(self, storage: Storage) -> int:
        if storage not in self._now:
            self.write(storage)
        return self._now[storage]

    def keep(self, storage: Storage, value: int) -> None:
        """Note that a storage holds a value that another one holds too."""
        self._now[storage] = value

    def write(self, storage: Storage) -> int:
        self._count += 1
        self._now[storage] = self._count
        return self._count


def fused(seen: Sequence[Seen], is_compiled: Callable[[Operator], bool], *, across_layers: bool) -> list[Operator]:
    """The kernels of an iteration, in order. `across_layers`: the whole model is one graph."""
    values, kernels = Values(), list[Kernel | Operator]()
    made_by: dict[int, Kernel] = {}
    bytes_of: dict[int, int] = {}
    read_by: dict[int, list[Kernel | None]] = {}
    """Value -> the kernels that read it; None for a matrix product or an operator that is not compiled."""
    cast: dict[tuple[object, ...], list[int]] = {}
    """A cast, by its operand and its size -> the values that it made: a compiler casts a value once."""
    for operator, block, read, wrote in seen:
        operands = {values.read(storage): size for storage, size in read}
        same = (operator.phase, operator.is_again, block, operator.bytes, *operands)
        if operator.name == "_to_copy" and same in cast and is_compiled(operator):
            for (storage, _), value in zip(wrote, cast[same], strict=True):
                values.keep(storage, value)
            continue
        results = {values.write(storage): size for storage, size in wrote}
        bytes_of |= results
        cast[same] = list(results)
        compiled = is_compiled(operator)
        if not compiled or class_of(operator) != "bytes":
            for value in operands:
                read_by.setdefault(value, []).append(None)
                if value in made_by:
                    made_by[value].is_open = False
            kernels.append(replace(operator, is_compiled=compiled))
            continue
        part = operator.phase, operator.is_again, None if across_layers else block
        kernel = None if _sums_columns(operator) else _kernel_to_join(operands, part, made_by, kernels)
        if kernel is None:
            kernel = Kernel(first=operator, part=part, is_open=not _sums_columns(operator))
            kernels.append(kernel)
        for value, size in operands.items():
            if value in kernel.inside:
                kernel.used.add(value)
            else:
                kernel.read[value] = max(size, kernel.read.get(value, 0))
                read_by.setdefault(value, []).append(kernel)
        kernel.inside |= results.keys()
        made_by |= dict.fromkeys(results, kernel)
    for one in kernels:
        if isinstance(one, Kernel):
            _leave(one, bytes_of, read_by)
    return [_operator(one) if isinstance(one, Kernel) else one for one in kernels]


def _kernel_to_join(
    operands: dict[int, int], part: object, made_by: dict[int, Kernel], kernels: Sequence[Kernel | Operator]
) -> Kernel | None:
    makers = [made_by[value] for value in operands if value in made_by]
    found = [one for one in makers if one.is_open and one.part == part]
    if found:
        return found[-1]
    latest = next((one for one in reversed(kernels) if isinstance(one, Kernel)), None)
    shares = latest is not None and any(value in latest.read for value in operands)
    return latest if latest and shares and latest.is_open and latest.part == part else None


def _sums_columns(operator: Operator) -> bool:
    """Whether it sums over all but the last dimension, as for the gradient of a norm: a kernel of its own."""
    if operator.name != "sum" or not operator.shapes or not operator.shapes[0]:
        return False
    shape = operator.shapes[0]
    elements = 1
    for length in shape:
        elements *= length
    size = 4 if operator.dtype == "float32" else 2
    return 0 < operator.bytes - elements * size <= 4 * shape[-1] < elements


def _leave(kernel: Kernel, bytes_of: dict[int, int], read_by: dict[int, list[Kernel | None]]) -> None:
    """Find what the kernel writes; what only kernels of backward read, they compute again."""
    largest = max((bytes_of[value] for value in kernel.inside), default=0)
    for value in kernel.inside:
        readers = [one for one in read_by.get(value, []) if one is not kernel]
        again = [one for one in readers if one is not None and one.first.phase != kernel.first.phase]
        is_final = value not in read_by and value not in kernel.used
        if readers and len(again) == len(readers) and bytes_of[value] > SMALL * largest:
            for reader in again:
                reader.read.pop(value, None)
                reader.read |= kernel.read
        elif readers or is_final:
            kernel.wrote[value] = bytes_of[value]


def _operator(kernel: Kernel) -> Operator:
    moved = sum(kernel.read.values()) + sum(kernel.wrote.values())
    return replace(kernel.first, name="fused", bytes=moved, flops=0, is_compiled=True)
