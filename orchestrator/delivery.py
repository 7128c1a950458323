"""Delivery: the rows of trials on their way to the store. A thread waits for the disk, so that no trial does.

What is for a store on other machines is first made durable on this one, and waits there while the store cannot be
reached.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue

from orchestrator.plan import PlannedTrial
from trials.record import Record, Row
from trials.spec import RequestError
from trials.store import Store

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
        self._store = store
        self._on_kept = on_kept
        self._waiting: Queue[tuple[PlannedTrial, list[Row]] | None] = Queue(MOST_WAITING)
        self._error: Exception | None = None
        # A daemon: what still waits for a store that cannot be reached is durable, and no reason to stay.
        self._thread = threading.Thread(target=self._work, name="delivery", daemon=True)
        self._thread.start()

    def put(self, planned: PlannedTrial, rows: list[Row]) -> None:
        """Takes the rows of a trial. Raises StoreError where earlier ones could not be kept."""
        self._raise_error()
        self._waiting.put((planned, rows))

    def close(self) -> None:
        """Returns when all rows are in the store. Raises StoreError where some cannot be."""
        self._waiting.put(None)
        self._thread.join()
        self._raise_error()

    def _work(self) -> None:
        post = None if self._store.is_local else Post(self._store)
        while True:
            try:
                item = self._waiting.get(timeout=post.pause if post else None)
            except Empty:
                assert post, "without a post there is nothing to wait for"
                post.deliver()
                continue
            try:
                if item is None:
                    if post:
                        post.deliver_all()
                    return
                if not self._error:
                    self._on_kept(item[0], (post.kept_here if post else self._store).keep(item[1]))
            except Exception as error:  # noqa: BLE001 - raised again where it can be answered
                self._error = error
                if item is None:
                    return

    def _raise_error(self) -> None:
        if isinstance(self._error, OSError):
            raise StoreError(str(self._error)) from self._error
        if self._error:
            raise self._error


class Post:
    """Results on this machine's disk that are on their way to a store elsewhere."""

    def __init__(self, store: Store) -> None:
        self._store = store
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        name = hashlib.sha256(store.location.encode()).hexdigest()[:16]
        self.kept_here = Store(str(cache / "lmsweep" / "waiting" / name))
        self.pause = FIRST_PAUSE
        """Seconds until it is tried again."""

    def deliver(self) -> OSError | None:
        """Tries once; returns what was in the way."""
        try:
            self._store.take_from(self.kept_here)
        except OSError as error:
            self.pause = min(2 * self.pause, LONGEST_PAUSE)
            return error
        self.pause = FIRST_PAUSE
        return None

    def deliver_all(self) -> None:
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
