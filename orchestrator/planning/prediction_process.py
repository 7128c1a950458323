"""The answers of `lmsweep.trials.prediction.predict`, a process that may import torch, to a question; they come one by
one.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

from lmsweep.orchestrator.terminal import format_seconds, say
from lmsweep.trials.machine.interpreter import command, environment
from lmsweep.trials.machine.processes import kill_group
from lmsweep.trials.machine.scratch import temporary_folder
from lmsweep.trials.spec.config import RequestError, TrialConfig

SAY_EVERY = 10.0
"""Seconds between two words on how far it is, while it is waited for."""


class Answers:
    """Those to a question about some configurations, from a process that is begun at once."""

    def __init__(
        self,
        question: str,
        configs: list[TrialConfig],
        *,
        on_answer: Callable[[int, Any], None] = lambda index, answer: None,
        **options: Any,
    ) -> None:
        """`on_answer` hears of each as it comes, by its index in `configs`, in a thread of its own."""
        self.count = len(configs)
        """How many there will be."""
        self._found: dict[int, Any] = {}
        self._on_answer = on_answer
        self._began = time.monotonic()
        self._over = Event()
        request = tempfile.TemporaryFile(dir=temporary_folder())  # noqa: SIM115 - the process has its own handle
        asked = {"question": question, "configs": [vars(one) for one in configs], **options}
        request.write(json.dumps(asked).encode())
        request.seek(0)
        # In a group of its own that ends with this process, and without a GPU, which no prediction needs: a driver that
        # was initialised could not be used by the processes that it forks.
        self._process = subprocess.Popen(
            command("lmsweep.trials.prediction.predict", str(os.getpid())),
            stdin=request,
            stdout=subprocess.PIPE,
            env=environment() | {"CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )
        self._reader = Thread(target=self._read, name="answers", daemon=True)
        self._reader.start()

    def wait(self) -> list[Any]:
        """All of them, in the order of the configurations; says now and then how far it is. Raises RequestError where
        the process failed.
        """
        while not self._over.wait(SAY_EVERY):
            say(self._how_far(), error=True)
        if self._process.wait() or len(self._found) < self.count:
            raise RequestError("memory could not be predicted (see above); --no-predict goes without")
        return [self._found[index] for index in range(self.count)]

    def within(self, seconds: float) -> dict[int, Any]:
        """Those that there are this long after the process was begun, by index; then the process is ended. Raises
        RequestError where it failed before.
        """
        left = seconds - (time.monotonic() - self._began)
        if self._over.wait(max(left, 0.0)):
            return dict(enumerate(self.wait()))
        self.close()
        return dict(self._found)

    def close(self) -> None:
        """Ends the process, whatever it has yet to answer."""
        kill_group(self._process.pid)  # those that it has started would hold its output open
        self._reader.join()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):  # else it was killed while it wrote
                    index, answer = json.loads(line)
                    self._found[index] = answer
                    self._on_answer(index, answer)
        self._over.set()

    def _how_far(self) -> str:
        done = len(self._found)
        words = f"predicted {done} of {self.count}"
        if not done:
            return words
        left = (time.monotonic() - self._began) * (self.count - done) / done
        return f"{words}, about {format_seconds(left)} to go"
