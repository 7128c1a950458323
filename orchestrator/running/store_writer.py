"""Writes the rows of trials to the store in the background, so that no trial waits for a disk or a network.

Rows for a remote store are first made durable on this machine, and stay here while the store is unreachable.
"""

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Queue

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.trials.machine.scratch import cache_folder
from lmsweep.trials.results.record import Record, Row, failures_of
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.quantities import count_of
from lmsweep.trials.store.store import Store

MOST_WAITING = 100
"""Trials whose rows may wait for the disk. When it falls further behind, `put` blocks."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before an upload is retried: the pause doubles with each failure, up to the longest."""
PATIENCE = 300.0
"""Seconds for which a finished run keeps trying to reach the store."""

SHIPPED = Path(__file__).parents[2] / "analysis/reference"  # sets of results that are read by their names
SLOW_SECONDS = 30.0
"""How long the rows of one trial may take before a message reports it."""

OnKept = Callable[[PlannedTrial, list[Record]], None]


class StoreError(Exception):
    """The store rejected rows, or has lost some; the message says why. All others that it had accepted are complete."""


class StoreWriter:
    """Writes rows in the order of `put`. Its thread calls `on_kept` with the rows that have become durable."""

    def __init__(self, store: Store, on_kept: OnKept, say: Callable[[str], None] = print) -> None:
        self._store = store
        self._say = say
        self._busy_since: float | None = None
        """time.monotonic() when writing began; None if nothing is being written, or once it was reported."""
        self._uploader = None if store.is_local else Uploader(store)
        self._disk = self._uploader.kept_here if self._uploader else store
        self._on_kept = on_kept
        self._waiting: Queue[tuple[PlannedTrial, list[Row]] | None] = Queue(MOST_WAITING)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="store writer", daemon=True)
        self._thread.start()

    def put(self, planned: PlannedTrial, rows: list[Row]) -> None:
        """Queue the rows of a trial. Raises StoreError if earlier rows could not be written."""
        self._raise_error()
        self._waiting.put((planned, rows))

    def close(self) -> None:
        """Wait until all rows are in the store. Raises StoreError if some could not be written."""
        self._waiting.put(None)
        while self._thread.is_alive():
            self._thread.join(1.0)
            self.say_if_slow()
        if self._uploader:
            self._error = self._uploader.close() or self._error
        self._raise_error()

    def check_stored(self) -> None:
        """Raise StoreError if the store lacks rows that were written: a trial runs code that may delete files."""
        added = self._disk.added
        try:
            lost = self._store.lacks(added)
        except (OSError, RequestError) as error:
            raise StoreError(f"what is stored could not be checked: {error}") from error
        if lost:
            raise StoreError(
                f"{self._store.location} has lost results of {count_of(len(lost), 'trial')} of the "
                f"{len(added['measurements'])} that were stored: their files have been deleted or changed since"
            )

    def _work(self) -> None:
        while item := self._waiting.get():
            if self._error:
                continue  # but take the rest: no `put` may wait for a full queue
            planned, rows = item
            self._busy_since = time.monotonic()
            try:
                self._on_kept(planned, self._keep(rows))
            except Exception as error:  # noqa: BLE001 - raised again by `put` and `close`
                self._error = error
            self._busy_since = None

    def say_if_slow(self) -> None:
        """Report once that the disk has not taken the rows of a trial for a long time."""
        if (since := self._busy_since) and time.monotonic() > since + SLOW_SECONDS:
            self._busy_since = None
            waiting = 1 + self._waiting.qsize()
            self._say(f"{self._disk.location} does not answer; rows of trials that wait to be stored: {waiting}")

    def _keep(self, rows: list[Row]) -> list[Record]:
        """Return the stored records; for rows that do not fit the tables, those of a failure."""
        try:
            return self._disk.keep(rows)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever one trial yields must not end the run
            words = f"its rows cannot be stored: {type(error).__name__}: {error}"
            return self._disk.keep(failures_of(rows, words))

    def _raise_error(self) -> None:
        if isinstance(self._error, OSError):
            raise StoreError(f"cannot write more results to {self._disk.location}: {self._error}") from self._error
        if self._error:
            raise self._error


class Uploader:
    """Moves results from this machine's disk to a remote store."""

    def __init__(self, store: Store, *, in_background: bool = True) -> None:
        self._store = store
        name = hashlib.sha256(store.location.encode()).hexdigest()[:16]
        self.kept_here = Store(str(cache_folder() / "waiting" / name))
        self.pause = FIRST_PAUSE
        """Seconds until the next attempt."""
        self._closing = threading.Event()
        self._error: Exception | None = None
        # A daemon: rows that still wait are durable on this machine, so the process may exit.
        self._thread = threading.Thread(target=self._work, name="uploader", daemon=True)
        if in_background:
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
            until = time.monotonic() + PATIENCE
            while error := self.upload():
                if time.monotonic() + self.pause > until:
                    raise StoreError(
                        f"cannot write more results to {self._store.location}: {error}; the results are in "
                        f"{self.kept_here.location}; the next run here uploads them"
                    ) from error
                time.sleep(self.pause)
        except Exception as error:  # noqa: BLE001 - returned by `close`
            self._error = error


def writable_store(location: str) -> Store:
    """Return the store to write to, with the results that an earlier run left on this machine. Raises RequestError if
    nothing can be written there, and for the name of a set that ships, which such a folder would hide."""
    name = Path(location).name
    if (SHIPPED / name / "measurements").is_dir() and Path(location).absolute() == Path.cwd() / name:
        raise RequestError(
            f"the store {location}: {name} is a set that ships with lmsweep, and a folder of this name here would "
            f"hide it; choose another name, such as my-{name}"
        )
    store = Store(location)
    store.check_writable()
    if not store.is_local and (error := Uploader(store, in_background=False).upload()):
        raise RequestError(f"cannot reach the store {store.location}: {error}") from error
    return store
