"""Files from strangers: whatever a sweep or a store holds, it is data, and it stays where it belongs. Hostile sweep
files are in test_any_text.py, the cluster files in test_cluster_files.py.
"""

import ast
import csv
import io
import json
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmsweep.analysis import load, render
from lmsweep.analysis.tables.listing import Listing
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.isolation import standby
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store
from tests.support.command import ROOT, answer_here
from tests.support.made_up_results import H200, Attempts, config
from tests.support.trial_here import run_here

# What our code calls


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call in a file, by the words it is written with: `yaml.load`, `connection.recv`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


SOURCES = sorted(path for package in ("trials", "orchestrator", "analysis") for path in (ROOT / package).rglob("*.py"))
RUNS_WHAT_IT_READS = {
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads", "dill.load"),
    *("marshal.load", "marshal.loads", "shelve.open", "joblib.load", "pandas.read_pickle", "pd.read_pickle"),
    *("torch.load", "numpy.load", "np.load", "eval", "exec", "__import__", "os.system", "os.popen"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"),
}
OWN_PROCESSES = {"child.py", "client.py", "ranks.py", "server.py", "check_code.py", "own_code_jobs.py"}
"""Modules that receive objects, over a socket pair or a pipe, from processes which they have started themselves."""
KNOWS_A_KEY = {"coordinator.py"}
"""Receives objects from other ranks of its trial, which prove that they know its key."""
RECEIVES_BYTES = {"interrupt.py"}
"""Receives the numbers of signals from its own process."""


def test_our_code_neither_evaluates_input_nor_uses_a_shell():
    for path in SOURCES:
        may_bind = "import socket" in path.read_text()  # `bind` of a signature listens to nobody
        for name, call in calls(path):
            place = f"{path}:{call.lineno}: {name}"
            assert name not in RUNS_WHAT_IT_READS, place
            assert not any(word.arg == "shell" for word in call.keywords), place
            assert not name.endswith(".recv") or path.name in OWN_PROCESSES | KNOWS_A_KEY | RECEIVES_BYTES, place
            listens = name.endswith((".listen", "Listener")) or (may_bind and name.endswith(".bind"))
            has_key = path.name in KNOWS_A_KEY and any(word.arg == "authkey" for word in call.keywords)
            assert not listens or path.name == "standby.py" or has_key, place


def test_trial_servers_listen_in_a_folder_that_only_this_user_may_enter():
    found = [ast.unparse(call.args[0]) for name, call in calls(Path(standby.__file__)) if name == "socket.socket"]
    assert found == ["socket.AF_UNIX"], "not on the network"
    one = standby.Standby()
    assert one.folder.stat().st_mode & 0o077 == 0
    one.close()
    assert not one.folder.exists()


# A store's files


class Trap:
    """Unpickled, it leaves a file behind."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.mkdir, (str(self._mark),)  # type: ignore[return-value]


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """What a trap leaves if something runs it."""
    path = tmp_path / "sprung"
    yield path
    assert not path.exists()


def hostile_files(honest: pa.Table, trap: bytes) -> dict[str, Callable[[Path], None]]:
    """What strangers might put beside the honest fragment."""
    storage = honest.schema.field("sweep").with_metadata(
        {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": trap}
    )
    extension = honest.cast(honest.schema.set(honest.schema.get_field_index("sweep"), storage))
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    not_text = honest.set_column(honest.schema.get_field_index("sweep"), "sweep", broken)

    def with_metadata(**entries: bytes) -> pa.Table:
        added = {name.encode(): value for name, value in entries.items()}
        return honest.replace_schema_metadata({**honest.schema.metadata, **added})

    tables = {
        "an extension type whose metadata is a pickle": extension,
        "replaces what is no JSON": with_metadata(lmsweep_replaces=trap),
        "replaces what is no list": with_metadata(lmsweep_replaces=b'{"a": 1}'),
        "replaces files elsewhere": with_metadata(lmsweep_replaces=b'["../../other"]'),
        "metadata of pandas": with_metadata(pandas=trap),
        "text that is no text": not_text,
    }
    files = {name: (lambda path, table=table: pq.write_table(table, path)) for name, table in tables.items()}
    return files | {"a pickle": lambda path: path.write_bytes(trap) and None, "a folder": lambda path: path.mkdir()}


DAMAGED = {"text that is no text", "a pickle"}
"""The others are harmless."""


@pytest.fixture
def honest(tmp_path: Path) -> Path:
    """A store with one honest result."""
    Attempts(tmp_path / "honest").ok(config(), {"step.time": (1.0, 1.0, 1.0)})
    return tmp_path / "honest"


@pytest.mark.filterwarnings("ignore:.*cannot be read")
def test_a_hostile_file_executes_nothing_and_the_other_results_are_read(honest, tmp_path, mark):
    for name, make in hostile_files(Store(str(honest)).read()[0], pickle.dumps(Trap(mark))).items():
        store = copytree(honest, tmp_path / name)
        make(store / "measurements" / "hostile.parquet")
        opened = Store(str(store))
        assert [item.path for item in opened.read()[1]] == ["measurements/hostile.parquet"] * (name in DAMAGED), name
        frame = load(str(store))
        assert len(frame) >= 1 and set(frame["status"]) == {"ok"}, name
        opened.set_aside_damage()
        opened.compact()
        assert len(opened.outcomes()) == 1, name


def test_an_artifact_stays_among_the_artifacts(tmp_path):
    store = Store(str(tmp_path / "store"))
    store.check_writable()
    places = (
        "../outside",
        "artifacts/../../outside",
        "/etc/hostname",
        "artifacts/.hidden",
        "artifacts/a\0b",
        "artifacts",
    )
    for path in places:
        with pytest.raises(RequestError, match="not the path of an artifact"):
            store.add_artifact(path, b"content")


def test_a_link_among_the_artifacts_is_not_followed(tmp_path):
    (tmp_path / "outside").write_text("secret")
    store = Store(str(tmp_path / "store"))
    store.add_artifact("artifacts/a/file", b"content")
    assert (tmp_path / "store" / "artifacts" / "a" / "file").read_bytes() == b"content"
    (tmp_path / "store" / "artifacts" / "a" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "store" / "artifacts" / "b").symlink_to(tmp_path)
    store.add_artifact("artifacts/a/link", b"content")  # takes the place of the link
    with pytest.raises(OSError, match="b is a link"):
        store.add_artifact("artifacts/b/new", b"content")
    assert (tmp_path / "outside").read_text() == "secret" and not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["../../outside", "$(touch sprung)", "'\"<script>alert(1)</script>"])
def test_the_name_of_a_sweep_is_escaped(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    grid = {"workloads": ["noop"], "fixed": {"d_model": 2}}
    Path("sweep.yaml").write_text(json.dumps({"name": name, "grids": [grid]}))  # JSON is YAML
    (trial,) = load_sweep("sweep.yaml").trials
    assert trial.sweep == name
    Store("store").keep(run_here(trial))
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.yaml", "store"}
    assert {path.parent.name for path in (tmp_path / "store").rglob("*.parquet")} == {"measurements"}
    assert set(pd.read_parquet("store/measurements")["sweep"]) == {name}


def test_text_of_a_store_is_no_formula_of_a_spreadsheet(tmp_path):
    names = ["=cmd|' /C calc'!A0", "@SUM(1)", "+1+cmd", "-2+3", "\t=1", "\r=1", "-1.5e+3", "NVIDIA H200"]
    attempts = Attempts(tmp_path / "store")
    for name in names:
        attempts.ok(config(), {"step.time": (1.0,) * 3}, fingerprint=replace(H200, device_name=name))
    options = ("--rows", "device_name", "--value", "step.time", "--format", "csv")
    done = answer_here("table", tmp_path / "store", *options)
    cells = [row["device_name"] for row in csv.DictReader(io.StringIO(done.stdout, newline=""))]
    assert len(set(cells)) == 8 and all(cell[0] in "'N-" for cell in cells) and "-1.5e+3" in cells, cells
    frame = pd.DataFrame({"device_name": names, "unknown": None, "number": -1.0})
    text = render(Listing(title="", frame=frame, keys=["device_name"], units={"number": "s"}), "csv")
    assert text.count(",'") + text.count("\n'") + text.count("\n\"'") == 6 and "-1.0" in text


def test_text_of_a_store_cannot_control_the_terminal(tmp_path):
    steering = "\x1b]0;title\x07\x1b[2J\rrm \x9b31m \u202eevil"
    attempts = Attempts(tmp_path / "store")
    attempts.ok(config(), {"step.time": (1.0,) * 3}, fingerprint=replace(H200, device_name=steering))
    (tmp_path / "store" / "measurements" / "\x1b[31m.parquet").write_bytes(b"harm")
    table = ("table", tmp_path / "store")
    pivoted = (*table, "--rows", "device_name", "--cols", "model", "--value", "step.time")
    where, run = (*table, "--where", "model=\x1b[31m"), ("run", "\x1b[31m", "--store", tmp_path / "store")
    for words in (table, where, run, pivoted):
        done = answer_here(*words)
        printed = done.stdout + done.stderr
        assert r"\x1b" in printed, printed
        assert not set("\x1b\x07\r\x9b\u202e") & set(printed), printed
    assert r"\x1b]0;title\x07\x1b[2J" in printed and r"rm \x9b31m \u202eevil" in printed
