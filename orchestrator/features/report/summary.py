"""The page's summary: what ran where, how it ended, and which flags were raised."""

from typing import NamedTuple

import pandas as pd

from lmsweep.analysis.data.columns import NO_VALUE, first_names, label
from lmsweep.analysis.metrics.status import flag_counts
from lmsweep.analysis.tables.number_format import choose_unit, number_text
from lmsweep.trials.results.outcome import Status, error_line

MOST_FAILURES = 50
"""Lines of the table of failed trials, the most frequent failures first."""

MOST_NAMES = 4
"""Sweeps, devices and releases of torch that the lead names."""

_ENVIRONMENT = (
    *("device_name", "device_memory", "host_cpu", "driver_version", "cuda_version", "torch_version"),
    *("triton_version", "python_version"),
)
_SHOWN_OF_A_FAILURE = ("model", "d_model", "context_length", "batch_size", "precision", "compile", "attention")


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
    flagged = frame.loc[frame["flags"].list.len() > 0, ["measurement_id", "environment_id"]].drop_duplicates()
    lines = [
        [*(_environment_text(one, name) for name in names), str(len(one))]
        for _, one in sorted(environments, key=lambda pair: -len(pair[1]))
    ]
    devices = first_names([str(name) for name in results["device_name"].unique()], MOST_NAMES)
    measured = f"{len(results):,} result{'s' * (len(results) != 1)} on {devices}"
    failed = int((results["status"] != Status.OK).sum())
    return Summary(
        lead=_lead(results, measured),
        headline=f"{measured}: {failed} failed, {len(flagged)} flagged",
        flags=[FlagLine(flag.value, n, flag.advice) for flag, n in flag_counts(frame).items()],
        failures=_failures(results),
        environment_names=[*names, "results"],
        environments=lines,
    )


def _lead(results: pd.DataFrame, measured: str) -> str:
    sweeps = [str(name) for name in results["sweep"].unique()]
    days = [f"{day:%Y-%m-%d}" for day in (results["started_at"].min(), results["started_at"].max())]
    when = days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"
    torch = first_names([f"torch {version}" for version in sorted(results["torch_version"].unique())], MOST_NAMES)
    which = f"sweep{'s' * (len(sweeps) > 1)} {first_names(sweeps, MOST_NAMES)}"
    return f"{which}, {measured}, {torch}, {when}"


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
            error_line(str(error)),
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
