"""Times iterations without launch delays: they are queued on a sleeping GPU and run back to back when it wakes.

An interval that begins on an idle GPU includes the launch of its first kernel: 50 to 150 us, most of a short kernel's
time. Here a kernel that only waits (`torch.cuda._sleep`) occupies the GPU while the host launches several iterations
behind it, as in a training loop and in `triton.testing.do_bench`.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from lmsweep.trials.machine.gpu.accelerator import can_wait, device_module
from lmsweep.trials.machine.torch_private import sleep_on
from lmsweep.trials.spec.words import Auto
from lmsweep.trials.timing.clock import Clock, Iteration, Phase, clock_for, time_iteration

MAX_QUEUED = 20
"""Iterations of a group. Fewer make more pauses between groups, in which a GPU at its power limit cools and its clocks
rise; more take the host longer to launch than the GPU can sleep."""
MAX_QUEUED_SECONDS = 0.2
"""Longest time that the iterations of a group may take together. Of longer ones a launch is a small part."""
FIRST_SLEEP, LONGEST_SLEEP = 1_000_000, 512_000_000
"""Clock cycles that the GPU sleeps: 0.5 ms and 0.3 s at 2 GHz."""


class QueuedTimer:
    """Times the phases of an iteration, which run back to back; each call returns one iteration. On CUDA up to
    MAX_QUEUED iterations are queued behind a sleep. On other devices each call times one iteration by the device's
    clock, because there is no launch to hide."""

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
        """warmup, measured: numbers of iterations before and after `begin_measuring`; no more are queued. `before_each`
        runs before every phase, `drop` after every iteration; neither is timed."""
        self.phases = phases
        self._device_type = device_type
        self._queues = can_wait(device_type)
        self._device = device_module(device_type)
        self._left, self._measured = warmup, measured  # _left: iterations until the warm-up, or the measuring, ends
        self._before_each = before_each
        self._drop = drop
        self._group_size = 1
        self._sleep = FIRST_SLEEP
        self._queued: deque[Iteration] = deque()
        self.fell_behind = False
        """Whether the GPU reached an iteration before the host had launched it, even behind the longest sleep."""

    def __call__(self) -> Iteration:
        """Return the times of the next iteration. The device has finished it."""
        if not self._queues:
            return self.from_idle()
        if not self._queued:
            count = self._group_size if self._left == "auto" else max(1, min(self._group_size, self._left))
            self._queued.extend(self._take(count))
            self._group_size = max(1, min(MAX_QUEUED, int(MAX_QUEUED_SECONDS / self._queued[-1].step)))
        if self._left != "auto":
            self._left -= 1
        return self._queued.popleft()

    def begin_measuring(self) -> None:
        """Discard what was queued with the last warm-up iteration. Call this when the warm-up has ended."""
        self._queued.clear()
        self._left = self._measured
        self.fell_behind = False

    def from_idle(self, clock: Clock | None = None) -> Iteration:
        """Run one iteration whose phases each begin on an idle device, so their times include the launch."""
        clock = clock or clock_for(self._device_type)
        taken = []
        for phase in self.phases:
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
        """Queue `count` iterations and wait for them. If the host did not stay ahead, retry behind a longer sleep."""
        while True:
            self._device.synchronize()
            sleep_on(self._device, self._sleep)
            marked = [self._enqueue() for _ in range(count)]
            stayed_ahead = all(one.is_ahead for one in marked)
            self._device.synchronize()
            if stayed_ahead or self._sleep >= LONGEST_SLEEP:
                self.fell_behind |= not stayed_ahead
                return [one.iteration() for one in marked]
            self._sleep *= 2

    def _enqueue(self) -> "_Marked":
        began = time.perf_counter_ns()
        marks = []
        for phase in self.phases:
            if self._before_each:
                self._before_each()
            marks.append(self._event())
            phase.run()
            marks.append(self._event())
        self._drop()
        return _Marked(
            marks=marks,
            is_interrupted=self._before_each is not None,
            enqueue=(time.perf_counter_ns() - began) / 1e9,
            is_ahead=not marks[0].query(),
        )

    def _event(self) -> torch.cuda.Event:
        event: torch.cuda.Event = self._device.Event(enable_timing=True)
        event.record()
        return event


@dataclass(frozen=True, kw_only=True)
class _Marked:
    """An iteration that has been launched, with an event at the beginning and end of each phase."""

    marks: Sequence[torch.cuda.Event]
    is_interrupted: bool
    """Whether untimed work ran between the phases."""
    enqueue: float
    """Seconds that the host took to launch it."""
    is_ahead: bool
    """Whether the host launched all of it before the GPU reached it."""

    def iteration(self) -> Iteration:
        """Return its times. Call this only after the GPU has finished it."""
        ends = zip(self.marks[::2], self.marks[1::2], strict=True)
        phases = tuple(begin.elapsed_time(end) / 1e3 for begin, end in ends)
        whole = self.marks[0].elapsed_time(self.marks[-1]) / 1e3
        return Iteration(phases=phases, step=sum(phases) if self.is_interrupted else whole, enqueue=self.enqueue)
