"""Whatever a server answers under the address of a store, a command that reads it ends with one sentence."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lmsweep.analysis.data import open_store
from tests.support.command import answer_here

ANSWERS = {
    "nested": b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000,
    "short": b"HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\n[]",
    "no-text": b"HTTP/1.0 200 OK\r\n\r\n\xff\xfe\0",
    "no-http": b"\0\1\2\r\n\r\n",
    "nothing": b"",
    "long-header": b"HTTP/1.0 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n[]",
    "colours": b"HTTP/1.0 404 \x1b[31mred\r\n\r\n",
    "to-a-file": b"HTTP/1.0 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n",
    "to-no-address": b"HTTP/1.0 302 Found\r\nLocation: http://[::x\r\n\r\n",
    "out-of-the-folder": b'HTTP/1.0 200 OK\r\n\r\n["results/measurements/../../../x.parquet"]',
    "a-mapping": b'HTTP/1.0 200 OK\r\n\r\n{"results": 1}',
}


class Hostile(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        _, kind, *_ = self.path.split("/")
        with suppress(OSError):
            self.wfile.write(ANSWERS.get(kind, b"HTTP/1.0 200 OK\r\n\r\n"))
            while kind in ("endless", "slow"):
                self.wfile.write(b"[" * (100_000 if kind == "endless" else 1))
                time.sleep(0.2 if kind == "slow" else 0)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("kind", [*ANSWERS, "endless", "slow"])
def test_whatever_an_address_answers_the_command_ends_with_a_sentence(address: str, kind: str, monkeypatch) -> None:
    monkeypatch.setattr(open_store, "MOST_BYTES", 10_000_000)
    monkeypatch.setattr(open_store, "ANSWER_SECONDS", 1)
    done = answer_here("table", f"{address}/{kind}")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"{address}/{kind}/files.json" in done.stderr and "\x1b" not in done.stderr
    assert {"endless": "it has more than", "slow": "it is not whole after 1 s"}.get(kind, "") in done.stderr
