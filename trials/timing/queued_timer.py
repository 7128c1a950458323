"""Intervals without the host: iterations are queued on a GPU that sleeps, and follow one another when it wakes.

An interval that begins on an idle GPU also holds the launch of its first kernel, 50 to 150 us, which is most of a short
kernel's time. Here a kernel that only waits (`torch.cuda._sleep`) occupies the GPU while the host launches several
iterations behind it. Then none of them waits for the host, and the GPU keeps the clocks of a GPU at work, as in a
training loop and in `triton.testing.do_bench`.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from lmsweep.trials.spec.config import Auto
from lmsweep.trials.timing.clock import Clock, Iteration, Phase, clock_for, time_iteration

AT_ONCE = 20
"""Iterations that are queued together at most: the pause between such groups lets a GPU cool that is at its power
limit, and its clocks rise."""
SECONDS_AT_ONCE = 0.2
"""Fewer are queued together where they would take longer than this."""
FIRST_SLEEP, LONGEST_SLEEP = 1_000_000, 512_000_000
"""Cycles that the GPU sleeps: 0.5 ms and 0.3 s at 2 GHz."""


class QueuedTimer:
    """Times the phases of an iteration, which follow one another without a pause; each call takes one iteration.

    On CUDA up to AT_ONCE iterations are queued behind a sleep. On other devices each call runs one iteration by the
    device's clock, as there is no launch to hide.
    """

    def __init__(
        self,
        phases: Sequence[Phase],
        device_type: str,
        *,
        warmup: int | Auto,
        measured: int | Auto,
        before_each: Callable[[], object] | None = None,
        drop: Callable[[], object] = lambda: None,
    ) -> None:
        """warmup, measured: iterations before `begin_measuring` and after it; no more are queued. `before_each` runs
        before every phase, `drop` after every iteration; neither is timed.
        """
        self._phases = phases
        self._device_type = device_type
        self._left, self._measured = warmup, measured
        self._before_each = before_each
        self._drop = drop
        self._at_once = 1
        self._sleep = FIRST_SLEEP
        self._queued: deque[Iteration] = deque()
        self.waited_for_host = False
        """Whether the GPU reached an iteration before the host had launched it, in spite of the longest sleep."""

    def __call__(self) -> Iteration:
        """The next iteration, which has ended."""
        if self._device_type != "cuda":
            return self.from_idle()
        if not self._queued:
            count = self._at_once if self._left == "auto" else max(1, min(self._at_once, self._left))
            self._queued.extend(self._take(count))
            self._at_once = max(1, min(AT_ONCE, int(SECONDS_AT_ONCE / self._queued[-1].step)))
        if self._left != "auto":
            self._left -= 1
        return self._queued.popleft()

    def begin_measuring(self) -> None:
        """To be called when the warm-up has ended: what was queued with its last iteration is no measured one."""
        self._queued.clear()
        self._left = self._measured
        self.waited_for_host = False

    def from_idle(self, clock: Clock | None = None) -> Iteration:
        """One iteration whose phases each begin on an idle device, so that their times hold the launch; by this clock
        or the device's.
        """
        clock = clock or clock_for(self._device_type)
        taken = []
        for phase in self._phases:
            if self._before_each:
                self._before_each()
            taken.append(time_iteration([phase], clock))
        self._drop()
        enqueued = [one.enqueue for one in taken if one.enqueue is not None]
        return Iteration(
            phases=tuple(one.step for one in taken),
            step=sum(one.step for one in taken),
            enqueue=sum(enqueued) if enqueued else None,
        )

    def _take(self, count: int) -> list[Iteration]:
        """Queues so many iterations and waits for them; behind a longer sleep, if the host did not stay ahead."""
        while True:
            torch.cuda.synchronize()
            torch.cuda._sleep(self._sleep)
            marked = [self._enqueue() for _ in range(count)]
            stayed_ahead = all(one.is_ahead for one in marked)
            torch.cuda.synchronize()
            if stayed_ahead or self._sleep >= LONGEST_SLEEP:
                self.waited_for_host |= not stayed_ahead
                return [one.iteration() for one in marked]
            self._sleep *= 2

    def _enqueue(self) -> "_Marked":
        began = time.perf_counter_ns()
        marks = []
        for phase in self._phases:
            if self._before_each:
                self._before_each()
            marks.append(_event())
            phase.run()
            marks.append(_event())
        self._drop()
        return _Marked(
            marks=marks,
            is_interrupted=self._before_each is not None,
            enqueue=(time.perf_counter_ns() - began) / 1e9,
            is_ahead=not marks[0].query(),
        )


@dataclass(frozen=True, kw_only=True)
class _Marked:
    """An iteration on its way: events at the beginning and end of each phase."""

    marks: Sequence[torch.cuda.Event]
    is_interrupted: bool
    """Whether something that is not timed ran between the phases."""
    enqueue: float
    """Seconds that the host took to launch it."""
    is_ahead: bool
    """Whether the GPU had not come to it when the host had launched all of it."""

    def iteration(self) -> Iteration:
        """Once the GPU has ended it."""
        ends = zip(self.marks[::2], self.marks[1::2], strict=True)
        phases = tuple(begin.elapsed_time(end) / 1e3 for begin, end in ends)
        whole = self.marks[0].elapsed_time(self.marks[-1]) / 1e3
        return Iteration(phases=phases, step=sum(phases) if self.is_interrupted else whole, enqueue=self.enqueue)


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
