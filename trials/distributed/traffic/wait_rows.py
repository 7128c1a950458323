"""The rows of what the ranks' computation waits for, and why: the host, the queue, another rank or the link."""

from collections.abc import Iterator, Sequence
from itertools import count, pairwise

from lmsweep.trials.distributed.traffic.block_waits import Needed
from lmsweep.trials.results.measurement import Measurement, Wait, Yielded

REASONS = ("late_host", "late_queue", "late_rank", "late_link")


def wait_rows(ranks: Sequence[Sequence[Needed]], *, same_ranks: bool) -> Iterator[Yielded]:
    """A row `waits` for each collective that each rank needed, and their sums by kind in the rank that waits longest.
    `ranks`: what each rank needed. `same_ranks`: whether all ranks take part in each of these collectives and have one
    clock, so that it is known when the last of them began; otherwise waiting for another rank counts as `link`."""
    began = [dict(_numbered(found)) for found in ranks]
    rows: list[list[Wait]] = []
    for rank, found in enumerate(ranks):
        rows.append([])
        for position, (key, one) in enumerate(_numbered(found), 1):
            others = [other[key].began for other in began if key in other] if same_ranks else []
            host, queue, other_rank, link = _causes(one, max([one.began, *others]))
            row = Wait(
                rank=rank,
                position=position,
                kind=one.kind,
                block=one.block,
                phase=one.phase,
                needed_by=one.needed_by,
                time=(one.ended - one.began) / 1e9,
                late=one.late / 1e9,
                late_host=host,
                late_queue=queue,
                late_rank=other_rank if same_ranks else None,
                late_link=link,
            )
            rows[-1].append(row)
            yield row
    yield from _sums(rows)


def _numbered(found: Sequence[Needed]) -> list[tuple[tuple[str, str, str, int], Needed]]:
    """Each collective with its key, equal on every rank: kind, block, pass, and occurrence index."""
    numbers: dict[tuple[str, str, str], Iterator[int]] = {}
    keys = [(one.kind, one.block, one.phase) for one in found]
    return [((*key, next(numbers.setdefault(key, count()))), one) for key, one in zip(keys, found, strict=True)]


def _causes(one: Needed, last_began: int) -> tuple[float, float, float, float]:
    """Divide a wait into seconds of host, queue, other ranks and link. The host's part is what an earlier launch would
    have saved. The rest is divided at the launch, at the begin, and at the begin on the last rank."""
    earlier = max(0, one.issued - one.possible)
    edges = [one.needed]
    for moment in (one.issued, one.began, last_began, one.ended):
        edges.append(max(edges[-1], min(moment, one.ended) - earlier))
    launch, queue, rank, link = ((after - before) / 1e9 for before, after in pairwise(edges))
    saved = (one.late - (edges[-1] - edges[0])) / 1e9
    return saved + launch, queue, rank, link


def _sums(rows: Sequence[Sequence[Wait]]) -> Iterator[Measurement]:
    longest = max(rows, key=lambda of_rank: sum(row.late for row in of_rank))
    for kind in dict.fromkeys(row.kind for row in longest):
        found = [row for row in longest if row.kind == kind]
        number = sum(row.late > 0 for row in found)
        yield Measurement(phase=kind, metric="late_calls", unit="1", samples=(number,))
        yield Measurement(phase=kind, metric="late_time", unit="s", samples=(sum(row.late for row in found),))
        for reason in REASONS:
            parts = [part for row in found if (part := getattr(row, reason)) is not None]
            unknown = None if parts else "not all ranks take part in each of them, or their clocks differ"
            total = (sum(parts),) if parts else None
            yield Measurement(phase=kind, metric=reason, unit="s", samples=total, reason=unknown)
