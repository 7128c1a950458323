"""The user's own workload: a function `measure(bench)` that a sweep names by reference."""

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.code.importing import code_in_use, load
from lmsweep.trials.code.traceback_text import CodeError, defined_at
from lmsweep.trials.results.measurement import Yielded


def measure_own(text: str, bench: Workbench) -> Iterator[Yielded]:
    """Yield what the function that a reference names yields.

    Raises CodeError if it yields anything but measurements, detail rows and files, and what the user's code raises.
    """
    measure = cast(Callable[[Workbench], object], load(text))
    found = measure(bench)
    if not isinstance(found, Iterable):
        raise _misfit(measure, text, f"returned a {type(found).__name__}; a workload yields its measurements")
    for one in found:
        if not isinstance(one, Yielded):
            raise _misfit(measure, text, f"yielded a {type(one).__name__}; it must be a Measurement")
        yield one


def _misfit(measure: object, text: str, words: str) -> CodeError:
    return CodeError(f"{defined_at(measure, code_in_use())}: {text.rpartition(':')[2]} {words}")
