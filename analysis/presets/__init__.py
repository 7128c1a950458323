"""Tables by name: those of the published reports, and others that answer one question, for any store.

To add one: a function from `Results` to a table, and a line in PRESETS.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.presets import ddp, numbers, operators, profile
from lmsweep.analysis.presets.attention import attention_compiled, attention_grid
from lmsweep.analysis.presets.limits import cost_table, frontier_table, roofline_table, scaling_table
from lmsweep.analysis.presets.memory import allocations, parts, peaks
from lmsweep.analysis.presets.timing import compiled, end_to_end, precisions, warm_up, warm_up_series
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.suggestions import choices
from lmsweep.trials.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A table that has a name."""

    make: Callable[[Results], Table | Listing]
    """Raises RequestError where the store does not hold what it needs."""
    question: str
    """What it answers, in one line."""


PRESETS: dict[str, Preset] = {
    "end-to-end": Preset(make=end_to_end, question="How long are forward, backward and a whole step, on each device?"),
    "warm-up": Preset(make=warm_up, question="What do warm-up iterations change?"),
    "warm-up-series": Preset(make=warm_up_series, question="How long did each single iteration take?"),
    "precision-speed": Preset(make=precisions, question="What does reduced precision change, in per cent of the time?"),
    "compile-speed": Preset(make=compiled, question="How many times as fast is a compiled step, and each part of it?"),
    "attention": Preset(make=attention_grid, question="How long does attention alone take, and what does it hold?"),
    "attention-compile": Preset(
        make=attention_compiled, question="How many times as fast is attention alone when compiled?"
    ),
    "memory": Preset(make=peaks, question="How much memory does an iteration need, in each mode?"),
    "memory-parts": Preset(make=parts, question="What is in memory when most is?"),
    "allocations": Preset(make=allocations, question="Which lines of code ask for the largest pieces of memory?"),
    "parameters": Preset(make=numbers.parameters, question="How large are the models, and what does a token cost?"),
    "accumulation": Preset(make=numbers.accumulation, question="What does adding up in 16 bits lose?"),
    "reciprocal-rms": Preset(make=numbers.reciprocal_rms, question="What does normalising in 16 bits give?"),
    "dtypes-toy": Preset(make=numbers.toy_dtypes, question="Which type has each tensor of the assignment's toy model?"),
    "dtypes": Preset(make=numbers.transformer_dtypes, question="Which type has each tensor of a transformer's step?"),
    "errors": Preset(make=numbers.errors, question="How far are the results of each precision from float64?"),
    "kernels": Preset(
        make=profile.longest_kernels_of_stretches,
        question="Which kernel takes most time in forward, backward and optimizer, and how often does it run?",
    ),
    "kernels-by-range": Preset(
        make=profile.longest_kernels_of_ranges,
        question="Where does the time of a step go, part by part of the model, and to which kernel?",
    ),
    "kernels-all": Preset(make=operators.every_kernel, question="How long is each single kernel, in which range?"),
    "operators": Preset(make=operators.operators, question="What does each of PyTorch's operators take, in a step?"),
    "matmul-share": Preset(
        make=profile.matmul_share, question="How much of the time are matrix products, forward and in all?"
    ),
    "softmax-matmul": Preset(
        make=profile.softmax_against_matmul,
        question="How long is attention's softmax beside its matrix products, for how many FLOPs?",
    ),
    "profile-time": Preset(
        make=profile.profiled_against_timed,
        question="Does the profiled step take as long as the timed one, and as the GPU was busy?",
    ),
    "ddp": Preset(make=ddp.steps, question="What does each way to synchronise gradients cost, and what is hidden?"),
    "ddp-variants": Preset(make=ddp.variants, question="Which way to synchronise gradients is fastest for each model?"),
    "ddp-links": Preset(make=ddp.links, question="How fast is an all-reduce of all gradients by itself?"),
    "ddp-memory": Preset(make=ddp.memory, question="What does each rank hold, and what does ZeRO-1 save?"),
    "roofline": Preset(make=roofline_table, question="How near does a step come to what the device can do?"),
    "scaling": Preset(make=scaling_table, question="How does a step's time grow with the context and the model?"),
    "frontier": Preset(make=frontier_table, question="Which context and batch fitted in memory, and which did not?"),
    "cost": Preset(make=cost_table, question="What do a million tokens cost, in dollars and joules?"),
}


def make_preset(
    name: str,
    store: str | Store,
    *,
    where: dict[str, str] | None = None,
    prices: Sequence[Price] = (),
) -> Table | Listing:
    """The table of this name of a store's results, for `analysis.render`.

    where: keys and what they must read, as for `analysis.pivot`. Raises
    RequestError for another name, and where the store does not hold what the table needs.
    """
    if name not in PRESETS:
        raise RequestError(f"--preset {name}: no such table{choices(name, PRESETS)}")
    return PRESETS[name].make(Results(store, where, prices))
