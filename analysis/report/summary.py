"""The page's summary: what ran where, how it ended, and which flags were raised."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import NO_VALUE, label, natural_ranks
from lmsweep.analysis.metrics.status import flag_counts
from lmsweep.analysis.tables.number_format import choose_unit, interval_texts, number_text
from lmsweep.analysis.tables.pivot import varying_keys
from lmsweep.trials.results.outcome import Status, error_line

MOST_FAILURES = 50
"""Lines of the table of failed trials, the most frequent failures first."""

_ENVIRONMENT = (
    *("device_name", "device_memory", "host_cpu", "driver_version", "cuda_version", "torch_version"),
    *("triton_version", "python_version"),
)
_SELF_EVIDENT = ("model", "precision", "mode")
_SHOWN_OF_A_FAILURE = ("model", "d_model", "context_length", "batch_size", "precision", "compile", "attention")


class Fact(NamedTuple):
    name: str
    text: str
    detail: str = ""


class FlagLine(NamedTuple):
    name: str
    results: int
    advice: str


class Failure(NamedTuple):
    status: str
    results: int
    example: str
    error: str


class Summary(NamedTuple):
    """The texts of the page outside its sections."""

    lead: str
    headline: str
    lines: list[Fact]
    """Its key numbers: fastest step, most tokens per second, largest memory, failures."""
    facts: list[Fact]
    flags: list[FlagLine]
    failures: list[Failure]
    environment_names: list[str]
    environments: list[list[str]]
    """A line for each environment, the one with most results first."""


def summarize(frame: pd.DataFrame) -> Summary:
    """Return the summary of results loaded by `lmsweep.load`; the frame must have at least one row."""
    results = frame.drop_duplicates(["measurement_id", "environment_id", "workload"])
    names = [name for name in _ENVIRONMENT if frame[name].notna().any()]
    environments = results.groupby("environment_id", sort=False)
    lines = [
        [*(_environment_text(one, name) for name in names), str(len(one))]
        for _, one in sorted(environments, key=lambda pair: -len(pair[1]))
    ]
    return Summary(
        lead=_lead(results),
        headline=_headline(frame, results),
        lines=_key_numbers(frame, results),
        facts=_facts(frame, results),
        flags=[FlagLine(flag.value, n, flag.advice) for flag, n in flag_counts(frame).items()],
        failures=_failures(results),
        environment_names=[*names, "results"],
        environments=lines,
    )


def _lead(results: pd.DataFrame) -> str:
    sweeps = [str(name) for name in results["sweep"].unique()]
    days = [f"{day:%Y-%m-%d}" for day in (results["started_at"].min(), results["started_at"].max())]
    when = days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"
    devices = _shortened([str(name) for name in results["device_name"].unique()])
    torch = _shortened([f"torch {version}" for version in sorted(results["torch_version"].unique())])
    return f"{_several(sweeps, 'sweep')} on {devices}, {torch}, measured {when} (UTC)"


def _headline(frame: pd.DataFrame, results: pd.DataFrame) -> str:
    devices = _shortened([str(name) for name in results["device_name"].unique()])
    failed = int((results["status"] != Status.OK).sum())
    flagged = frame.loc[frame["flags"].list.len() > 0, ["measurement_id", "environment_id"]].drop_duplicates()
    return f"{len(results):,} result{'s' * (len(results) != 1)} on {devices}: {failed} failed, {len(flagged)} flagged"


def _key_numbers(frame: pd.DataFrame, results: pd.DataFrame) -> list[Fact]:
    ok = frame[(frame["status"] == Status.OK) & frame["median"].notna()]
    steps = ok[(ok["phase"] == "step") & (ok["metric"] == "time")]
    if steps["mode"].eq("train_step").any():  # a step of forward alone is not a training step
        steps = steps[steps["mode"] == "train_step"]
    peaks = ok[ok["metric"].isin(["peak_allocated", "peak_reserved"]) & (ok["unit"] == "B")]
    found = []
    if len(steps):
        fastest = steps.iloc[int(steps["median"].argmin())]
        found.append(_fact("Fastest step", fastest["median"], "s", fastest, steps))
    if steps["tokens_per_second"].notna().any():
        most = steps.iloc[int(steps["tokens_per_second"].argmax())]
        found.append(_fact("Most tokens per second", most["tokens_per_second"], "tokens/s", most, steps))
    if len(peaks):
        largest = peaks.iloc[int(peaks["median"].argmax())]
        fact = _fact("Largest memory", largest["median"], "B", largest, peaks)
        if pd.notna(largest["device_memory"]):
            share = f"{100 * largest['median'] / largest['device_memory']:.0f} % of the device: "
            fits = "" if results["status"].isin([Status.OOM, Status.PREDICTED_OOM]).any() else "; every trial fitted"
            fact = fact._replace(detail=share + fact.detail + fits)
        found.append(fact)
    failures = _failures(results)
    if failures:
        words = ", ".join(f"{n} {status}" for status, n in results["status"].value_counts().items() if status != "ok")
        found.append(Fact("Failed", words, failures[0].example))
    return found


def _fact(name: str, number: float, stored: str, row: pd.Series, rows: pd.DataFrame) -> Fact:
    unit = choose_unit(stored, [number])
    keys = [key for key in varying_keys(rows, ["model", "context_length"], []) if label(row[key]) != NO_VALUE]
    keys = [key for key in keys if rows[key].nunique(dropna=False) > 1] or keys[:2]
    detail = ", ".join(label(row[key]) if key in _SELF_EVIDENT else f"{key} {label(row[key])}" for key in keys)
    scaled = number / unit.size
    text, interval = f"{scaled:,.0f}", None
    if stored == row["unit"]:
        text, interval = interval_texts(scaled, row["low"] / unit.size, row["high"] / unit.size)
    elif scaled < 10_000:
        text = number_text(scaled)
    return Fact(name, " ".join(filter(None, (text, interval, unit.name))), detail)


def _facts(frame: pd.DataFrame, results: pd.DataFrame) -> list[Fact]:
    ended = results["status"].value_counts()
    counts = [f"{ended[status.value]} {status}" for status in Status if status in ended.index]
    workloads = [str(name) for name in results["workload"].unique()]
    devices = results["device_name"].value_counts()
    flagged = frame.loc[frame["flags"].list.len() > 0, ["measurement_id", "environment_id"]].drop_duplicates()
    named = results.iloc[np.argsort(natural_ranks(results, "model"), kind="stable")]
    models = [str(name) for name in named["model"].dropna().unique()]
    versions = [f"torch {version}" for version in sorted(results["torch_version"].unique())]
    return [
        Fact("Trials", f"{frame['trial_id'].nunique():,}", _several(workloads, "workload")),
        Fact("Results", f"{len(results):,}", ", ".join([*counts, f"{frame['n'].sum():,} samples"])),
        Fact("Flagged", f"{len(flagged):,}", "results; see Flags and failures"),
        Fact(
            "Hardware",
            str(devices.index[0]) if len(devices) == 1 else f"{len(devices)} devices",
            "" if len(devices) == 1 else _shortened([str(name) for name in devices.index]),
        ),
        Fact("Software", _shortened(versions)),
        *([Fact("Models", f"{len(models)}", _shortened(models))] if models else []),
    ]


def _failures(results: pd.DataFrame) -> list[Failure]:
    failed = results[results["status"] != Status.OK]
    lines = [
        Failure(
            str(status),
            len(group),
            ", ".join(
                f"{name} {label(group[name].iloc[0])}"
                for name in _SHOWN_OF_A_FAILURE
                if label(group[name].iloc[0]) != NO_VALUE
            ),
            error_line(str(error))[:300],
        )
        for (status, error), group in failed.assign(error=failed["error"].fillna("")).groupby(["status", "error"])
    ]
    return sorted(lines, key=lambda line: -line.results)[:MOST_FAILURES]


def _environment_text(one: pd.DataFrame, name: str) -> str:
    known = one[name].dropna().unique()
    if name != "device_memory" or not len(known):
        return ", ".join(label(value) for value in known) or NO_VALUE
    unit = choose_unit("B", [float(known[0])])
    return f"{number_text(float(known[0]) / unit.size)} {unit.name}"


def _several(names: list[str], noun: str) -> str:
    return f"{noun}{'s' * (len(names) > 1)} {_shortened(names)}"


def _shortened(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
