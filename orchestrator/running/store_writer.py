"""Writes the rows of trials to the store in the background, so that no trial waits for a disk or a network.

Rows for a remote store are first made durable on this machine. A second thread uploads them from there and may wait
minutes for an answer. While the store is unreachable, they stay on this machine.
"""

import hashlib
import threading
import time
from collections.abc import Callable
from queue import Queue
from typing import NamedTuple

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.trials.machine.scratch import cache_folder
from lmsweep.trials.results.record import Record, Row, failures_of
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store

MOST_WAITING = 100
"""Trials whose rows may wait for the disk. When it falls further behind, `put` blocks."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before an upload is retried: the pause doubles with each failure, up to the longest."""
PATIENCE = 300.0
"""Seconds for which a finished run keeps trying to reach the store."""

SLOW_SECONDS = 30.0
"""How long the rows of one trial may take until a person is told."""

OnKept = Callable[[PlannedTrial, list[Record]], None]


class StoreError(Exception):
    """The store rejected rows; the message says why. The rows that it had accepted are complete."""


class _Item(NamedTuple):
    planned: PlannedTrial
    rows: list[Row]


class StoreWriter:
    """Writes rows in the order of `put`. Its thread calls `on_kept` with the rows that have become durable."""

    def __init__(self, store: Store, on_kept: OnKept, say: Callable[[str], None] = print) -> None:
        """`say` prints a line."""
        self._say = say
        self._busy_since: float | None = None
        """time.monotonic() when the rows that are being written were taken; None while there are none, or once told."""
        self._uploader = None if store.is_local else Uploader(store)
        self._disk = self._uploader.kept_here if self._uploader else store
        self._on_kept = on_kept
        self._waiting: Queue[_Item | None] = Queue(MOST_WAITING)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="store writer", daemon=True)
        self._thread.start()
        if self._uploader:
            self._uploader.start()

    def put(self, planned: PlannedTrial, rows: list[Row]) -> None:
        """Queue the rows of a trial. Raises StoreError if earlier rows could not be written."""
        self._raise_error()
        self._waiting.put(_Item(planned, rows))

    def close(self) -> None:
        """Wait until all rows are in the store. Raises StoreError if some could not be written."""
        self._waiting.put(None)
        while self._thread.is_alive():
            self._thread.join(1.0)
            self.say_if_slow()
        if self._uploader:
            self._error = self._uploader.close() or self._error
        self._raise_error()

    def _work(self) -> None:
        while item := self._waiting.get():
            if self._error:
                continue
            self._busy_since = time.monotonic()
            try:
                self._on_kept(item.planned, self._keep(item.rows))
            except Exception as error:  # noqa: BLE001 - raised again by `put` and `close`
                self._error = error
            self._busy_since = None

    def say_if_slow(self) -> None:
        """Say, once, that the disk has not taken the rows of a trial for a long time."""
        if (since := self._busy_since) and time.monotonic() > since + SLOW_SECONDS:
            self._busy_since = None
            waiting = 1 + self._waiting.qsize()
            self._say(f"{self._disk.location} does not answer; rows of trials that wait to be stored: {waiting}")

    def _keep(self, rows: list[Row]) -> list[Record]:
        """Add the rows and return the records. Of rows that do not fit the tables, only the failure is kept."""
        try:
            return self._disk.keep(rows)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever one trial yields must not end the run
            words = f"its rows cannot be stored: {type(error).__name__}: {error}"
            return self._disk.keep(failures_of(rows, words))

    def _raise_error(self) -> None:
        if isinstance(self._error, OSError):
            raise StoreError(str(self._error)) from self._error
        if self._error:
            raise self._error


class Uploader:
    """Moves results from this machine's disk to a remote store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        name = hashlib.sha256(store.location.encode()).hexdigest()[:16]
        self.kept_here = Store(str(cache_folder() / "waiting" / name))
        self.pause = FIRST_PAUSE
        """Seconds until the next attempt."""
        self._closing = threading.Event()
        self._error: Exception | None = None
        # A daemon: rows that still wait are durable on this machine, so the process may exit.
        self._thread = threading.Thread(target=self._work, name="uploader", daemon=True)

    def start(self) -> None:
        """Begin to upload in the background."""
        self._thread.start()

    def close(self) -> Exception | None:
        """Upload the rest. Return the error if that failed."""
        self._closing.set()
        self._thread.join()
        return self._error

    def upload(self) -> OSError | None:
        """Try once. Return the error if that failed."""
        try:
            self._store.take_from(self.kept_here)
        except OSError as error:
            self.pause = min(2 * self.pause, LONGEST_PAUSE)
            return error
        self.pause = FIRST_PAUSE
        return None

    def _work(self) -> None:
        try:
            while not self._closing.wait(self.pause):
                self.upload()
            self._upload_all()
        except Exception as error:  # noqa: BLE001 - returned by `close`
            self._error = error

    def _upload_all(self) -> None:
        """Try until everything has arrived. Raises StoreError if the store stays unreachable for PATIENCE seconds."""
        until = time.monotonic() + PATIENCE
        while error := self.upload():
            if time.monotonic() + self.pause > until:
                where = self.kept_here.location
                raise StoreError(f"{error}; the results are in {where}; the next run here uploads them") from error
            time.sleep(self.pause)


def upload_left_over(store: Store) -> None:
    """Upload results that an earlier run left on this machine. Raises RequestError if the store is unreachable."""
    if not store.is_local and (error := Uploader(store).upload()):
        raise RequestError(f"cannot reach the store {store.location}: {error}") from error
