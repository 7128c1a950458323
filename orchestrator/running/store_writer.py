"""Delivery: the rows of trials on their way to the store. A thread waits for the disk, so that no trial does.

What is for a store on other machines is first made durable on this one. From there a second thread sends it, which may
wait for minutes for an answer, and there it stays while the store cannot be reached.
"""

import hashlib
import threading
import time
from collections.abc import Callable
from queue import Queue

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.trials.machine.cache_folder import cache_folder
from lmsweep.trials.results.record import Record, Row
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store

MOST_WAITING = 100
"""Trials whose rows may wait for a disk; more are not taken while it is behind."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds after which a store that could not be reached is tried again: twice as long each time."""
PATIENCE = 300.0
"""Seconds for which a finished run waits for a store that cannot be reached."""

OnKept = Callable[[PlannedTrial, list[Record]], None]


class StoreError(Exception):
    """The store took no more rows. The message says why; what it had taken is complete."""


class Delivery:
    """Keeps rows in the order in which they come; `on_kept`, called by its thread, hears of those that are durable."""

    def __init__(self, store: Store, on_kept: OnKept) -> None:
        self._post = None if store.is_local else Post(store)
        self._disk = self._post.kept_here if self._post else store
        self._on_kept = on_kept
        self._waiting: Queue[tuple[PlannedTrial, list[Row]] | None] = Queue(MOST_WAITING)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="delivery", daemon=True)
        self._thread.start()
        if self._post:
            self._post.start()

    def put(self, planned: PlannedTrial, rows: list[Row]) -> None:
        """Takes the rows of a trial. Raises StoreError where earlier ones could not be kept."""
        self._raise_error()
        self._waiting.put((planned, rows))

    def close(self) -> None:
        """Returns when all rows are in the store. Raises StoreError where some cannot be."""
        self._waiting.put(None)
        self._thread.join()
        if self._post:
            self._error = self._post.close() or self._error
        self._raise_error()

    def _work(self) -> None:
        while item := self._waiting.get():
            if self._error:
                continue
            try:
                self._on_kept(item[0], self._disk.keep(item[1]))
            except Exception as error:  # noqa: BLE001 - raised again where it can be answered
                self._error = error

    def _raise_error(self) -> None:
        if isinstance(self._error, OSError):
            raise StoreError(str(self._error)) from self._error
        if self._error:
            raise self._error


class Post:
    """Results on this machine's disk that are on their way to a store elsewhere."""

    def __init__(self, store: Store) -> None:
        self._store = store
        name = hashlib.sha256(store.location.encode()).hexdigest()[:16]
        self.kept_here = Store(str(cache_folder() / "waiting" / name))
        self.pause = FIRST_PAUSE
        """Seconds until it is tried again."""
        self._closing = threading.Event()
        self._error: Exception | None = None
        # A daemon: what still waits for a store that cannot be reached is durable, and no reason to stay.
        self._thread = threading.Thread(target=self._work, name="post", daemon=True)

    def start(self) -> None:
        """Delivers from now on what comes."""
        self._thread.start()

    def close(self) -> Exception | None:
        """Returns when all has been delivered, or why it has not."""
        self._closing.set()
        self._thread.join()
        return self._error

    def deliver(self) -> OSError | None:
        """Tries once; returns what was in the way."""
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
                self.deliver()
            self._deliver_all()
        except Exception as error:  # noqa: BLE001 - handed to who closes it
            self._error = error

    def _deliver_all(self) -> None:
        """Tries until all has arrived. Raises StoreError where the store stays out of reach."""
        until = time.monotonic() + PATIENCE
        while error := self.deliver():
            if time.monotonic() + self.pause > until:
                words = f"{error}; results wait in {self.kept_here.location} and go with the next run from here"
                raise StoreError(words) from error
            time.sleep(self.pause)


def deliver_left_over(store: Store) -> None:
    """Delivers what waits on this machine since an earlier run. Raises RequestError where the store is out of reach."""
    if not store.is_local and (error := Post(store).deliver()):
        raise RequestError(f"cannot reach the store {store.location}: {error}") from error
