"""`lmsweep share`: what it writes can be read anywhere, and names no machine, no person and no folder."""

import functools
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest

import lmsweep
from lmsweep.analysis.sharing.share import scrub_text
from lmsweep.trials.spec.config import RequestError
from tests.support.command import ROOT, answer_here, lmsweep_here
from tests.support.made_up_results import H200, Attempts, config, samples

STORE = ROOT / "tests" / "support" / "stores" / "cpu"
HOST, PERSON = "gpu-node-17.lab.example.org", "annabel"
ERROR = (
    f"/home/{PERSON}/research/mine/flash.py:12: ValueError: no\nTraceback (most recent call last):\n"
    f'  File "/home/{PERSON}/my venv/lib/x.py", line 3, in f\nOSError: {HOST} and gpu-node-17 of {PERSON} at '
    f"C:\\Users\\{PERSON}\\data.bin or /mnt/nfs/{PERSON}/set.bin; see https://pytorch.org/docs/stable/x.html"
)


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Attempts:
    return Attempts(tmp_path_factory.mktemp("mine") / "results")


@pytest.fixture(scope="module")
def shared(attempts: Attempts) -> Path:
    """What the command writes of one result and one failure. Tests leave it as it is."""
    machine = replace(H200, host_name=HOST)
    attempts.ok(config(), {"step.time": samples(1, 0.1)}, fingerprint=machine)
    attempts.failed(config(context_length=512), "error", error=ERROR, fingerprint=machine)
    folder = Path(attempts.store.location).parent / "shared"
    assert "report.html" in lmsweep_here("share", attempts.store.location, "-o", folder)
    return folder


def test_no_file_of_it_names_a_machine_a_person_or_a_folder(shared: Path) -> None:
    assert {path.name for path in shared.iterdir()} == {
        "README.md", "chart.svg", "environment.json", "files.json", "report.html", "results",
    }  # fmt: skip
    texts = {path: path.read_text("utf-8") for path in shared.iterdir() if path.is_file()}
    for path in (shared / "results").rglob("*.parquet"):
        texts[path] = pd.read_parquet(path).to_csv() + str(path.read_bytes())
    for path, text in texts.items():
        for word in (HOST, "gpu-node-17", PERSON, "/home/", "/mnt/nfs", str(shared.parent), str(ROOT)):
            assert word not in text, f"{path.name} has {word}"
    error = lmsweep.load(str(shared))["error"].dropna().item()
    assert error.startswith("flash.py:12: ValueError: no") and "https://pytorch.org/docs/stable/x.html" in error


def test_its_readme_has_the_headline_and_the_picture(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "results")
    for precision, seconds in (("fp32", 0.012), ("bf16", 0.010)):
        for length in (128, 256):
            time = samples(seconds * length, seconds / 1e3)
            attempts.ok(config(device="cuda", context_length=length, precision=precision), {"step.time": time})
    lmsweep.share(attempts.store.location, tmp_path / "shared")
    text = (tmp_path / "shared" / "README.md").read_text()
    assert "**Training step: bf16 is " in text and ".** " in text
    assert "![The first chart of report.html](chart.svg)" in text
    assert "<svg" in (tmp_path / "shared" / "chart.svg").read_text()


def test_it_has_the_same_results(shared: Path, attempts: Attempts) -> None:
    ours, theirs = lmsweep.load(attempts.store), lmsweep.load(str(shared))
    assert ours[["trial_id", "environment_id", "median", "status"]].equals(
        theirs[["trial_id", "environment_id", "median", "status"]]
    )
    assert theirs["host_name"].isna().all() and ours["host_name"].notna().all()
    assert json.loads((shared / "environment.json").read_text())[0]["device_name"] == H200.device_name


def test_it_is_written_into_a_new_folder_only(shared: Path) -> None:
    done = answer_here("share", STORE, "-o", shared)
    assert done.returncode == 2 and "exists already" in done.stderr


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    servers = []

    def start(folder: Path) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


def test_results_are_compared_with_those_at_an_address(
    shared: Path, attempts: Attempts, serve: Callable[[Path], str], tmp_path: Path
) -> None:
    shutil.copytree(shared, tmp_path / "shared")
    address = serve(tmp_path)
    assert lmsweep.load(f"{address}/shared")["median"].notna().any()
    assert "Without a counterpart: 0 of mine" in lmsweep_here(
        "compare", attempts.store.location, "--with", f"{address}/shared/", "--where", "context_length=256"
    )
    with pytest.raises(RequestError, match=r"none/files.json cannot be read"):
        lmsweep.load(f"{address}/none")
    (tmp_path / "shared" / "files.json").write_text('["results/../../x.parquet"]')
    with pytest.raises(RequestError, match="is not the list"):
        lmsweep.load(f"{address}/shared")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/ann/x.py:3", "x.py:3"),
        ("forward/backward, tokens/s and s3://bucket/key", "forward/backward, tokens/s and s3://bucket/key"),
        ("./mine/flash.py:Flash", "./mine/flash.py:Flash"),
        ("ann's annotations", "private's annotations"),
    ],
)
def test_what_is_no_path_stays(text: str, left: str) -> None:
    assert scrub_text(text, {"ann"}) == left
