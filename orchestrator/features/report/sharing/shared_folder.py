"""Writes a folder with the results of a store, to commit or to send."""

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import yaml

from lmsweep.analysis.data.columns import in_order
from lmsweep.analysis.data.load import load
from lmsweep.analysis.data.open_store import INDEX, open_store
from lmsweep.analysis.metrics.status import counts
from lmsweep.orchestrator.features.report.chart_files import drawn_charts
from lmsweep.orchestrator.features.report.content import Content, content_of
from lmsweep.orchestrator.features.report.page import page_with
from lmsweep.orchestrator.features.report.sharing.allowed import Allowed, private_words
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.parquet_file import TABLES, encode
from lmsweep.trials.store.store import Store

ENVIRONMENT = (*ENVIRONMENT_FIELDS, "accelerator_type", "host_cpu", "host_cores", "host_memory", "lmsweep_version")
UNFINISHED = ".unfinished-"
"""First letters of the folder in which the files are written before they are moved to their places together."""


class Shared(NamedTuple):
    files: list[str]
    bytes: int
    """Bytes of all files."""


def share(store: str, folder: str | Path, *, to: str | None = None) -> Shared:
    """Write the results of a store into a new or empty folder, without names of machines and people, and artifacts.

    `results/` is a store with one file per table; report.html, environment.json, README.md with the headline and, if
    Matplotlib is installed, chart.svg; files.json lists the files for readers at an https address. to: `hf` makes
    README.md the card of a Hugging Face data set. Raises RequestError: no results, or the folder holds something.
    """
    if to not in (None, "hf"):
        raise RequestError(f"--to {to}: write hf")
    target = Path(folder).expanduser()
    for unfinished in target.glob(f"{UNFINISHED}*"):  # of a process that was killed
        shutil.rmtree(unfinished)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RequestError(f"{target} exists already; give the name of a new folder")
    source = open_store(store)
    if not source.exists() or load(source).empty:
        raise RequestError(f"{store} holds no results; measure some with: lmsweep run quick")
    tables = {name: rows for name in TABLES if len(rows := source.read(name)[0])}  # without the list of damaged files
    allowed = Allowed(private_words(tables.values()))
    try:
        target.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target, prefix=UNFINISHED) as beside:  # an error or Ctrl-C leaves nothing
            _write(Path(beside), {name: allowed.table(table) for name, table in tables.items()}, to)
            for path in Path(beside).iterdir():
                path.rename(target / path.name)
    except OSError as error:
        raise RequestError(f"{target}: cannot be written ({error.strerror})") from error
    files = [path for path in sorted(target.rglob("*")) if path.is_file()]
    return Shared([str(path.relative_to(target)) for path in files], sum(path.stat().st_size for path in files))


def _write(target: Path, tables: dict[str, pa.Table], to: str | None) -> None:
    for name, table in tables.items():
        encoded = encode(table, compression="zstd")
        path = target / "results" / name / f"shared-{hashlib.sha256(encoded).hexdigest()[:16]}.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(encoded)
    results = Store(str(target / "results"))
    results.location = "results"  # what commands on the page call it; the store still reads its folder
    content = content_of(results)
    (target / "report.html").write_text("".join(page_with(content)), "utf-8")
    frame = load(results, pooled=False)
    environments = json.loads(_environments(frame).to_json(orient="records"))
    (target / "environment.json").write_text(json.dumps(environments, indent=2) + "\n", "utf-8")
    _, picture = next(drawn_charts(content), ("", b""))
    if picture:
        (target / "chart.svg").write_bytes(picture)
    card = _card(content, tables) if to == "hf" else ""
    (target / "README.md").write_text(card + _summary(frame, content, picture=bool(picture)), "utf-8")
    stored = sorted(str(path.relative_to(target)) for path in (target / "results").rglob("*.parquet"))
    (target / INDEX).write_text(json.dumps(stored, indent=2) + "\n", "utf-8")


def _environments(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[[name for name in ENVIRONMENT if name in frame]].drop_duplicates().reset_index(drop=True)


def _card(content: Content, tables: Iterable[str]) -> str:
    """Return the head of a data set's card: each table is a configuration of its own, `measurements` the usual one."""
    configs: list[dict[str, Any]] = [
        {"config_name": name, "data_files": f"results/{name}/*.parquet"}
        for name in sorted(tables, key=lambda name: name != "measurements")  # it comes first
    ]
    configs[0]["default"] = True
    about = {"pretty_name": content.question or "Results of lmsweep", "tags": ["lmsweep", "benchmark"]}
    return f"---\n{yaml.safe_dump(about | {'configs': configs}, sort_keys=False, allow_unicode=True)}---\n\n"


def _summary(frame: pd.DataFrame, content: Content, *, picture: bool) -> str:
    first_and_last = frame["started_at"].agg(["min", "max"]).dt.strftime("%Y-%m-%d")
    versions = in_order(frame, ["lmsweep_version"])["lmsweep_version"].dropna().unique()
    days = " to ".join(first_and_last.unique())
    devices = _environments(frame)[["device_name", "torch_version"]].drop_duplicates()
    lines = [f"- {row.device_name}, torch {row.torch_version}" for row in devices.itertuples()]
    return "\n".join(
        (
            f"# {content.question or 'Results of lmsweep'}",
            "",
            f"**{content.headline}.**" + "".join(f" {text}" for text in content.details),
            "",
            *(["![The first chart of report.html](chart.svg)", ""] if picture else []),
            f"Measured {days} with lmsweep {', '.join(versions)} on",
            "",
            *lines,
            "",
            counts(frame).to_markdown(index=False),
            "",
            "`report.html` opens in any browser. `results` is a store of plain Parquet files:",
            "",
            "    lmsweep table results",
            "    lmsweep compare mine results",
            "",
            "Names of machines and people, folders, messages of errors, and artifacts were taken out.",
            "",
        )
    )
