"""Our counterparts of published numbers that are not step times: sums and dtypes, operators and kernels, two ranks.

Each function takes a row of `published()`: `label` (the name that the report prints), `value` (SI unit), `metric`,
`phase`, `table` and `dtype`. `table.results.everything` has a row for each value: `workload`, `phase`, `metric`,
`median` (SI unit) and the trial's fields. Of several rows that fit, the last counts.
"""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from lmsweep.orchestrator.features.course.reports.table_results import Here, Maker, TableResults
from lmsweep.trials.spec.config import RequestError

_SUMS = {
    "float32": "accumulation.fp32_fp32",
    "float16": "accumulation.fp16_fp16",
    "float32 adding float16": "accumulation.fp32_fp16",
    "float32 adding float16 manually upcast": "accumulation.fp32_fp16_cast",
    "torch.rsqrt(mean(x^2)), x=1e3, float16": "reciprocal_rms.fp16",
    "torch.rsqrt(mean(x^2)), x=1e3, bfloat16": "reciprocal_rms.bf16",
}
"""Label -> PHASE.METRIC of the workload `precision`."""


def _sum(table: TableResults, row: pd.Series) -> Here | None:
    """Return what repeated additions of 0.01 give, or a reciprocal RMS: measured, or computed here if the label states
    an iteration of the loop."""
    if running := re.fullmatch(r"float(16|32) accumulator, iteration (\d+)", row["label"]):
        accumulator = np.float16 if running[1] == "16" else np.float32
        total = accumulator(0)
        for _ in range(int(running[2])):
            total = accumulator(total + np.float16(0.01))  # the sum of both is rounded to the accumulator
        return _printed(row, float(total), "computed by NumPy")
    if row["label"] not in _SUMS:  # only `0.01 in float32`, the addend itself
        return _printed(row, float(np.float32(0.01)), "computed by NumPy")
    frame = table.results.everything
    rows = frame[(frame["phase"] + "." + frame["metric"]).eq(_SUMS[row["label"]]) & frame["median"].notna()]
    return None if rows.empty else _printed(row, float(rows["median"].iloc[-1]), "")


def _printed(row: pd.Series, value: float, how: str) -> Here:
    """Judge a number by the digits that the report prints. how: in which way it was computed; empty if measured."""
    decimals = len(str(row["value"]).partition(".")[2])
    same = round(value, decimals) == round(row["value"], decimals)
    return Here(value, verdict="same" if same else "differs", differs=how)


def _dtype(table: TableResults, row: pd.Series) -> Here | None:
    """Return the dtypes under autocast of tensors of the handout's toy model (layers fc1, ln, fc2).

    The table `dtypes` has a row for each tensor: `kind` (gradient, output, logits, loss, weight), `name`, `dtype`,
    `subject` (toy: that model), the trial's `precision`, and `rules`, the device whose rules of autocast were applied.
    """
    label = row["label"].lower().replace("layernorm", "ln").replace("layer norm", "ln")
    kind = next((kind for kind in ("gradient", "output", "logits", "loss") if kind in label), "weight")
    part = re.search(r"fc1|fc2|ln", label)
    try:
        types = table.results.details("dtypes", "precision")
    except RequestError:
        return None
    autocast = "fp16" if table.rows["dtype"].eq("float16").any() else "bf16"  # the report's: some tensor has its dtype
    types = types[(types["subject"] == "toy") & (types["precision"] == autocast) & (types["kind"] == kind)]
    types = types[types["rules"] == "cuda"]
    if part:
        types = types[types["name"].str.startswith(part[0])]
    if kind in ("weight", "gradient") and (weight := re.search(r"weight|bias", label)):
        types = types[types["name"].str.endswith(weight[0])]
    if types.empty:
        return None
    words = ", ".join(types["dtype"].unique())
    differs = "" if types["device"].iloc[0] == "cuda" else "CUDA's autocast, emulated on a CPU"
    return Here(words, verdict="same" if words == row["dtype"] else "differs", differs=differs)


_RANKS = {"total": "step.time", "comm": "communication.time", "compute": "local_step.time"}
"""Phase in the report's table of two ranks -> PHASE.METRIC of the workload `ddp`."""


def _two_ranks(table: TableResults, row: pd.Series) -> Here | None:
    """Return a time, ratio or share of data-parallel steps. The table compares an all-reduce for each parameter (naive)
    with one of all gradients (flat)."""
    frame = table.results.everything
    frame = frame[(frame["workload"] == "ddp") & frame["median"].notna()]
    values = (frame["phase"] + "." + frame["metric"]).to_numpy()

    def of(ddp: str, value: str) -> float:
        chosen = frame[(frame["ddp"] == ddp) & (values == value)]
        return np.nan if chosen.empty else float(chosen["median"].iloc[-1])

    value, ddp = _RANKS[row["phase"]], "naive" if row["label"] == "naive" else "flat"
    if row["metric"] == "speedup_ratio":
        number = of("naive", value) / of("flat", value)
    elif row["metric"] == "comm_share":
        number = of(ddp, value) / of(ddp, _RANKS["total"])
    else:
        number = of(ddp, value)
    return None if np.isnan(number) else Here(number, differs="the report states no model: times cannot be compared")


_COLUMNS = {
    "self_cpu_time": ("self_cpu", "self_cpu"),
    "self_cpu_share": ("self_cpu", "self_cpu"),
    "cpu_total_time": ("total_cpu", "self_cpu"),
    "cpu_total_share": ("total_cpu", "self_cpu"),
    "cpu_avg_time": ("total_cpu", "self_cpu"),
    "kernel_time": ("self_device", "self_device"),
    "kernel_share": ("self_device", "self_device"),
    "cuda_total_time": ("total_device", "self_device"),
    "cuda_avg_time": ("total_device", "self_device"),
    "kernel_calls": ("calls", "self_cpu"),
}
"""Metric of PyTorch's profiler -> its column of the table `operators`, and the column whose sum is the whole time."""
_TOTALS = {"Self CPU time total": "self_cpu", "Self CUDA time total": "self_device"}
"""Label -> the column that it sums up."""
_MODES = {"forward": "train_forward", "forward_backward": "train_step"}
"""Phase of a profile -> the mode here. Our profile of forward and backward also includes the optimizer."""


def _profiled(table: TableResults, row: pd.Series) -> Here | None:
    if row["table"].startswith("torch_profiler"):
        return _operator(table, row)
    return _part(table, row)


def _operator(table: TableResults, row: pd.Series) -> Here | None:
    """Return the time per step, share or calls here, in float32, of the operator that the label names, or of all.

    The table `operators` has a row for each operator of an attempt: `name`, the number of profiled `steps`, and over
    all of these `calls` and seconds on the host (`self_cpu`, `total_cpu`) and the device (`self_device`,
    `total_device`).
    """
    try:
        operators = table.results.details("operators", "profile")
    except RequestError:
        return None
    operators = operators[(operators["mode"] == _MODES[row["phase"]]) & (operators["precision"] == "fp32")]
    if not operators.empty:
        operators = operators[operators["attempt_id"] == operators["attempt_id"].iloc[-1]]
    if row["label"] in _TOTALS:
        total = _per_step(operators, _TOTALS[row["label"]])
        return Here(total) if total else None
    column, whole = _COLUMNS[row["metric"]]
    named, total = operators[operators["name"] == row["label"]], _per_step(operators, whole)
    if named.empty or not total:  # the operator did not run, or nothing ran on a GPU
        return None
    number = _per_step(named, column)
    if row["metric"].endswith("_share"):
        number /= total
    if row["metric"].endswith("_avg_time"):
        number /= _per_step(named, "calls")
    return Here(number)


def _per_step(operators: pd.DataFrame, column: str) -> float:
    return float((operators[column] / operators["steps"]).sum())


_PARTS = {
    "softmax": ("softmax",),
    "computing softmax": ("softmax",),
    "computing softmax scores": ("scores",),
    "final matmal": ("value_matmul",),
    "scaled_dot_product_attention": ("scores", "softmax", "value_matmul"),
}
"""Label -> the parts of attention whose kernels it measures, in forward."""


def _part(table: TableResults, row: pd.Series) -> Here | None:
    """Return the time or the share of the kernels of parts of attention, in forward in float32, of all layers.

    In these rows `phase` is the part.
    """
    frame = table.results.everything.query("workload == 'profile' and mode == 'train_forward' and precision == 'fp32'")
    frame = frame[(frame["metric"] == row["metric"]) & frame["phase"].isin(_PARTS.get(row["label"], ()))]
    if frame.empty:
        return None
    frame = frame[frame["environment_id"] == frame["environment_id"].iloc[-1]]
    if row["table"] == "nsys_attention_trace":
        number = float(frame["median"].sum() / frame["num_layers"].iloc[0])
        return Here(number, differs="kernels of one layer, not the range around them")
    return Here(float(frame["median"].sum()), differs="per forward pass")


FROM_WORKLOADS: Mapping[str, Maker] = {
    "accumulation": _sum,
    "dtypes": lambda table, row: (_dtype if row["metric"] == "dtype" else _sum)(table, row),
    "profile": _profiled,
    "ddp": _two_ranks,
}
"""Workload of a published number -> what makes its counterpart."""
