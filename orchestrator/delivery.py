"""Delivery: the rows of trials on their way to the store. A thread waits for the disk, so that no trial does."""

import threading
from collections.abc import Callable
from queue import Queue

from orchestrator.plan import PlannedTrial
from trials.record import Record, Row
from trials.store import Store

MOST_WAITING = 100
"""Trials whose rows may wait; more are not taken while the disk is behind."""

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
        self._lost = 0
        self._thread = threading.Thread(target=self._work, name="delivery")
        self._thread.start()

    def put(self, planned: PlannedTrial, rows: list[Row]) -> None:
        """Takes the rows of a trial. Raises StoreError where earlier ones could not be kept."""
        self._raise_error()
        self._waiting.put((planned, rows))

    def close(self) -> None:
        """Returns when all rows are durable. Raises StoreError where some cannot be."""
        self._waiting.put(None)
        self._thread.join()
        self._raise_error()

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            if self._error:
                self._lost += 1  # a later one may still fit, but would be no whole result of a run
                continue
            try:
                self._on_kept(item[0], self._store.keep(item[1]))
            except Exception as error:  # noqa: BLE001 - raised again where it can be answered
                self._error = error
                self._lost += 1

    def _raise_error(self) -> None:
        if isinstance(self._error, OSError):
            raise StoreError(str(self._error)) from self._error
        if self._error:
            raise self._error
