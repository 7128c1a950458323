"""Presets of profiles: kernel time of a step by phase and by range, that is, by part of the model; single operators, on
host and device, and single kernels, as profilers list them."""

from dataclasses import dataclass

import pandas as pd

from lmsweep.analysis.data.columns import in_order, size_terms
from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.data.selection import ok_rows
from lmsweep.analysis.metrics.kernels import KINDS, STEP_PHASES, classified, short_name
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys
from lmsweep.trials.analytic.formulas import attention_flops
from lmsweep.trials.spec.config import RequestError

_PHASES = ("forward", "backward", "optimizer", "step")
_TIMES = ("self_cpu", "total_cpu", "self_device", "total_device")
PHASE_OF_TRIAL = ["trial_id", "environment_id", "mode", "phase"]
"""Columns that identify a phase of a trial, whether profiled or timed."""


@dataclass(frozen=True, kw_only=True)
class _Profiles:
    kernels: pd.DataFrame
    """Rows of `classified`: a kernel in a range of a profile, with `phase`, `kind`, `time` in seconds and `calls` per
    step."""
    trials: pd.DataFrame
    """One row per profile in natural order, indexed by RESULT."""
    keys: list[str]
    """Columns of `trials` that distinguish the profiles."""

    def listing(
        self, rows: pd.DataFrame, *, title: str, lines: list[str], units: dict[str, str], notes: list[str]
    ) -> Listing:
        """rows: the lines, indexed by RESULT and ordered within each profile; lines: their key columns."""
        return Listing(
            title=title,
            frame=self.trials[self.keys].join(rows, how="inner").reset_index(drop=True),
            keys=[*self.keys, *lines],
            units=units,
            conditions=common_conditions(self.trials, self.keys),
            notes=notes,
        )


def longest_kernels_by_range(results: Results) -> Listing:
    """The kernel that takes the most time in each range."""
    profiles = _profiles(results)
    return _longest(profiles, profiles.kernels, part="range", title="Kernel with the most time in each range of a step")


def longest_kernels_by_phase(results: Results) -> Listing:
    """The kernel that takes the most time in each phase, in `other` (outside all phases) and in the whole step."""
    profiles = _profiles(results)
    kernels = pd.concat([profiles.kernels, profiles.kernels.assign(phase="step")])
    return _longest(profiles, kernels, part="phase", title="Kernel with the most time in each phase of a step")


def matmul_share(results: Results) -> Listing:
    """Share of matrix products in the kernel time, in each phase of a step and in the whole step."""
    profiles = _profiles(results)
    kernels = pd.concat([profiles.kernels, profiles.kernels.assign(phase="step")])
    times = kernels.groupby([*RESULT, "phase", "kind"])["time"].sum().unstack(fill_value=0)
    times = times.reindex(columns=list(KINDS), fill_value=0.0)
    shares = times.div(times.sum(axis=1), axis=0).assign(time=times.sum(axis=1)).reset_index("phase")
    shares = shares[["phase", "time", *KINDS]].rename_axis(columns=None)
    return profiles.listing(
        _sorted(shares, "phase", [*STEP_PHASES, "step"]),
        title="Share of matrix products in the kernel time of a step",
        lines=["phase"],
        units={"time": "s"} | dict.fromkeys(KINDS, "share"),
        notes=["fused_attention: attention in one kernel, whose products cannot be separated from its softmax"],
    )


def softmax_against_matmul(results: Results) -> Listing:
    """Time and FLOPs of attention's softmax and of its matrix products, if they run in separate kernels."""
    profiles = _profiles(results)
    kernels = profiles.kernels
    products = kernels[kernels["range"].isin(["scores", "value_matmul"]) & (kernels["kind"] == "matmul")]
    softmax = kernels[kernels["range"] == "softmax"]
    sums = {name: rows.groupby(RESULT)["time"].sum() for name, rows in (("softmax", softmax), ("matmul", products))}
    both = pd.DataFrame(sums).dropna()
    if both.empty:
        raise RequestError(
            "no profile has softmax and matrix products in separate kernels: that takes attention naive, compile none"
        )
    trials = profiles.trials.loc[both.index]
    shape = {name: trials[name] for name in ("context_length", "batch_size")}
    scores = trials["num_layers"] * trials["num_heads"] * trials["batch_size"] * trials["context_length"] ** 2
    width = pd.Series(size_terms(trials)["query_width"], index=trials.index).astype("Int64")
    flops = {
        "softmax_flops": 5 * scores,  # maximum, subtract, exp, sum, divide
        "matmul_flops": trials["num_layers"] * attention_flops(phase="forward", d_model=width, **shape),
    }
    both = both.assign(
        time_ratio=both["softmax"] / both["matmul"],
        **flops,
        flops_ratio=flops["softmax_flops"] / flops["matmul_flops"],
    )
    return profiles.listing(
        both,
        title="Softmax and matrix products of attention in forward",
        lines=[],
        units={"softmax": "s", "matmul": "s"} | dict.fromkeys(("time_ratio", *flops, "flops_ratio"), "1"),
        notes=[
            "matmul: queries x keys and attention weights x values; neither column includes scaling and masking",
            "ratios: softmax / matmul; softmax is counted as 5 FLOPs per score",
        ],
    )


def profiled_against_timed(results: Results) -> Listing:
    """For each phase: time of its kernels in the profile, its wall time without a profiler, and how long the GPU was
    busy.
    """
    profiles = _profiles(results)
    in_phases = profiles.kernels[profiles.kernels["phase"] != "other"]  # the others count in the step only
    in_phases = in_phases.assign(phase=in_phases["phase"].replace("loss", "forward"))  # as `timing` times it
    kernels = pd.concat([in_phases, profiles.kernels.assign(phase="step")])
    by_phase = kernels.groupby([*RESULT, "phase"])["time"].sum().rename("kernels").reset_index()
    by_phase = by_phase.merge(profiles.trials.reset_index()[[*RESULT, "trial_id", "mode"]], on=RESULT)
    timing = ok_rows(results.measurements).query("workload in ['timing', 'busy']")
    # Older stores call the device time `busy_time`.
    for name, metrics in (("timed", ["time"]), ("busy", ["device_time", "busy_time"])):
        times = _first_of(timing, metrics).rename(name).reset_index()
        by_phase = by_phase.merge(times, on=PHASE_OF_TRIAL, how="left")
    by_phase = by_phase.assign(
        of_timed=by_phase["kernels"] / by_phase["timed"], of_busy=by_phase["kernels"] / by_phase["busy"]
    )
    return profiles.listing(
        _sorted(by_phase.set_index(RESULT).drop(columns=["trial_id", "mode"]), "phase", list(_PHASES)),
        title="Kernel time of the profiled step, and times of the step without a profiler",
        lines=["phase"],
        units=dict.fromkeys(("kernels", "timed", "busy"), "s") | dict.fromkeys(("of_timed", "of_busy"), "share"),
        notes=[
            "kernels: time of the profiled kernels; timed: median wall time; busy: median time the device was busy",
            "of_timed, of_busy: kernels as a share of timed and busy; forward includes the loss, as it does when timed",
        ],
    )


def _first_of(rows: pd.DataFrame, metrics: list[str]) -> pd.Series:
    """Return the median of each phase of a trial, indexed by PHASE_OF_TRIAL: of the first of these metrics that it has,
    from the newest row, whatever its warm-up and iterations.
    """
    known = rows[rows["metric"].isin(metrics)]
    ranked = known.assign(rank=known["metric"].map(metrics.index))
    first = ranked.sort_values(["rank", "started_at"], ascending=[True, False], kind="stable")
    return first.drop_duplicates(PHASE_OF_TRIAL).set_index(PHASE_OF_TRIAL)["median"]


def _longest(profiles: _Profiles, kernels: pd.DataFrame, *, part: str, title: str) -> Listing:
    """Return the longest kernel of each phase or range. Kernels of one name count as one, whatever launched them.

    part: the column `phase` or `range`.
    """
    key = [*RESULT, part]
    each = kernels.groupby([*key, "kernel"])[["time", "calls"]].sum().reset_index()
    longest = each.sort_values("time", ascending=False).drop_duplicates(key).set_index(key)
    time = each.groupby(key)["time"].sum()
    step = profiles.kernels.groupby(RESULT)["time"].sum()
    results = pd.MultiIndex.from_frame(time.reset_index()[RESULT])
    parts = pd.DataFrame(
        {
            "time": time,
            "of_step": time / step.reindex(results).to_numpy(),
            "kernel": longest["kernel"].map(short_name),
            f"of_{part}": longest["time"] / time,
            "calls": longest["calls"],
        }
    )
    parts = parts.reset_index(part).sort_values("time", ascending=False, kind="stable")
    if part == "phase":
        parts = _sorted(parts, part, [*STEP_PHASES, "step"])
    return profiles.listing(
        parts,
        title=title,
        lines=[part],
        units={"time": "s", "of_step": "share", f"of_{part}": "share", "calls": "1"},
        notes=[
            f"of_step: share of the step's kernel time that the {part} takes; of_{part}: share of the {part}'s kernel "
            "time that this kernel takes; calls: launches of this kernel per step, which has one forward pass",
            "kernel names are shortened; the store's table `kernels` has them in full",
        ],
    )


def _sorted(frame: pd.DataFrame, name: str, order: list[str]) -> pd.DataFrame:
    return frame.iloc[frame[name].map(order.index).argsort(kind="stable")]


def _profiles(results: Results) -> _Profiles:
    kernels = classified(results.details("kernels", "profile"))
    trials = kernels.drop_duplicates(RESULT)
    first = [name for name in ("model", "mode") if trials[name].nunique() > 1]
    keys = varying_keys(trials, first, []) or ["model"]
    return _Profiles(kernels=kernels, trials=in_order(trials, keys).set_index(RESULT), keys=keys)


def operators(results: Results) -> Listing:
    """PyTorch operators as torch.profiler lists them: times per profiled step, the longest first."""
    rows, keys = _listed(results, "operators")
    per_step = rows[list(_TIMES)].astype(float).div(rows["steps"], axis=0)
    of_host, of_device = ["self_cpu", "total_cpu"], ["self_device", "total_device"]
    frame = rows[[*keys, "name"]].join(per_step[of_host])
    frame["self_cpu_share"] = _share_of_profile(rows, "self_cpu")
    frame[of_device] = per_step[of_device]
    frame["self_device_share"] = _share_of_profile(rows, "self_device")
    frame["calls"] = rows["calls"] / rows["steps"]
    frame = frame.dropna(axis="columns", how="all")  # on a CPU there is no device time
    units = dict.fromkeys(_TIMES, "s") | {"self_cpu_share": "share", "self_device_share": "share", "calls": "1"}
    return Listing(
        title="Operators of a profiled step",
        frame=frame,
        keys=[*keys, "name"],
        units={name: unit for name, unit in units.items() if name in frame},
        conditions=common_conditions(rows, keys),
        notes=[
            "self: time excluding the operators called inside; all numbers are per step; profiling slows down the host",
        ],
    )


def every_kernel(results: Results) -> Listing:
    """Every kernel in every range, as `nsys stats` lists them, the longest first."""
    rows, keys = _listed(results, "kernels")
    rows = rows.assign(range=rows["range"].fillna("unattributed"), kernel=rows["kernel"].map(short_name))
    of_launches = ("mean", "median", "min", "max", "stdev")
    numbers = {"share": "share", "total": "s", "instances": "1"} | dict.fromkeys(of_launches, "s")
    return Listing(
        title="Kernels of the profiled steps by range",
        frame=rows[[*keys, "range", "kernel", *numbers, "grid", "block"]].astype(dict.fromkeys(numbers, float)),
        keys=[*keys, "range", "kernel"],
        units=numbers,
        conditions=common_conditions(rows, keys),
        notes=[
            "total, instances: all profiled steps together; mean to stdev: single launches",
            "kernel names are shortened; the store's table `kernels` has them in full",
        ],
    )


def _listed(results: Results, table: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows in the natural order of their trials; within each trial in stored order, the longest first."""
    rows = results.details(table, "profile")
    keys = varying_keys(rows.drop_duplicates(RESULT), ["model", "context_length"], [])
    return in_order(rows, keys), keys


def _share_of_profile(rows: pd.DataFrame, name: str) -> pd.Series:
    whole = rows.groupby(RESULT)[name].transform("sum")
    return rows[name].astype(float) / whole.astype(float)
