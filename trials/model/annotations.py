"""Ranges: names for stretches of a step, which PyTorch's profiler and NVIDIA's nsys see."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import nvtx
from torch.compiler import is_compiling
from torch.profiler import record_function

_on = False


class Range:
    """A named stretch of the work that is launched inside, where `ranges_on` holds.

    Elsewhere it is nothing, a third of a microsecond; so it is in a compiled graph, whose kernels belong to no
    stretch of the code. The names are those of `lmsweep.trials.results.measurement.RANGES`.
    """

    __slots__ = ("_name", "_record")

    def __init__(self, name: str) -> None:
        self._name = name
        self._record: record_function | None = None

    def __enter__(self) -> None:
        # The compiler is asked first: dynamo would otherwise make the switch a condition of every compiled graph.
        if is_compiling() or not _on:
            return
        nvtx.push_range(self._name)
        self._record = record_function(self._name)
        self._record.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._record is not None:
            self._record.__exit__(kind, error, trace)
            nvtx.pop_range()


@contextmanager
def ranges_on() -> Iterator[None]:
    """Inside, ranges are seen by whatever profiler looks on."""
    global _on
    _on = True
    try:
        yield
    finally:
        _on = False
