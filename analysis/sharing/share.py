"""Writes a folder with the results of a store, to commit or to send."""

import contextlib
import getpass
import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from lmsweep.analysis.data.load import load
from lmsweep.analysis.data.open_store import INDEX, open_store
from lmsweep.analysis.metrics.status import counts
from lmsweep.analysis.report import page_with
from lmsweep.analysis.report.chart_files import write_first_chart
from lmsweep.analysis.report.content import Content, content_of
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.parquet_file import TABLES, encode

_PATH = re.compile(r"(?<![\w.:/~])(?:~|/|[A-Za-z]:\\)[\w.@+ -]*(?:[/\\][\w.@+-]+)*[/\\](?=[\w.@+-])")
"""The folders of an absolute path: all of it but its last name. Not of a URL."""
_HOME = re.compile(r"(?:/home/|/Users/|\\Users\\)([\w.@+-]+)")

DROPPED = ("host_name", "gpu_uuid", "artifact")
"""Columns that are emptied. An artifact is a file beside the results that may hold anything."""


def private_words(tables: Iterable[pa.Table]) -> set[str]:
    found = set()
    for table in tables:
        if "host_name" in table.column_names:
            names = [name for name in pc.unique(table["host_name"]).to_pylist() if name]
            found |= {*names, *(name.partition(".")[0] for name in names)}
        for name in table.column_names:
            for text in _texts(table[name]):
                found |= set(_HOME.findall(text))
    with contextlib.suppress(KeyError, OSError):  # a container may run under a number without a name
        found |= {getpass.getuser(), os.path.basename(os.path.expanduser("~"))}
    return {word for word in found if len(word) > 2 and word not in ("root", "localhost")}


def scrub(table: pa.Table, words: set[str]) -> pa.Table:
    """Return the table without these words and without the folders of absolute paths; the last name stays."""
    for position, name in enumerate(table.column_names):
        column = table[name]
        kind = column.type
        if name in DROPPED:
            table = table.set_column(position, table.schema.field(name), pa.nulls(len(table), kind))
        elif changed := {text: new for text in _texts(column) if (new := scrub_text(text, words)) != text}:
            values = [_replaced(value, changed) for value in column.to_pylist()]
            table = table.set_column(position, table.schema.field(name), pa.array(values, kind))
    return table


def scrub_text(text: str, words: set[str]) -> str:
    text = _PATH.sub("", text)
    for word in sorted(words, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", "private", text)
    return text


def _texts(column: pa.ChunkedArray) -> list[str]:
    kind = column.type
    if pa.types.is_list(kind):
        column, kind = pc.list_flatten(column), kind.value_type
    return [text for text in pc.unique(column).to_pylist() if text] if pa.types.is_string(kind) else []


def _replaced(value: object, changed: dict[str, str]) -> object:
    if isinstance(value, list):
        return [changed.get(text, text) for text in value]
    return changed.get(value, value) if isinstance(value, str) else value


ENVIRONMENT = (*ENVIRONMENT_FIELDS, "accelerator_type", "host_cpu", "host_cores", "host_memory", "lmsweep_version")


class Shared(NamedTuple):
    files: list[str]
    bytes: int
    """Of all files."""


def share(store: str, folder: str | Path) -> Shared:
    """Write the results of a store into a new or empty folder, without names of machines and people, and artifacts.

    `results/` is a store with one file per table; report.html, environment.json, README.md with the headline and, if
    Matplotlib is installed, chart.svg; files.json lists the files for readers at an https address. Raises RequestError:
    no results, or the folder holds something.
    """
    target = Path(folder).expanduser()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RequestError(f"{target} exists already; give the name of a new folder")
    source = open_store(store)
    if not source.exists() or load(source).empty:
        raise RequestError(f"{store} holds no results; measure some with: lmsweep run quick")
    tables = {name: table for name in TABLES if len(table := source.read(name)[0])}
    words = private_words(tables.values())
    try:
        for name, table in tables.items():
            encoded = encode(scrub(table, words), compression="zstd")
            path = target / "results" / name / f"shared-{hashlib.sha256(encoded).hexdigest()[:16]}.parquet"
            path.parent.mkdir(parents=True)
            path.write_bytes(encoded)
        location = str(target / "results")
        content = content_of(location)
        page = "".join(page_with(content)).replace(json.dumps(location)[1:-1], "results")
        (target / "report.html").write_text(page, "utf-8")
        frame = load(location, pooled=False)
        environments = json.loads(_environments(frame).to_json(orient="records"))
        (target / "environment.json").write_text(json.dumps(environments, indent=2) + "\n", "utf-8")
        picture = write_first_chart(content, target / "chart.svg")
        (target / "README.md").write_text(_summary(frame, content, picture=picture), "utf-8")
        stored = sorted(str(path.relative_to(target)) for path in (target / "results").rglob("*.parquet"))
        (target / INDEX).write_text(json.dumps(stored, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise RequestError(f"{target}: cannot be written ({error.strerror})") from error
    files = [path for path in sorted(target.rglob("*")) if path.is_file()]
    return Shared([str(path.relative_to(target)) for path in files], sum(path.stat().st_size for path in files))


def _environments(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[[name for name in ENVIRONMENT if name in frame]].drop_duplicates().reset_index(drop=True)


def _summary(frame: pd.DataFrame, content: Content, *, picture: bool) -> str:
    began = frame["started_at"].agg(["min", "max"]).dt.strftime("%Y-%m-%d")
    version = frame["lmsweep_version"].max()
    days = " to ".join(dict.fromkeys(began))
    devices = _environments(frame)[["device_name", "torch_version"]].drop_duplicates()
    lines = [f"- {row.device_name}, torch {row.torch_version}" for row in devices.itertuples()]
    return "\n".join(
        (
            f"# {content.asked.ask if content.asked else 'Results of lmsweep'}",
            "",
            f"**{content.headline}.**" + "".join(f" {text}" for text in content.details),
            "",
            *(["![The first chart of report.html](chart.svg)", ""] if picture else []),
            f"Measured {days} with lmsweep {version} on",
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
            "Names of machines and people, folders, and artifacts were taken out.",
            "",
        )
    )
