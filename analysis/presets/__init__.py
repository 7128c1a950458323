"""Named tables: those of the published reports, and others that each answer one question, for any store.

    timing_tables.py      times of the parts of a training step; warm-up; reduced precision; compilation
    attention_tables.py   times and memory of attention alone
    memory_tables.py      peak memory, what makes it up, the largest allocations and residuals
    numbers_tables.py     reduced precision: sums, dtypes and errors; parameters of the models
    profile_tables.py     kernel time of a step by phase and by range
    operators_tables.py   PyTorch operators and single kernels, as profilers list them
    ddp_tables.py         data-parallel training: synchronisation, links and memory of each rank
    upgrade.py            what another release of the software brings
    limits_tables.py      roofline, scaling, sharding, largest sizes that fit, cost
    layout.py             the row and column keys that presets share

To add a preset, write a function from `Results` to a table and add a line to PRESETS.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.presets import ddp_tables as ddp
from lmsweep.analysis.presets import numbers_tables as numbers
from lmsweep.analysis.presets import operators_tables as operators
from lmsweep.analysis.presets import profile_tables as profile
from lmsweep.analysis.presets.attention_tables import attention_compiled, attention_grid, attention_rates
from lmsweep.analysis.presets.limits_tables import (
    break_even_table,
    cost_table,
    frontier_table,
    roofline_table,
    scaling_limits_table,
    scaling_table,
    sharding_table,
)
from lmsweep.analysis.presets.memory_tables import allocations, parts, peaks, residuals
from lmsweep.analysis.presets.timing_tables import compiled, end_to_end, precisions, warm_up, warm_up_series
from lmsweep.analysis.presets.upgrade import upgrade
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.trials.analytic.flop_conventions import FlopConvention
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.suggestions import choices
from lmsweep.trials.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named table."""

    make: Callable[[Results], Table | Listing]
    """Makes the table. Raises RequestError if the store lacks the results that it needs."""
    question: str
    """The question that the table answers, in one line."""
    counts_flops: bool = False
    """Whether its numbers depend on how attention's FLOPs are counted."""


PRESETS: dict[str, Preset] = {
    "end-to-end": Preset(
        make=end_to_end, question="How long do forward, backward and a whole step take on each device?"
    ),
    "warm-up": Preset(make=warm_up, question="How do warm-up iterations change the measured times?"),
    "warm-up-series": Preset(make=warm_up_series, question="How long did each single iteration take?"),
    "precision-speed": Preset(make=precisions, question="By how many per cent does reduced precision change the time?"),
    "compile-speed": Preset(make=compiled, question="How much faster are a compiled step and each of its parts?"),
    "attention": Preset(make=attention_grid, question="How much time and memory does attention alone need?"),
    "attention-rates": Preset(
        make=attention_rates, question="How many FLOP/s does attention alone reach?", counts_flops=True
    ),
    "attention-compile": Preset(make=attention_compiled, question="How much faster is attention alone when compiled?"),
    "memory": Preset(make=peaks, question="How much memory does an iteration need in each mode?"),
    "memory-parts": Preset(make=parts, question="What makes up peak memory?"),
    "allocations": Preset(make=allocations, question="Which lines of code make the largest allocations?"),
    "residuals": Preset(
        make=residuals, question="Which tensors of one transformer block need the most memory until its backward?"
    ),
    "parameters": Preset(
        make=numbers.parameters,
        question="How many parameters do the models have, and how many FLOPs does a token take?",
    ),
    "accumulation": Preset(make=numbers.accumulation, question="How much accuracy does a sum in 16 bits lose?"),
    "reciprocal-rms": Preset(make=numbers.reciprocal_rms, question="What does normalisation in 16 bits compute?"),
    "dtypes-toy": Preset(
        make=numbers.toy_dtypes, question="Which dtype does each tensor of the assignment's toy model have?"
    ),
    "dtypes": Preset(
        make=numbers.transformer_dtypes, question="Which dtype does each tensor of a transformer's step have?"
    ),
    "errors": Preset(make=numbers.errors, question="How far are the results of each precision from float64?"),
    "kernels": Preset(
        make=profile.longest_kernels_by_phase,
        question="Which kernel takes the most time in forward, backward and optimizer, and how often does it run?",
    ),
    "kernels-by-range": Preset(
        make=profile.longest_kernels_by_range,
        question="How is the time of a step divided among the parts of the model, and which kernel dominates each?",
    ),
    "kernels-all": Preset(make=operators.every_kernel, question="How much time does each kernel take in each range?"),
    "operators": Preset(make=operators.operators, question="How much time does each PyTorch operator take in a step?"),
    "matmul-share": Preset(
        make=profile.matmul_share, question="What share of the kernel time are matrix products, by phase and in total?"
    ),
    "softmax-matmul": Preset(
        make=profile.softmax_against_matmul,
        question="How do time and FLOPs of attention's softmax compare with those of its matrix products?",
    ),
    "profile-time": Preset(
        make=profile.profiled_against_timed,
        question="Does the kernel time of the profiled step agree with the timed step and the GPU's busy time?",
    ),
    "ddp": Preset(
        make=ddp.steps, question="How much time does each gradient synchronisation take, and how much of it is hidden?"
    ),
    "ddp-variants": Preset(make=ddp.variants, question="Which gradient synchronisation is fastest for each model?"),
    "ddp-links": Preset(make=ddp.links, question="How fast is an all-reduce of all gradients in isolation?"),
    "ddp-memory": Preset(make=ddp.memory, question="How much memory does each rank use, and what does ZeRO-1 save?"),
    "ddp-traffic": Preset(
        make=ddp.traffic, question="Which collectives does a step run, and how many bytes does each rank send?"
    ),
    "ddp-stages": Preset(make=ddp.stages, question="What does a rank hold after init, around a step and at its peak?"),
    "late-gathers": Preset(
        make=ddp.late_gathers,
        question="Which all-gathers of sharded weights end too late, by how much, and is it the host or the link?",
    ),
    "collectives": Preset(
        make=ddp.collectives, question="How fast is each collective by itself, for small and large messages?"
    ),
    "roofline": Preset(
        make=roofline_table,
        question="How close does a step come to the limits of its device?",
        counts_flops=True,
    ),
    "scaling": Preset(
        make=scaling_table,
        question="How does the time of a step grow with context length and model?",
        counts_flops=True,
    ),
    "scaling-limits": Preset(
        make=scaling_limits_table,
        question="From how many ranks on does communication take longer than computation?",
    ),
    "sharding": Preset(
        make=sharding_table,
        question="How much memory do ZeRO-1 and FSDP save on each rank, at each moment of a step?",
    ),
    "frontier": Preset(
        make=frontier_table, question="What is the largest context length and batch size that fits in memory?"
    ),
    "break-even": Preset(make=break_even_table, question="After how many steps has compiling paid?"),
    "upgrade": Preset(make=upgrade, question="What does another release of torch, or of other software, bring?"),
    "cost": Preset(make=cost_table, question="What do a million tokens cost in dollars and joules?"),
}


def make_preset(
    name: str,
    store: str | Store,
    *,
    where: dict[str, str] | None = None,
    prices: Sequence[Price] = (),
    flops: FlopConvention | None = None,
) -> Table | Listing:
    """Return the preset table of this name for a store, for `lmsweep.analysis.render`.

    where: keys and the values they must have, as for `lmsweep.analysis.pivot`. flops: how attention's FLOPs are
    counted; None is `model`. Raises RequestError for an unknown name, for a convention that changes nothing in this
    table, and if the store lacks the results that the table needs.
    """
    if name not in PRESETS:
        raise RequestError(f"--preset {name}: no such table{choices(name, PRESETS)}")
    if flops and not PRESETS[name].counts_flops:
        counting = ", ".join(each for each, preset in PRESETS.items() if preset.counts_flops)
        raise RequestError(f"--flops {flops}: the table {name} shows no rate of FLOPs; these do: {counting}")
    return PRESETS[name].make(Results(store, where, prices, flops or "model"))
