"""The tables of limits and costs: roofline, scaling, the largest sizes that fit in memory, when compiling pays."""

import pandas as pd

from lmsweep.analysis.data.columns import in_order
from lmsweep.analysis.data.results import Results, nothing
from lmsweep.analysis.data.selection import how_counted, with_above_peak
from lmsweep.analysis.presets import Preset
from lmsweep.analysis.presets.layout import with_flags
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys
from lmsweep.orchestrator.features.limits.communication_limits import LIMITS, PARTS, scaling_limits, sharding
from lmsweep.orchestrator.features.limits.cost import break_even, cost
from lmsweep.orchestrator.features.limits.roofline import roofline
from lmsweep.orchestrator.features.limits.scaling import frontier, scaling
from lmsweep.trials.spec.config import RequestError

_SIZES = ("largest_ok", "smallest_oom")


def roofline_table(results: Results) -> Listing:
    """Rate, MFU, share of the measured ceiling, arithmetic intensity, and the roof that it implies."""
    rows, keys = _ordered_steps(roofline(results.of("timing"), results.everything))
    columns = ["rate", "mfu", "of_ceiling", "intensity", "roof", "of_roof"]
    frame = with_flags(rows[[*keys, *columns]], rows)
    return Listing(
        title=f"Matrix-product rate of a step against the limits of its device; {how_counted(rows)}",
        frame=frame.assign(flags=with_above_peak(frame["flags"], rows["mfu"], rows["device_name"])),
        keys=keys,
        units={"rate": "FLOP/s", "mfu": "share", "of_ceiling": "share", "intensity": "FLOP/B", "roof": "FLOP/s"}
        | {"of_roof": "share"},
        conditions=common_conditions(rows, keys),
        notes=[
            "mfu: share of the datasheet's dense peak in the arithmetic used; of_ceiling: share of the rate of a large "
            "matrix product, measured on this device by `lmsweep run ceiling` (- if it is not in the store)",
            "intensity: arithmetic intensity (FLOP/byte) over the minimum memory traffic of an eager step; roof: the "
            "rate attainable at this intensity, if no cache holds the data",
        ],
    )


def cost_table(results: Results) -> Listing:
    """Speed in tokens per second; dollars and joules per million tokens."""
    rows, keys = _ordered_steps(cost(results.measurements, results.prices))
    keys = keys if "device_name" in keys else [*keys, "device_name"]
    ends = [f"{name}{end}" for name in ("tokens_per_second", "dollars") for end in ("", "_low", "_high")]
    busy = ["device_dollars"] if rows["device_dollars"].notna().any() else []
    return Listing(
        title="Cost per million tokens",
        frame=with_flags(rows[[*keys, *busy, *ends, "joules"]], rows),
        keys=keys,
        units=dict.fromkeys((*busy, "dollars"), "$/Mtoken") | {"tokens_per_second": "tokens/s", "joules": "J/Mtoken"},
        conditions=common_conditions(rows, keys),
        notes=[
            "dollars: one device at the price given with --price; joules: the device alone, by its own energy counter, "
            "if the workload `energy` ran on the same trial",
            *(["device_dollars: if the GPU never waited; a faster host saves the rest"] if busy else []),
        ],
    )


def scaling_table(results: Results) -> Listing:
    """Exponents of the time of a step over context length and over parameters."""
    frame = results.of("timing")
    times = _ordered(frame[(frame["phase"] == "step") & (frame["metric"] == "time")])
    exponents = scaling(times)
    if exponents.empty:
        raise RequestError(
            "a fit needs three context lengths or three models with the same other conditions, and the store has none"
        )
    keys = [str(name) for name in exponents if name in frame or name == "along"]  # the others are results of the fit
    return Listing(
        title="Scaling of the time of a step: time ~ along^exponent (with 95 % interval)",
        frame=exponents,
        keys=keys,
        units={"least": "1", "most": "1", "points": "1", "exponent": "1", "flops_exponent": "1"},
        conditions=common_conditions(times, keys),
        notes=[
            f"flops_exponent: the exponent of the FLOPs of matrix products over the same points; {how_counted(times)}"
        ],
    )


def scaling_limits_table(results: Results) -> Listing:
    """Number of ranks above which each way to divide a model is bound by communication."""
    rows = scaling_limits(results.measurements)
    if rows.empty:
        raise nothing("ddp")
    keys = ["model", "tokens", "precision", "device_name"]
    origins = [name for name in ("flops_from", "bandwidth_from") if rows[name].notna().any()]
    return Listing(
        title="Ranks above which communication takes longer than computation",
        frame=rows[[*keys, "flops", "bandwidth", *origins, *LIMITS]],
        keys=keys,
        units={"tokens": "1", "flops": "FLOP/s", "bandwidth": "B/s"} | dict.fromkeys(LIMITS, "1"),
        notes=[
            "tokens: of all ranks; data_parallel: DDP and FSDP, forward and backward alike; tensor_parallel: forward, "
            "which is bound before backward is; mesh: FSDP x TP, whose gathers and reductions overlap; "
            "serial_mesh: they take turns on the links. Of a feed-forward layer, with ring collectives that overlap "
            "with computation (the formulas are in lmsweep.orchestrator.features.limits.communication_limits)",
            "elements: of 16 bits with a precision of 16 bits, as of activations. Under autocast DDP and FSDP send "
            "float32, so that data_parallel - 1 is half as large, or two thirds as large with gather bf16, whose "
            "gradients stay float32",
            "flops: rate of a large matrix product if `lmsweep run ceiling` has measured it here, else of the "
            "datasheet; bandwidth: highest bus bandwidth of an all-reduce in the store, else of the datasheet's NVLink",
        ],
    )


def sharding_table(results: Results) -> Listing:
    """Weights, gradients and optimizer state of a rank by variant, at each moment of a step."""
    rows = sharding(results.measurements)
    if rows.empty:
        raise nothing("ddp")
    varying = [name for name in ("precision", "gather") if rows[name].nunique() > 1]
    keys = ["model", "world_size", "ddp", *varying, "moment"]
    return Listing(
        title="What a rank holds of weights, gradients and optimizer state, by closed forms",
        frame=rows[[*keys, *PARTS, "measured"]].astype({"world_size": "Int64"}),
        keys=keys,
        units=dict.fromkeys((*PARTS, "measured"), "B"),
        together=(*PARTS, "measured"),
        notes=[
            "measured: all tensors of rank 0 at that moment, buffers for communication included (-: no such reading); "
            "its peak is in --preset ddp-stages. In the first step there is no optimizer state before the optimizer",
            "with float32 weights and N ranks: 4P, 4P and 8P bytes of P parameters; zero1 divides the state by N, fsdp "
            "all three (the formulas are in lmsweep.orchestrator.features.limits.communication_limits)",
        ],
    )


def frontier_table(results: Results) -> Listing:
    """The largest context length and batch size that ran, and the smallest that did not fit."""
    return sizes_that_fit(results.of("timing"), "Largest sizes that fit in memory")


def sizes_that_fit(rows: pd.DataFrame, title: str) -> Listing:
    """Return the largest sizes that ran and the smallest that did not fit. Raises RequestError if there are none."""
    sizes = frontier(_ordered(rows))
    if sizes.empty:
        raise RequestError(
            "there is no frontier: context length and batch size do not vary, and no trial ran out of memory"
        )
    keys = [str(name) for name in sizes if name not in _SIZES]
    return Listing(
        title=title,
        frame=sizes.astype(dict.fromkeys(_SIZES, "Float64")),
        keys=keys,
        units=dict.fromkeys(_SIZES, "1"),
        conditions=common_conditions(rows, keys),
        notes=["-: no such size was tried"],
    )


def break_even_table(results: Results) -> Listing:
    """Time of the compiler, time that it saves in each step, and the steps after which it has paid."""
    compiled = break_even(results.of("timing"))
    if compiled.empty:
        raise RequestError(
            "the store has no compiled step with an eager one of the same configuration; measure compile: [none, block]"
        )
    rows, _ = _ordered_steps(compiled)
    keys = varying_keys(rows, ["model", "context_length", "compile"], [])
    columns = ["compile_time", "eager_step", "compiled_step", "saved", "steps"]
    return Listing(
        title="Steps after which compiling has paid",
        frame=with_flags(rows[[*keys, *columns]], rows.assign(flags=rows["compile_flags"])),
        keys=keys,
        units=dict.fromkeys(columns, "s") | {"steps": "1"},
        together=("eager_step", "compiled_step", "saved"),
        conditions=common_conditions(rows, keys),
        notes=[
            "compile_time: the first iteration less one step. Without the flag cold_cache the graph was in the "
            "compiler's cache, as it is after the precompilation of `lmsweep run`; `lmsweep trial` does not precompile",
            "steps: compile_time / saved; -: no time is saved",
        ],
    )


def _ordered_steps(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    if rows.empty:
        raise nothing("timing")
    return _ordered(rows), varying_keys(rows, ["model", "context_length"], [])


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    return in_order(rows, varying_keys(rows, ["model", "context_length"], []))


GROUPS = {
    "What is possible, and what does it cost?": {
        "roofline": Preset(
            roofline_table, "How close does a step come to the limits of its device?", counts_flops=True
        ),
        "scaling": Preset(
            scaling_table, "How does the time of a step grow with context length and model?", counts_flops=True
        ),
        "scaling-limits": Preset(
            scaling_limits_table, "From how many ranks on does communication take longer than computation?"
        ),
        "sharding": Preset(
            sharding_table, "How much memory do ZeRO-1 and FSDP save on each rank, at each moment of a step?"
        ),
        "frontier": Preset(frontier_table, "What is the largest context length and batch size that fits in memory?"),
        "break-even": Preset(break_even_table, "After how many steps has compiling paid?"),
        "cost": Preset(cost_table, "What do a million tokens cost in dollars and joules?"),
    },
}
