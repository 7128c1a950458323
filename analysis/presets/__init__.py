"""Named tables: those of the published reports, and others that each answer one question, for any store.

    timing_tables.py      times of the parts of a training step; warm-up; precision; compilation
    memory_tables.py      peak memory, what makes it up, the largest allocations and residuals; parameters
    layout.py             `Pivot`: values, rows, columns and baseline of a preset without arithmetic of its own

To add a preset, write a `Pivot`, or a function from `Results` to a table, and add a line to GROUPS. A feature has its
presets in GROUPS of its module `presets`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.presets.memory_tables import allocations, parameters, parts, peaks, residuals
from lmsweep.analysis.presets.timing_tables import compiled, end_to_end, precisions, warm_up, warm_up_series
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.trials.analytic.flop_conventions import FlopConvention
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.offered import feature_modules
from lmsweep.trials.spec.suggestions import choices
from lmsweep.trials.store.store import Store


class Preset(NamedTuple):
    make: Callable[[Results], Table | Listing]
    """Raises RequestError if the store lacks the results that the table needs."""
    question: str
    counts_flops: bool = False
    """Whether its numbers depend on how attention's FLOPs are counted."""


GROUPS: dict[str, dict[str, Preset]] = {
    "How long does a step take?": {
        "end-to-end": Preset(end_to_end, "How long do forward, backward and a whole step take on each device?"),
        "warm-up": Preset(warm_up, "How do warm-up iterations change the measured times?"),
        "warm-up-series": Preset(warm_up_series, "How long did each single iteration take?"),
        "precision-speed": Preset(precisions, "By how many per cent does reduced precision change the time?"),
        "compile-speed": Preset(compiled, "How much faster are a compiled step and each of its parts?"),
    },
    "What needs the memory?": {
        "memory": Preset(peaks, "How much memory does an iteration need in each mode?"),
        "memory-parts": Preset(parts, "What makes up peak memory?"),
        "allocations": Preset(allocations, "Which lines of code make the largest allocations?"),
        "residuals": Preset(
            residuals, "Which tensors of one transformer block need the most memory until its backward?"
        ),
        "parameters": Preset(
            parameters, "How many parameters do the models have, and how many FLOPs does a token take?"
        ),
    },
}
"""Question -> the core's presets that answer it, by name."""


@cache
def preset_groups() -> Mapping[str, Mapping[str, Preset]]:
    """Return question -> the presets that answer it, by name: those of features, too."""
    found = {question: dict(named) for question, named in GROUPS.items()}
    for module in feature_modules("presets"):
        for question, named in module.GROUPS.items():
            found.setdefault(question, {}).update(named)
    return found


@cache
def presets() -> Mapping[str, Preset]:
    return {name: preset for named in preset_groups().values() for name, preset in named.items()}


def make_preset(
    name: str,
    store: str | Store,
    *,
    where: dict[str, str] | None = None,
    prices: Sequence[Price] = (),
    flops: FlopConvention | None = None,
) -> Table | Listing:
    """Return the preset table of a store. where: conditions, as in `lmsweep.analysis.pivot`; flops: None is `model`.
    Raises RequestError for an unknown table, a convention that changes nothing in it, and without such results."""
    known = presets()
    if name not in known:
        raise RequestError(f"--preset {name}: no such table{choices(name, known)}")
    if flops and not known[name].counts_flops:
        counting = ", ".join(each for each, preset in known.items() if preset.counts_flops)
        raise RequestError(f"--flops {flops}: the table {name} shows no rate of FLOPs; these do: {counting}")
    return known[name].make(Results(store, where, prices, flops or "model"))
