"""The simulated allocator, rule by rule. test_measured_memory.py holds what it says of whole trials against an H200."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmsweep.trials.prediction.depth.shape_growth import FITTED, shape_growth
from lmsweep.trials.prediction.many_steps.step_program import StepProgram
from lmsweep.trials.prediction.without_device.allocation_trace import Stretch, runs_within
from lmsweep.trials.prediction.without_device.caching_allocator import MIB, CachingAllocator, OutOfMemoryError


def test_what_is_wholly_free_goes_back_to_the_device_when_there_is_no_room_for_another_segment() -> None:
    allocator = CachingAllocator(limit=62 * MIB)
    allocator.free(allocator.allocate(30 * MIB))
    allocator.free(allocator.allocate(512))
    allocator.allocate(20 * MIB)  # of the 30
    assert allocator.reserved == 32 * MIB
    kept = allocator.allocate(30 * MIB)
    assert allocator.reserved == 62 * MIB
    allocator.free(kept)
    allocator.allocate(32 * MIB)
    assert allocator.reserved == 62 * MIB  # 30 and 2 went back


def test_a_request_fails_if_what_is_free_lies_between_blocks_or_is_too_little() -> None:
    allocator = CachingAllocator(limit=40 * MIB)
    allocator.free(allocator.allocate(30 * MIB))
    small = allocator.allocate(12 * MIB)
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(20 * MIB)
    assert (allocator.allocated, allocator.reserved) == (12 * MIB, 30 * MIB)
    allocator.free(small)
    assert allocator.bytes_at(allocator.allocate(40 * MIB)) == allocator.reserved == 40 * MIB


def test_a_phase_that_ends_with_its_first_product_has_its_workspace_too() -> None:
    trace = [Stretch(phase="forward", events=[(0, 2 * MIB)], first_product=1)]
    assert runs_within(trace, 52 * MIB, workspace=32 * MIB) and not runs_within(trace, 51 * MIB, workspace=32 * MIB)


def test_such_a_phase_has_its_workspace_in_a_program_of_many_steps_as_well() -> None:
    trace = [Stretch(phase="init")]
    for piece in range(3):  # one in each iteration
        trace.append(Stretch(phase="forward", events=[(piece, 512)], first_product=None if piece else 1))
        trace.append(Stretch(phase="dropped", events=[(piece, -512)]))
    growth = shape_growth(dict.fromkeys(FITTED, trace), 512)
    assert growth is not None
    program, workspace = StepProgram(growth=growth, longest=1, workspace=512), 3
    assert program.step(0, [1] * program.pieces) == [0, workspace, ~0]


sizes = st.one_of(st.integers(1, 4096), st.integers(1, 4 * MIB), st.integers(9 * MIB, 40 * MIB))


@given(st.lists(st.tuples(sizes, st.none() | st.integers(0, 30)), max_size=60))
def test_blocks_hold_what_was_requested_and_never_overlap_and_all_freed_is_as_new(
    steps: list[tuple[int, int | None]],
) -> None:
    """Each step allocates so many bytes and may then free one of the blocks that are handed out."""
    allocator = CachingAllocator()
    handed_out: list[tuple[int, int]] = []
    for requested, freed in steps:
        handed_out.append((requested, allocator.allocate(requested)))
        if freed is not None and freed < len(handed_out):
            allocator.free(handed_out.pop(freed)[1])
        assert allocator.allocated == sum(allocator.bytes_at(block) for _, block in handed_out) <= allocator.reserved
        assert all(requested <= allocator.bytes_at(block) < requested + MIB + 512 for requested, block in handed_out)
        ranges = sorted((512 * block, 512 * block + allocator.bytes_at(block)) for _, block in handed_out)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(ranges))
    reserved = allocator.reserved
    for _, block in handed_out:
        allocator.free(block)
    assert (allocator.allocated, allocator.reserved) == (0, reserved)
    everything = allocator.limit = max(reserved, 20 * MIB)  # only segments that are whole again can be released for it
    assert allocator.bytes_at(allocator.allocate(everything)) == allocator.reserved == everything


def test_expandable_segments_map_pages_as_they_are_needed_and_leave_no_gap_between_sizes() -> None:
    allocator = CachingAllocator(way="expandable_segments:True")
    first = allocator.allocate(30 * MIB)
    assert allocator.reserved == 40 * MIB  # two pages of 20 MiB
    allocator.free(first)
    assert allocator.allocate(50 * MIB) == first  # which grows
    assert allocator.reserved == 60 * MIB
    allocator.allocate(512)
    assert allocator.reserved == 62 * MIB  # a page of the small pool


def test_expandable_segments_give_back_the_whole_pages_of_free_blocks_when_there_is_no_room() -> None:
    allocator = CachingAllocator(limit=100 * MIB, way="expandable_segments:True")
    blocks = [allocator.allocate(30 * MIB) for _ in range(3)]  # 90 of 100 MiB
    allocator.free(blocks[1])  # of its 30 MiB, one page lies wholly within it
    allocator.allocate(35 * MIB - 10 * MIB)  # the block itself
    assert allocator.retries == 0
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(35 * MIB)
    allocator.free(blocks[0])
    allocator.free(blocks[2])
    assert allocator.allocate(35 * MIB) and allocator.retries > 0


def test_blocks_of_max_split_size_are_not_split_and_serve_requests_of_about_their_size() -> None:
    allocator = CachingAllocator(way="max_split_size_mb:128")
    large = allocator.allocate(200 * MIB)
    allocator.free(large)
    assert allocator.allocate(100 * MIB) != large  # it would be split
    assert allocator.allocate(150 * MIB) != large  # 50 MiB would be left, 20 may be
    assert allocator.allocate(190 * MIB) == large
    assert allocator.reserved == 450 * MIB


def test_blocks_of_max_split_size_go_back_first_when_there_is_no_room() -> None:
    allocator = CachingAllocator(limit=400 * MIB, way="max_split_size_mb:128")
    small, large = allocator.allocate(100 * MIB), allocator.allocate(200 * MIB)
    allocator.free(small)
    allocator.free(large)
    allocator.allocate(150 * MIB)
    assert (allocator.reserved, allocator.retries) == (250 * MIB, 0)  # the block of 100 stays


def test_memory_that_the_allocator_would_release_for_others_is_not_needed() -> None:
    """Two blocks of 64 and 192 MiB that are never split: the free one is released for the other where room is short."""
    large, larger = 64 * 2**20, 192 * 2**20
    for limit in (2**30, larger):
        allocator = CachingAllocator(limit, "max_split_size_mb:32")
        allocator.free(allocator.allocate(large))
        allocator.free(allocator.allocate(larger))
        assert allocator.peak_reserved == (large + larger if limit == 2**30 else larger)
        assert allocator.peak_needed == larger
