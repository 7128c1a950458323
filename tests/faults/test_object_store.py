"""A store that a server of S3's protocol keeps (moto): what is measured while it cannot be reached arrives later."""

import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from lmsweep.orchestrator.running import store_writer
from lmsweep.orchestrator.running.progress.eta import Eta
from lmsweep.orchestrator.running.progress.trial_progress import RunProgress
from lmsweep.orchestrator.running.run_plan import compact
from lmsweep.trials.results.measurement import Artifact
from lmsweep.trials.results.record import Attempt
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.store.directory import open_folder
from lmsweep.trials.store.store import Store
from tests.store.test_store import CONFIG, MACHINE, rows
from tests.support.waiting import wait_until


class ObjectStore:
    """A server with one bucket, which can be taken away: every request is then answered with an error."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.log = folder / "requests"
        command = [sys.executable, "-c", "from moto.server import main; main()", "-p", str(self.port)]
        with self.log.open("w") as log:
            self.process = psutil.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self.uri = f"s3://bucket/results?scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{self.port}"
        wait_until(self.answers)

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with suppress(OSError):
            self.make_bucket()
            return True
        return False

    def make_bucket(self) -> None:
        self._ask("/bucket", "PUT")

    def take_bucket_away(self) -> None:
        self._ask("/moto-api/reset", "POST")

    def requests(self, method: str, status: int) -> int:
        lines = self.log.read_text().splitlines()
        return sum(f"{method} /bucket/results/measurements/" in line and f" {status} " in line for line in lines)

    def _ask(self, path: str, method: str) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        urllib.request.urlopen(request, timeout=5).close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    pytest.importorskip("moto.server", reason="pip install moto[s3] adds a server")
    server = ObjectStore(tmp_path_factory.mktemp("server"))
    yield server
    server.process.kill()
    server.process.wait()


@pytest.fixture
def object_store(server: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server.take_bucket_away()
    server.make_bucket()
    return server


@contextmanager
def without(object_store: ObjectStore, name: str, methods: tuple[str, ...]) -> Iterator[str]:
    """Yield an address to read the store at. It lists this object and answers 404 to these methods: it is deleted."""

    class Proxy(BaseHTTPRequestHandler):
        def answer(self) -> None:
            content, status, headers = b"<Error><Code>NoSuchKey</Code><Message>It is gone.</Message></Error>", 404, {}
            if name not in self.path or self.command not in methods:
                server = HTTPConnection("127.0.0.1", object_store.port)
                server.request(self.command, self.path, headers=dict(self.headers))
                answer = server.getresponse()
                content, status, headers = answer.read(), answer.status, dict(answer.getheaders())
            length = headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_response(status)
            for key, value in {"Content-Type": "application/xml", **headers}.items():
                if key.lower() not in ("content-length", "transfer-encoding", "connection", "server", "date"):
                    self.send_header(key, value)
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = answer  # noqa: N815 - the names that the class looks up

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield object_store.uri.replace(str(object_store.port), str(proxy.server_port))
        proxy.shutdown()


def waiting(folder: Path) -> list[Path]:
    return list((folder / "cache").glob("lmsweep/waiting/*/measurements/*.parquet"))


def contexts(store: Store) -> list[int]:
    return sorted(set(store.read()[0]["context_length"].to_pylist()))


def test_a_small_file_takes_one_request_and_a_large_one_is_whole_too(object_store):
    store = Store(object_store.uri)
    before = object_store.requests("PUT", 200)
    store.keep(rows(16))
    assert object_store.requests("PUT", 200) == before + 1
    assert object_store.requests("POST", 200) == 0, "an upload in several steps"
    large = bytes(range(256)) * 25_000
    store.add_artifact("artifacts/large.bin", large)
    assert open_folder(object_store.uri).open("artifacts/large.bin").read() == large
    assert contexts(Store(object_store.uri)) == [16]


@pytest.mark.parametrize("methods", [("GET",), ("GET", "HEAD")])
def test_an_object_that_is_listed_and_not_there_is_passed_over_as_a_local_file_is(object_store, methods):
    store = Store(object_store.uri)
    for length in (16, 32, 64):
        store.keep(rows(length))
    (gone,) = {row["trial_id"] for row in store.read()[0].to_pylist() if row["context_length"] == 32}
    with without(object_store, gone, methods) as uri:
        seen = Store(uri)
        assert (contexts(seen), seen.read()[1]) == ([16, 64], [])
        assert seen.set_aside_damage() == []


def test_results_are_kept_here_while_the_store_is_unreachable_and_arrive_later(object_store, tmp_path):
    kept = []
    store = Store(object_store.uri)
    under_way = store_writer.StoreWriter(store, lambda planned, records: kept.append(records[0].config.context_length))
    object_store.take_bucket_away()
    refused = object_store.requests("PUT", 404)
    for length in (16, 32, 64):
        under_way.put(None, rows(length))
    wait_until(lambda: object_store.requests("PUT", 404) >= refused + 2)
    assert kept == [16, 32, 64], "they are durable on this machine"
    assert len(waiting(tmp_path)) == 3
    assert sum(pq.read_table(path).num_rows for path in waiting(tmp_path)) == 6
    object_store.make_bucket()
    under_way.close()
    assert (contexts(store), waiting(tmp_path)) == ([16, 32, 64], [])


def test_the_pause_doubles_with_each_failed_upload_and_is_reset_by_success(object_store):
    post = store_writer.Uploader(Store(object_store.uri), in_background=False)
    post.kept_here.keep(rows(16))
    object_store.take_bucket_away()
    for count in range(1, 9):
        assert "NO_SUCH_BUCKET" in str(post.upload())
        assert post.pause == min(store_writer.FIRST_PAUSE * 2**count, store_writer.LONGEST_PAUSE)
    object_store.make_bucket()
    assert (post.upload(), post.pause) == (None, store_writer.FIRST_PAUSE)


def test_results_not_uploaded_by_a_run_are_uploaded_by_the_next(object_store, tmp_path, monkeypatch):
    monkeypatch.setattr(store_writer, "PATIENCE", 0.0)
    under_way = store_writer.StoreWriter(Store(object_store.uri), lambda planned, records: None)
    object_store.take_bucket_away()
    under_way.put(None, rows(16))
    kept = r"results are in .*cache/lmsweep/waiting/\w+; the next run here uploads them"
    with pytest.raises(store_writer.StoreError, match=kept):
        under_way.close()
    with pytest.raises(RequestError, match=r"cannot (reach|write to) the store"):
        store_writer.writable_store(object_store.uri)
    assert len(waiting(tmp_path)) == 1
    object_store.make_bucket()
    store_writer.writable_store(object_store.uri)
    assert (contexts(Store(object_store.uri)), waiting(tmp_path)) == ([16], [])


def test_results_are_kept_while_a_request_waits_for_its_answer(object_store, tmp_path):
    kept = threading.Semaphore(0)
    under_way = store_writer.StoreWriter(Store(object_store.uri), lambda planned, records: kept.release())
    object_store.process.suspend()
    try:
        under_way.put(None, rows(16))
        time.sleep(2 * store_writer.FIRST_PAUSE)  # by now it is on its way
        for length in (32, 64):
            under_way.put(None, rows(length))
        assert all(kept.acquire(timeout=5.0) for _ in range(3)), "nothing is durable until the server answers"
        assert len(waiting(tmp_path)) == 3
    finally:
        object_store.process.resume()
    under_way.close()
    assert (contexts(Store(object_store.uri)), waiting(tmp_path)) == ([16, 32, 64], [])


def test_no_row_arrives_before_the_file_that_it_names(tmp_path):
    here, there = Store(str(tmp_path / "here")), Store(str(tmp_path / "there"))
    trial = Trial(config=CONFIG, workloads=("profile",), sweep="test")
    trace = Artifact(name="trace.json", content=b"{}", phase="step", metric="trace")

    def keep_many() -> None:
        for _ in range(30):
            here.keep(Attempt.begin(trial).rows("profile", [trace], MACHINE))

    keeper = threading.Thread(target=keep_many)
    keeper.start()
    while keeper.is_alive() or here.count_fragments():
        there.take_from(here)
        for path in there.read(columns=["artifact"])[0]["artifact"].to_pylist():
            assert (tmp_path / "there" / path).read_bytes() == b"{}"
    assert there.read()[0].num_rows == 30


@pytest.mark.slow
def test_failing_to_merge_files_prints_a_sentence(object_store, tmp_path, capsys):
    server = ObjectStore(tmp_path)
    store = Store(server.uri)
    server.process.kill()
    server.process.wait()
    compact(store, RunProgress([], Eta([], {}), Console(width=1000), names={}))
    assert "could not merge the files of" in capsys.readouterr().out
