"""A simulation of PyTorch's CUDA caching allocator: the blocks it hands out, and the memory it reserves.

The rules are those of PyTorch's c10/cuda/CUDACachingAllocator.cpp (round_size, get_free_block, get_allocation_size,
should_split, try_merge_blocks, release_available_cached_blocks) and c10/core/AllocatorConfig.h, for one stream:

- A request is rounded up to a multiple of 512 bytes. Requests of up to 1 MiB are served from the small pool, larger
  ones from the large pool.
- A request gets the smallest free block of its pool that is large enough; among equal blocks, the one at the lowest
  address.
- If there is none, a segment is reserved. In the small pool it has 2 MiB. In the large pool it has 20 MiB for requests
  below 10 MiB; for others, the size of the request rounded up to a multiple of 2 MiB.
- What the request leaves of its block becomes a free block if it is at least 512 bytes (small pool) or more than 1 MiB
  (large pool). Otherwise the whole block is handed out.
- A freed block is merged with free neighbours. Segments are kept until the device has no room for another one. Then
  all segments without a used block are released, in both pools. If that is not enough, the device is out of memory.
- With `max_split_size_mb`, blocks of that size and more are not split; a smaller request gets none of them, a larger
  one those with less than 20 MiB to spare. Where there is no room, such blocks are released first.
- With `expandable_segments`, each pool is one range of addresses, whose pages of 2 or 20 MiB are mapped as they are
  needed; blocks are split to the last 512 bytes, and the whole pages within free blocks can be released.

Sizes and addresses are counted in units of 512 bytes here.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from copy import copy
from typing import Self

MIB = 2**20
GRAIN = 512
"""Every block is a multiple of this many bytes."""

SMALL = MIB // GRAIN
"""Units of the largest request that the small pool serves."""
PAGES = (20 * MIB // GRAIN, 2 * MIB // GRAIN)
"""Units of a segment, or of a page of an expandable one: [False] in the large pool, [True] in the small one."""
ROUND = 2 * MIB // GRAIN
"""A segment for one large request is a multiple of these units."""
_ADDRESS = 44
"""Bits of an address in the key of a free block: size << 44 | address, so that keys sort by size, then by address."""
_MASK = (1 << _ADDRESS) - 1
_EVER = 1 << 40
"""More units than anything fills. Addresses are below 3 * _EVER, and so have fewer than _ADDRESS bits."""
_SMALL_POOL = 2 * _EVER
"""First address of the small pool with expandable segments; the large pool begins at 0."""

Numbered = list[int] | dict[int, int]
"""A value for each number of an allocation."""


class OutOfMemoryError(Exception):
    """The device has no room for the segment that a request needs."""


class CachingAllocator:
    def __init__(self, limit: int | None = None, way: str = "") -> None:
        """limit: bytes that the device has for segments; None for no limit. way: as PYTORCH_CUDA_ALLOC_CONF says it."""
        self.limit = limit
        name, _, value = way.partition(":")
        self._expands = name == "expandable_segments" and value == "True"
        self._unsplit = int(value) * MIB // GRAIN if name == "max_split_size_mb" else _EVER
        """Units from which a block is not split."""
        self._splits_all = self._unsplit == _EVER
        self.retries = 0
        """Times that all free segments were released."""
        self._allocated = self._reserved = self._most_allocated = self._most_reserved = self._most_needed = 0
        self._spare = 0
        """Units of free blocks that are whole segments, which can be released for other requests; counted only with
        `max_split_size_mb`, where others rarely use them. `_most_needed` is the most of `_reserved - _spare`, which
        rises only where a segment is reserved or a spare one is taken."""
        self._lowest = _EVER
        """Address of the latest segment. Each segment lies below the one before it."""
        self._free: tuple[list[int], list[int]] = ([], [])
        """Sorted keys of the free blocks: [False] in the large pool, [True] in the small one."""
        self._starts: dict[int, int] = {}
        """Address of a free block -> its size."""
        self._ends: dict[int, int] = {}
        """End of a free block -> its address."""
        self._held: dict[int, int] = {}
        """Address of a block that is handed out -> its size."""
        self._segments: dict[int, int] = {}
        """Address of a segment -> its size. Addresses between segments belong to none, so that they never merge."""
        self._unmapped: dict[int, int] = {0: _EVER, _SMALL_POOL: _EVER} if self._expands else {}
        """Address of a hole, a range of an expandable segment without pages -> its size; the last is endless."""

    @property
    def allocated(self) -> int:
        return self._allocated * GRAIN

    @property
    def reserved(self) -> int:
        return self._reserved * GRAIN

    @property
    def peak_allocated(self) -> int:
        return self._most_allocated * GRAIN

    @property
    def peak_reserved(self) -> int:
        return self._most_reserved * GRAIN

    @property
    def peak_needed(self) -> int:
        """Return the most bytes of segments without the free ones that can be released (`_spare`)."""
        return self._most_needed * GRAIN

    @property
    def largest_shared(self) -> int:
        """Return the bytes of the largest request that shares segments: its own, rounded up to ROUND, may be split."""
        return (self._unsplit - ROUND) * GRAIN

    def copied(self) -> Self:
        other = copy(self)
        other._free = (self._free[0].copy(), self._free[1].copy())
        for name in ("_starts", "_ends", "_held", "_segments", "_unmapped"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def allocate(self, requested: int) -> int:
        """Hand out a block for this many bytes, and return its address; the block may be larger."""
        slots = [0]
        self.replay([0], [units_of(requested)], slots)
        return slots[0]

    def free(self, address: int) -> None:
        assert address in self._held, "this block is already free"
        self.replay([~0], [], [address])  # frees what is in slot 0

    def bytes_at(self, address: int) -> int:
        return self._held[address] * GRAIN

    def replay(self, operations: Sequence[int], units: Numbered, slots: Numbered) -> int:
        """Run a sequence: `n` allocates `units[n]` and puts its address into `slots[n]`, `~n` frees what is there.
        Return the most bytes of blocks that are handed out at once meanwhile.

        A prediction replays millions of operations: so this is one loop on local variables, without `_take_out` and
        `_put_in`, and the counts are kept at its end, also when memory runs out.
        """
        frees, starts, ends, held = self._free, self._starts, self._ends, self._held
        splits_all, unsplit = self._splits_all, self._unsplit
        takes_best_fit = splits_all and not self._expands
        least_left = (1 if self._expands else SMALL + 1, 1)  # units for which a block is split: large pool, small pool
        allocated = peak = self._allocated
        try:
            for operation in operations:
                if operation >= 0:
                    wanted = units[operation]
                    is_small = wanted <= SMALL
                    free = frees[is_small]
                    place = bisect_left(free, wanted << _ADDRESS)  # of the smallest block that is large enough
                    if not takes_best_fit:
                        place = self._chosen(free, place, wanted)
                    if place < len(free):
                        key = free.pop(place)
                        start, size = key & _MASK, key >> _ADDRESS
                        del starts[start], ends[start + size]
                    else:
                        start, size = self._grown(wanted, is_small)
                    left = size - wanted
                    # `_chosen` gives blocks of `unsplit` and more only to requests of that size.
                    if left >= least_left[is_small] and wanted < unsplit:  # split the block
                        rest = start + wanted
                        insort(free, left << _ADDRESS | rest)
                        starts[rest] = left
                        ends[start + size] = rest
                        size = wanted
                    held[start] = size
                    slots[operation] = start
                    allocated += size
                    if allocated > peak:
                        peak = allocated
                else:
                    start = slots[~operation]
                    size = held.pop(start)
                    allocated -= size
                    free = frees[size <= SMALL]  # blocks of the small pool are always split to what was requested
                    end = start + size
                    free_before = ends.pop(start, None)  # address of a free block that ends here
                    if free_before is not None:
                        size_before = starts.pop(free_before)
                        del free[bisect_left(free, size_before << _ADDRESS | free_before)]
                        start = free_before
                        size += size_before
                    size_after = starts.pop(end, None)  # of a free block that begins at the end
                    if size_after is not None:
                        del free[bisect_left(free, size_after << _ADDRESS | end)]
                        end += size_after
                        size += size_after
                    insort(free, size << _ADDRESS | start)
                    starts[start] = size
                    ends[end] = start
                    if not splits_all and self._segments.get(start) == size:
                        self._spare += size
        finally:
            self._allocated, self._most_allocated = allocated, max(peak, self._most_allocated)
        return peak * GRAIN

    def _chosen(self, free: list[int], place: int, wanted: int) -> int:
        """Return the place of the free block that is taken, at or after that of the smallest one that is large enough;
        the number of free blocks if none may be. Only for allocators with an option."""
        if place == len(free):
            return place
        if self._expands:  # a block counts as large as it can grow; like PyTorch, look at the next one only
            while place + 1 < len(free) and self._grown_size(free[place + 1]) < self._grown_size(free[place]):
                place += 1
            return place
        size = free[place] >> _ADDRESS
        too_large = self._unsplit if wanted < self._unsplit else wanted + PAGES[False]
        if size >= too_large:  # `max_split_size_mb` keeps large blocks for requests of about their size
            return len(free)
        if self._segments.get(free[place] & _MASK) == size:
            self._spare -= size
            self._most_needed = max(self._most_needed, self._reserved - self._spare)
        return place

    def _grown_size(self, key: int) -> int:
        start, size = key & _MASK, key >> _ADDRESS
        return size + self._unmapped.get(start + size, 0)

    def _grown(self, wanted: int, is_small: bool) -> tuple[int, int]:
        """Return address and size of a block in memory that is taken from the device."""
        take = self._mapped if self._expands else self._new_segment
        block = take(wanted, is_small)
        if block is None and self._released_unsplit(wanted, is_small):
            block = take(wanted, is_small)
        if block is None:
            self.retries += 1
            self._release()
            block = take(wanted, is_small)
        if block is None:
            raise OutOfMemoryError
        return block

    def _reserve(self, size: int) -> bool:
        """Take this memory from the device; return False if it has less."""
        if self.limit is not None and (self._reserved + size) * GRAIN > self.limit:
            return False
        self._reserved += size
        self._most_reserved = max(self._most_reserved, self._reserved)
        self._most_needed = max(self._most_needed, self._reserved - self._spare)
        return True

    def _new_segment(self, wanted: int, is_small: bool) -> tuple[int, int] | None:
        size = PAGES[is_small] if is_small or 2 * wanted < PAGES[False] else round_up(wanted, ROUND)
        if not self._reserve(size):
            return None
        # CUDA assigns addresses downwards from the top. With that order, reserved memory agrees with measurements on an
        # H200 within 1 %; with the opposite order, within 4 %.
        self._lowest -= size + 1
        self._segments[self._lowest] = size
        return self._lowest, size

    def _released_unsplit(self, wanted: int, is_small: bool) -> bool:
        """With `max_split_size_mb`, release free segments that are never split: the smallest that has room for the
        request, else the largest ones until their sum has. Return whether so much was released."""
        if self._splits_all:
            return False
        free, needed = self._free[is_small], max(wanted, self._unsplit)
        place = bisect_left(free, needed << _ADDRESS)  # blocks of `_unsplit` and more are whole segments
        if place < len(free):
            self._drop(free, free[place])
            return True
        released = 0
        while free and released < needed and free[-1] >> _ADDRESS >= self._unsplit:
            released += free[-1] >> _ADDRESS
            self._drop(free, free[-1])
        return released >= needed

    def _release(self) -> None:
        """Release all segments without a used block, or all pages without one."""
        for free, page in zip(self._free, PAGES, strict=True):
            for key in list(free):
                start, size = key & _MASK, key >> _ADDRESS
                if self._expands:
                    self._unmap(free, start, size, page)
                elif self._segments.get(start) == size:
                    self._drop(free, key)

    def _drop(self, free: list[int], key: int) -> None:
        size = self._segments.pop(key & _MASK)
        self._take_out(free, key & _MASK, size)
        self._reserved -= size
        if not self._splits_all:
            self._spare -= size

    def _take_out(self, free: list[int], start: int, size: int) -> None:
        del free[bisect_left(free, size << _ADDRESS | start)], self._starts[start], self._ends[start + size]

    def _put_in(self, free: list[int], start: int, size: int) -> None:
        insort(free, size << _ADDRESS | start)
        self._starts[start], self._ends[start + size] = size, start

    def _unmap(self, free: list[int], start: int, size: int, page: int) -> None:
        """Release the whole pages of a free block of an expandable segment."""
        begin, end = round_up(start, page), (start + size) // page * page
        if begin >= end:
            return
        self._take_out(free, start, size)
        if begin > start:
            self._put_in(free, start, begin - start)
        if end < start + size:
            self._put_in(free, end, start + size - end)
        self._reserved -= end - begin
        end += self._unmapped.pop(end, 0)  # with the holes after and before, if there are any
        begin = next((hole for hole, length in self._unmapped.items() if hole + length == begin), begin)
        self._unmapped[begin] = end - begin

    def _mapped(self, wanted: int, is_small: bool) -> tuple[int, int] | None:
        """Map pages at the lowest address where free blocks and holes have room, and take that block, if all fit."""
        holes = sorted(hole for hole in self._unmapped if (hole >= _SMALL_POOL) == is_small)
        begins = (self._ends.get(hole, hole) for hole in holes)  # with the free block that reaches up to the hole
        start = next(begin for begin in begins if self._has_addresses(begin, wanted))
        while (size := self._starts.get(start, 0)) < wanted:  # `_map` joins hole after hole to the block
            hole = start + size
            pages = min(round_up(wanted - size, PAGES[is_small]), self._unmapped[hole])
            if not self._reserve(pages):
                return None  # what was mapped stays
            self._map(self._free[is_small], hole, pages)
        self._take_out(self._free[is_small], start, size)
        return start, size

    def _map(self, free: list[int], hole: int, pages: int) -> None:
        """Map the first units of a hole, and merge them with the free blocks before and after them::

        free block | hole              | used    ->  larger free block | rest of the hole | used
        free block | hole | free block | used    ->  larger free block                    | used
        """
        if rest := self._unmapped.pop(hole) - pages:
            self._unmapped[hole + pages] = rest
        start, end = self._ends.get(hole, hole), hole + pages
        if start < hole:
            self._take_out(free, start, hole - start)
        if after := self._starts.get(end, 0):
            self._take_out(free, end, after)
        self._put_in(free, start, end + after - start)

    def _has_addresses(self, start: int, wanted: int) -> bool:
        """Whether free blocks and holes from this address on, without a gap, have so many units."""
        size = 0
        while size < wanted and (more := self._starts.get(start + size) or self._unmapped.get(start + size)):
            size += more
        return size >= wanted


def units_of(requested: int) -> int:
    return max(-(-requested // GRAIN), 1)


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
