"""How near to the limits, how it grows, what fits and what it costs."""

import pandas as pd

from lmsweep.analysis.data.results import Results, nothing
from lmsweep.analysis.metrics.cost import cost
from lmsweep.analysis.metrics.roofline import roofline
from lmsweep.analysis.metrics.scaling import frontier, scaling
from lmsweep.analysis.presets.layout import in_order, with_doubts
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys
from lmsweep.trials.spec.config import RequestError


def roofline_table(results: Results) -> Listing:
    """Rate, MFU, share of the measured ceiling, and the roof that bytes allow."""
    rows, keys = _steps(roofline(results.of("timing"), results.everything))
    columns = ["rate", "mfu", "of_ceiling", "intensity", "roof", "of_roof"]
    return Listing(
        title="A step's rate of matrix products, and what it is of the device's limits",
        frame=with_doubts(rows[[*keys, *columns]], rows),
        keys=keys,
        units={"rate": "FLOP/s", "mfu": "share", "of_ceiling": "share", "intensity": "FLOP/B", "roof": "FLOP/s"}
        | {"of_roof": "share"},
        conditions=common_conditions(rows, keys),
        notes=[
            "mfu: of the datasheet's dense peak in the arithmetic in force; of_ceiling: of a large product as measured "
            "on this device (`lmsweep run ceiling` into this store; - without)",
            "intensity: FLOPs per byte that an eager step cannot but move; roof: the most that it allows, where no "
            "cache holds it all",
        ],
    )


def cost_table(results: Results) -> Listing:
    """Dollars and joules per million tokens."""
    rows, keys = _steps(cost(results.measurements, results.prices))
    if "device_name" not in keys:
        keys = [*keys, "device_name"]
    ends = [f"{name}{end}" for name in ("tokens_per_second", "dollars") for end in ("", "_low", "_high")]
    return Listing(
        title="What a million tokens cost",
        frame=with_doubts(rows[[*keys, *ends, "joules"]], rows),
        keys=keys,
        units={"tokens_per_second": "tokens/s", "dollars": "$/Mtoken", "joules": "J/Mtoken"},
        conditions=common_conditions(rows, keys),
        notes=[
            "dollars: of one device at the price given with --price; joules: of the device alone, by its own counter, "
            "where the workload `energy` ran on the same trial"
        ],
    )


def scaling_table(results: Results) -> Listing:
    """Exponents of time over context and over parameters."""
    frame = results.of("timing")
    times = _ordered(frame[(frame["phase"] == "step") & (frame["metric"] == "time")])
    found = scaling(times)
    if found.empty:
        raise RequestError("no series of three contexts or three models, equal in all else, ended ok: there is no fit")
    keys = [str(name) for name in found if name in frame or name == "along"]
    return Listing(
        title="Growth of a step's time: time ~ along^exponent (and 95 % interval)",
        frame=found,
        keys=keys,
        units={"least": "1", "most": "1", "points": "1", "exponent": "1", "flops_exponent": "1"},
        conditions=common_conditions(times, keys),
        notes=["flops_exponent: growth of the matrix products' FLOPs over the same points"],
    )


def frontier_table(results: Results) -> Listing:
    """The largest context and batch that ran, and the smallest that did not fit."""
    frame = _ordered(results.of("timing"))
    found = frontier(frame)
    if found.empty:
        raise RequestError("no context and no batch size varies, and nothing ran out of memory: there is no frontier")
    keys = [str(name) for name in found if name not in ("largest_ok", "smallest_oom")]
    return Listing(
        title="What fits in memory",
        frame=found.astype({"largest_ok": "Float64", "smallest_oom": "Float64"}),
        keys=keys,
        units={"largest_ok": "1", "smallest_oom": "1"},
        conditions=common_conditions(frame, keys),
        notes=["- : nothing of this kind was tried"],
    )


def _steps(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    if rows.empty:
        raise nothing("timing")
    return _ordered(rows), varying_keys(rows, ["model", "context_length"], [])


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    return in_order(rows, varying_keys(rows, ["model", "context_length"], []))
