"""Convert the facts of the published reports, one per line of a CSV file, to a store and to what fits in none.

python benchmarks/published.py FACTS.csv [FOLDER]

FOLDER (analysis/reference) gets the store `published`, which holds times and memory, and `published.parquet`, which
holds the other facts.

The file has the columns source_id, table, hardware, device, workload, model_size, d_model, context_length, batch_size,
precision, compile, warmup_steps, measure_steps, phase, metric, value, unit, status, label and note. Fields that a
document does not state are empty. If a field follows from other parts of the document, the note says so, as
`inferred[field]=value (why)`.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.formulas import PASSES, PHASE_PASSES, forward_flops
from lmsweep.trials.results.arrow_schema import schema_of
from lmsweep.trials.results.environment import NOT_OURS
from lmsweep.trials.results.flag_meanings import CAVEATS, INFERENCE
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import STORED_FIELDS
from lmsweep.trials.spec.model_sizes import DIMENSIONS, SIZES, ModelSize

FOLDER = Path(__file__).parents[1] / "analysis" / "reference"

# Printed unit -> stored unit and conversion factor. In the reports, MB are 2^20 bytes, according to the calculations in
# their text, and GB are 10^9, according to the card's capacity and the predicted bytes.
UNITS: dict[str, tuple[str | None, float]] = {
    "ms": ("s", 1e-3),
    "GB": ("B", 1e9),
    "MB": ("B", 2**20),
    "%": ("1", 1e-2),
    "x": ("1", 1.0),
    "count": ("1", 1.0),
    "tokens/s": ("tokens/s", 1.0),
}
PURE_NUMBERS = {"accumulated_value": "accumulated", "stored_value": "stored", "rsqrt_value": "rsqrt"}
METRICS = PURE_NUMBERS | {
    "time_as_stated": "time",
    "time_change_pct": "time_change",
    "speedup_x": "speedup_ratio",
    "speedup_pct": "speedup_share",
    "mem_saving_pct": "mem_saving",
    "diff_pct": "difference",
    "min": "time_min",
    "max": "time_max",
    "median": "time_median",
    "cv": "time_cv",
    "tokens_per_s": "tokens_per_second",
}
PRECISIONS = {"float32": "fp32", "bfloat16 autocast": "bf16", "mixed autocast": "mixed"}
WHOLE = ("d_model", "context_length", "batch_size", "warmup_steps", "measure_steps")
MEASURED_TIMES = ("time", "time_std", "iteration_time", "time_min", "time_max", "time_median", "tokens_per_second")

# Hardware with a known float32 peak: name in the documents -> name in the driver.
DRIVER_NAMES = {
    "NVIDIA A100 80GB PCIe": "NVIDIA A100 80GB PCIe",
    "A100": "NVIDIA A100 80GB PCIe",
    "RTX PRO 6000 WK": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
}


def read_facts(path: str) -> pd.DataFrame:
    """The facts with our names and units, in the order of the file, without caveats."""
    raw = pd.read_csv(path, dtype=str, keep_default_na=False)
    is_dtype = raw["metric"] == "dtype"
    unit = raw["unit"].map(lambda name: UNITS.get(name, (None, 1.0)))
    frame = pd.DataFrame(
        {
            "source": raw["source_id"],
            **{name: raw[name] for name in ("table", "hardware", "device", "workload")},
            "model": raw["model_size"],
            **{name: pd.to_numeric(raw[name]).astype("Int64") for name in WHOLE[:3]},
            "precision": raw["precision"].replace(PRECISIONS),
            "compile": raw["compile"].replace({"false": "none", "true": "model"}),
            **{name: pd.to_numeric(raw[name]).astype("Int64") for name in WHOLE[3:]},
            "phase": raw["phase"],
            "metric": raw["metric"].replace(METRICS).str.removesuffix("_ms"),
            "value": pd.to_numeric(raw["value"]) * unit.str[1],
            "unit": unit.str[0].where(~raw["metric"].isin(PURE_NUMBERS), "1"),
            "dtype": raw["unit"].where(is_dtype, ""),
            "status": raw["status"].replace({"": "empty"}),
            "label": raw["label"],
            "note": raw["note"],
        }
    )
    texts = [name for name in frame.columns if name not in (*WHOLE, "value")]
    return frame.assign(**{name: frame[name].replace({"": None}).astype("str") for name in texts})


def suspected_tf32(frame: pd.DataFrame) -> pd.Series:
    stated = {name: stated_or_inferred(frame, name) for name in ("hardware", "precision", "context_length")}
    fp32 = stated["precision"].isin(["fp32", "float32"]) & (frame["workload"] == "timing")
    peaks = {name: find_device(driver) for name, driver in DRIVER_NAMES.items()}
    peak = stated["hardware"].map({name: device.fp32 for name, device in peaks.items() if device})
    dimensions = {
        name: frame["model"].map({model: getattr(size, name) for model, size in SIZES.items()}).astype("Float64")
        for name in ("d_model", "d_ff", "num_layers")
    }
    once = forward_flops(
        **dimensions,
        vocab_size=10_000,
        context_length=pd.to_numeric(stated["context_length"].str.extract(r"^(\d+)")[0]).astype("Float64"),
        batch_size=frame["batch_size"].astype("Float64"),
    )
    passes = frame["phase"].map(PHASE_PASSES | PASSES)
    honest = (frame["metric"] == "time") & ~backward_by_subtraction(frame) & (frame["value"] > 0)
    impossible = fp32 & honest & (once * passes / frame["value"] > peak).fillna(False)
    guilty = set(zip(frame["source"][impossible], stated["hardware"][impossible], strict=True))
    same = pd.Series(list(zip(frame["source"], stated["hardware"], strict=True)), frame.index).isin(guilty)
    return fp32 & same & frame["metric"].isin(MEASURED_TIMES)


def backward_by_subtraction(frame: pd.DataFrame) -> pd.Series:
    end_to_end = (frame["source"] == "seed2") & frame["table"].str.startswith("e2e_")
    return end_to_end & (frame["phase"] == "backward")


def unit_unknown(frame: pd.DataFrame) -> pd.Series:
    return noted(frame, "unit not (?:stated|printed)") & (frame["metric"] != "dtype")


def forward_keeps_graph(frame: pd.DataFrame) -> pd.Series:
    logs = in_tables(frame, "seed3", "run_log_", "performance_comparison_", "memory_efficiency")
    about_memory = frame["metric"].str.startswith("mem_") | (frame["status"] == "oom")
    return logs & (frame["phase"] == "forward") & about_memory


def not_synchronized(frame: pd.DataFrame) -> pd.Series:
    return in_tables(frame, "seed0", "benchmarking_mixed_precision", "pytorch_attention")


def each_or_total_unknown(frame: pd.DataFrame) -> pd.Series:
    return noted(frame, "per iteration or total|per run or the total")


def includes_optimizer(frame: pd.DataFrame) -> pd.Series:
    table = in_tables(frame, "seed4", "model_table") & (frame["phase"] == "forward_backward")
    return table | in_tables(frame, "seed4", "torch_profiler_forward_backward")


def wide_spread(frame: pd.DataFrame) -> pd.Series:
    keys = ["source", "table", "device", "model", *WHOLE, "precision", "compile", "phase", "label"]
    cells = frame.groupby(keys, dropna=False)
    mean, std = (
        frame["value"].where(frame["metric"] == metric).groupby(cells.ngroup()).transform("first")
        for metric in ("time", "time_std")
    )
    return frame["metric"].isin(["time", "time_std"]) & (std >= mean / 2)


def compiled_while_timed(frame: pd.DataFrame) -> pd.Series:
    table = in_tables(frame, "seed2", "e2e_compiled") & (frame["model"] == "medium")
    return table & frame["phase"].isin(["forward", "backward"])


def host_bound(frame: pd.DataFrame) -> pd.Series:
    swept = frame[
        (frame["workload"] == "timing")
        & (frame["metric"] == "time")
        & frame["context_length"].notna()
        & ~frame["table"].str.startswith("performance_comparison")
        & frame["value"].notna()
    ]
    flat: set[int] = set()
    for _, cell in swept.groupby(["source", "table", "device", "model", "precision", "compile", "phase"], dropna=False):
        by_context = {
            context: (index, value) for index, context, value in cell[["context_length", "value"]].itertuples()
        }
        for context, (index, value) in by_context.items():
            longer = by_context.get(2 * context)
            if longer and abs(longer[1] / value - 1) < 0.05:
                flat |= {index, longer[0]}
    return pd.Series(frame.index.isin(flat), frame.index)


def fell_back_to_eager(frame: pd.DataFrame) -> pd.Series:
    shape = (frame["d_model"] == 128) & (frame["context_length"] == 16384)
    return in_tables(frame, "seed3", "attention_compiled") & shape.fillna(False)


def zero_for_unknown(frame: pd.DataFrame) -> pd.Series:
    return in_tables(frame, "seed2", "attention_m4") & frame["metric"].str.startswith("mem_")


def axes_swapped(frame: pd.DataFrame) -> pd.Series:
    return in_tables(frame, "seed2", "attention_m4")


def repeated(frame: pd.DataFrame) -> pd.Series:
    return noted(frame, "repeat") & ~derived(frame) | in_tables(
        frame, "seed3", "performance_comparison_", "memory_efficiency"
    )


def derived(frame: pd.DataFrame) -> pd.Series:
    return noted(frame, "derived by the document|calculated, approximate")


def in_tables(frame: pd.DataFrame, source: str, *prefixes: str) -> pd.Series:
    return (frame["source"] == source) & frame["table"].str.startswith(prefixes)


def noted(frame: pd.DataFrame, pattern: str) -> pd.Series:
    return frame["note"].str.contains(pattern, na=False)


def stated_or_inferred(frame: pd.DataFrame, field: str) -> pd.Series:
    """The field as text or, if it is not stated, the value inferred in the note."""
    inferred = frame["note"].str.extract(rf"inferred\[{field}\]=([^,;()]+)")[0].str.strip()
    return frame[field].astype("str").where(frame[field].notna(), inferred)


RULES: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    rule.__name__: rule
    for rule in (
        suspected_tf32,
        backward_by_subtraction,
        unit_unknown,
        forward_keeps_graph,
        not_synchronized,
        each_or_total_unknown,
        includes_optimizer,
        wide_spread,
        compiled_while_timed,
        host_bound,
        fell_back_to_eager,
        zero_for_unknown,
        axes_swapped,
        repeated,
        derived,
    )
}


# Metric of the facts -> metric of the store.
STORED = {
    "time": "time",
    "time_std": "time_std",
    "peak_mem": "peak_allocated",
    "mem_before_backward": "allocated",
    "mem_allocated": "allocated",
    "mem_reserved": "reserved",
}
# Phase of the facts -> mode and phase that measure it in lmsweep (`lmsweep.analysis.data.step_parts`).
MODES = {
    "forward": ("train_forward", "forward"),
    "backward": ("forward_backward", "backward"),
    "forward_backward": ("forward_backward", "step"),
    "optimizer": ("train_step", "optimizer"),
    "backward_optimizer": ("train_step", "backward_optimizer"),
    "step": ("train_step", "step"),
}
# Metric of memory -> its phase, whatever the phase of the fact. The logs print memory after the last iteration.
PHASES = {"peak_mem": "step", "mem_before_backward": "before_backward"} | dict.fromkeys(
    ("mem_allocated", "mem_reserved"), "step_end"
)
STATUSES = {"ok": "ok", "oom": "oom", "failed": "error"}
PER = 100.0
"""Iterations of a time without a unit: read as seconds for all of them, it agrees with another report (SOURCES.md)."""


TAKEN = datetime(2026, 11, 21, tzinfo=UTC)


def is_stored(frame: pd.DataFrame) -> pd.Series:
    """The times and memory of steps and of attention that no other fact repeats."""
    counted = ~frame["repeated"] & ~frame["derived"] & ~frame["table"].str.endswith("prose")
    measured = frame["workload"].isin(["timing", "memory", "attention"]) & frame["metric"].isin([*STORED])
    return counted & measured & frame["status"].isin([*STATUSES])


def store_rows(facts: pd.DataFrame) -> pd.DataFrame:
    """The facts as rows of the table `measurements`, with the columns that only `published` reads."""
    alone = facts["workload"] == "attention"
    ok, timed = facts["status"] == "ok", facts["metric"].isin(["time", "time_std"])
    unitless = facts["unit"].isna() & ok
    modes = facts["phase"].map({name: mode for name, (mode, _) in MODES.items()})
    phases = facts["phase"].map({name: phase for name, (_, phase) in MODES.items()})
    phases = phases.where(~alone, facts["phase"].replace("forward_backward", "step"))
    phases = phases.where(timed, facts["metric"].map(PHASES))
    known = {name: stated_or_inferred(facts, name) for name in ("hardware", "device", "precision", "context_length")}
    inferred = facts["note"].fillna("").str.findall(r"inferred\[(\w+)\]")
    model = facts["model"].where(facts["model"].notna(), facts["note"].str.extract(r"inferred\[model_size\]=(\S+)")[0])
    dimensions = dimensions_of(model)
    added = inferred.map(lambda names: [{"model_size": "model"}.get(name, name) for name in names])
    added += facts["d_model"].isna().map({True: ["d_model"], False: []})
    # What this table does not state is as in the log of the same times, which ran in TF32.
    as_in_log = facts["table"] == "transformer_compile"
    added += as_in_log.map({True: ["batch_size", "precision"], False: []})
    rows = pd.DataFrame(
        {
            "sweep": facts["source"] + " " + facts["table"],
            "workload": facts["workload"],
            "status": facts["status"].map(STATUSES),
            "flags": flags_of(facts, inferred.map(bool) | as_in_log),
            "error": (facts["status"] + ", as the report says").where(~ok),
            "model": model,
            **dimensions | {"d_model": facts["d_model"].fillna(dimensions["d_model"])},
            "vocab_size": pd.Series(10_000, facts.index).where(model.notna()),  # of the course's model
            "context_length": pd.to_numeric(known["context_length"].str.extract(r"^(\d+)")[0]),
            "precision": known["precision"].replace("float32", "fp32").mask(as_in_log, "tf32"),
            **{name: facts[name] for name in ("compile", "warmup_steps", "measure_steps")},
            "batch_size": facts["batch_size"].mask(as_in_log, 32),
            "mode": modes.where(~alone),
            "device": known["device"],
            "device_name": known["hardware"].fillna("not stated"),
            "measuring_version": NOT_OURS,
            "phase": phases.where(ok),
            "metric": facts["metric"].map(STORED).where(ok),
            "unit": facts["unit"].where(~unitless, "s"),
            "samples": [None if np.isnan(value) else [value] for value in facts["value"] / np.where(unitless, PER, 1)],
            # What only `published` reads:
            "number": facts.index,
            "printed": facts["phase"].fillna("") + "." + facts["metric"],
            "inferred": added.map(",".join),
            "label": facts["label"],
            "note": facts["note"],
        }
    )
    return identified(rows, TAKEN)


def dimensions_of(model: pd.Series, **others: ModelSize) -> dict[str, pd.Series]:
    """What each model's name says of its shape; null without a name."""
    sizes = {name: asdict((SIZES | others)[name]) for name in model.dropna().unique()}
    return {name: model.map({one: size[name] for one, size in sizes.items()}) for name in DIMENSIONS}


def flags_of(facts: pd.DataFrame, inferred: pd.Series) -> list[list[str]]:
    words = [*(name for name in CAVEATS if name in facts), INFERENCE]
    marks = facts.assign(**{INFERENCE: inferred})[words].to_numpy(bool)
    return [[word for word, holds in zip(words, row, strict=True) if holds] for row in marks]


def identified(rows: pd.DataFrame, taken: datetime) -> pd.DataFrame:
    """The rows with their identifiers: a table is an attempt at each of its configurations.

    taken: when the numbers were taken from their sources, which state no dates.
    """
    config = [name for name in STORED_FIELDS if name in rows and name != "device"]

    def digests(*names: str) -> list[str]:
        return [
            hashlib.sha256(json.dumps([None if pd.isna(one) else str(one) for one in row]).encode()).hexdigest()[:16]
            for row in rows[[*names]].itertuples(index=False)
        ]

    return rows.assign(
        trial_id=digests(*config),
        measurement_id=digests(*config, "workload", "sweep"),
        environment_id=digests("device_name", "device", "sweep"),
        attempt_id=digests(*config, "workload", "sweep", "device_name", "device"),
        started_at=taken,
    )


def write_store(rows: pd.DataFrame, folder: Path) -> Path:
    """Write the rows as a store; columns that its schema lacks stay, for `lmsweep.analysis.reference`."""
    schema = schema_of(Record)
    more = pa.Table.from_pandas(rows[[name for name in rows if name not in schema.names]], preserve_index=False)
    columns = rows.reindex(columns=schema.names).astype(object)
    table = pa.table([pa.array(columns[field.name], field.type, from_pandas=True) for field in schema], schema=schema)
    for field in more.schema:
        table = table.append_column(field.with_metadata(None), more.column(field.name))
    path = folder / "measurements" / "measurements.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")
    return path


def main() -> None:
    assert list(RULES) == list(CAVEATS), "each caveat has a rule, in the same order"
    facts, *target = sys.argv[1:]
    frame = read_facts(facts)
    caveats = {name: np.asarray(rule(frame), dtype=bool) for name, rule in RULES.items()}
    write(frame.assign(**caveats), Path(target[0]) if target else FOLDER)
    for name, holds in caveats.items():
        print(f"{name}: {holds.sum()}")


def write(frame: pd.DataFrame, folder: Path) -> None:
    """Write all facts, each into the store or into the table of the others; `number` is its place among all."""
    stored = is_stored(frame)
    path = write_store(store_rows(frame[stored]), folder / "published")
    rest = frame[~stored].assign(number=frame.index[~stored])
    rest.to_parquet(folder / "published.parquet", index=False, compression="zstd")
    print(f"{stored.sum()} rows in {path}, {len(rest)} in {folder / 'published.parquet'}")


if __name__ == "__main__":
    main()
