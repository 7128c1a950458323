"""A workload that is not lmsweep's: the user's own, which a sweep names by reference, or another package's."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import cast

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.code.importing import code_in_use, load
from lmsweep.trials.code.traceback_text import CodeError, defined_at
from lmsweep.trials.results.checked import checked
from lmsweep.trials.results.measurement import Measurement, Yielded
from lmsweep.trials.spec.workloads import Workload


def measure_own(text: str, bench: Workbench) -> Iterator[Yielded]:
    """Yield what a referenced function yields. Raises CodeError or TypeError for what cannot be stored."""
    measure = cast(Callable[[Workbench], object], load(text))
    name = text.rpartition(":")[2]
    return _checked(measure(bench), name, lambda words: CodeError(f"{defined_at(measure, code_in_use())}: {words}"))


def measure_outside(workload: Workload, bench: Workbench) -> Iterator[Yielded]:
    """Yield what another package's workload yields. Raises TypeError if that cannot be stored."""
    return _checked(import_module(workload.module).measure(bench), workload.name, TypeError)


def _checked(found: object, name: str, refused: Callable[[str], Exception]) -> Iterator[Yielded]:
    if not isinstance(found, Iterable):
        raise refused(f"{name} returned a {type(found).__name__}; a workload yields its measurements")
    seen: set[tuple[str, str]] = set()
    for one in found:
        try:
            plain = checked(one)
            if isinstance(plain, Measurement):
                if (plain.phase, plain.metric) in seen:  # readers would take them for those of two processes
                    raise ValueError(f"{plain.phase}.{plain.metric} twice; yield all of its samples together")
                seen.add((plain.phase, plain.metric))
        except ValueError as error:
            words = f"{name} yielded {error}"
            if isinstance(found, Generator):
                with suppress(StopIteration):
                    found.throw(TypeError(words))  # raised at its yield, so that the traceback names the line
            raise refused(words) from None
        yield plain
