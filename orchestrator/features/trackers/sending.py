"""Sends trials to a tracker in a thread of its own: a slow server delays no trial, and one that fails ends no run."""

from collections.abc import Callable, Sequence
from queue import Queue
from threading import Thread

from lmsweep.analysis.data.load import described, of_stored_rows
from lmsweep.orchestrator.features.trackers.summaries import Summary, summaries_of
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.results.record import Record
from lmsweep.trials.store.parquet_file import table_of

PATIENCE = 120.0
"""Seconds that a run which has ended waits for a tracker."""


class Tracker:
    """Within its context, takes each trial of a run."""

    def __init__(self, name: str, send: Callable[[Summary], None]) -> None:
        """send: raises whatever its library raises."""
        self.send = send
        self._name = name
        self._waiting: Queue[tuple[str, Sequence[Record]] | None] = Queue()
        self._failed: list[str] = []
        self._sent = 0
        self._given = 0
        self._thread = Thread(target=self._work, name=f"tracker {name}", daemon=True)

    def __enter__(self) -> "Tracker":
        self._thread.start()
        return self

    def __call__(self, name: str, records: Sequence[Record]) -> None:
        """Send a trial. name: that of the trial in its run."""
        self._given += 1
        self._waiting.put((name, records))

    def __exit__(self, *_: object) -> None:
        self._waiting.put(None)
        self._thread.join(PATIENCE)
        if self._sent < self._given:
            why = self._failed[0] if self._failed else f"it did not answer within {PATIENCE:g} s"
            say(
                f"lmsweep: {self._name} has {self._sent} of {self._given} trials: {why}. The store has all of them; "
                f"to send it: python -c 'import lmsweep; lmsweep.track(STORE, \"{self._name}\")'",
                error=True,
            )

    def _work(self) -> None:
        while item := self._waiting.get():
            name, records = item
            try:
                frame = of_stored_rows(described(table_of(records)), pooled=True, flops="model")
                for one in summaries_of(frame):
                    self.send(one._replace(name=name))
                self._sent += 1
            except Exception as error:  # noqa: BLE001 - whatever a library raises must not end the run
                self._failed.append(f"{type(error).__name__}: {error}")
