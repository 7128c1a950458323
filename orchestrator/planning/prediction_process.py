"""Asks the process `lmsweep.trials.prediction.predict`, which may import torch, and collects its answers."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any, Literal

from lmsweep.orchestrator.terminal import ProgressLine, time_left
from lmsweep.trials.machine.interpreter import command, environment
from lmsweep.trials.machine.processes import kill_group
from lmsweep.trials.machine.scratch import temporary_folder
from lmsweep.trials.spec.config import RequestError, TrialConfig

Question = Literal["predict", "bounds", "frontier", "fits", "operators", "room"]

_WHAT: dict[Question, str] = {
    "predict": "memory",
    "bounds": "memory",
    "frontier": "largest size",
    "fits": "fragmentation",
    "operators": "steps",
    "room": "largest batch",
}
"""What a process predicts, in messages about its progress."""

Answer = dict[str, Any]


class Answers:
    """The answers to one question about several configurations, from a process that starts at once."""

    def __init__(
        self,
        question: Question,
        configs: list[TrialConfig],
        *,
        on_answer: Callable[[int, Answer], None] = lambda index, answer: None,
        then: dict[str, Any] | None = None,
        **options: object,
    ) -> None:
        """`on_answer` runs in a thread of its own; lists in `options` have one item per configuration. `then` is a
        second question, with its configurations and options, whose answers follow those of the first."""
        self._steps = len(then["configs"]) if then else 0
        self.count = len(configs) + self._steps
        self._question = question
        self._found: dict[int, Answer] = {}
        self._on_answer = on_answer
        self._began = time.monotonic()
        self._error = "see above"
        self._over = Event()
        request = tempfile.TemporaryFile(dir=temporary_folder())  # noqa: SIM115 - the process has its own handle
        asked = {"question": question, "configs": configs, "then": then, **options}
        request.write(json.dumps(asked, default=vars).encode())
        request.seek(0)
        # In a process group of its own, which ends with this process. Without a GPU: no prediction needs one, and
        # processes forked after CUDA has been initialized could not use it.
        self._process = subprocess.Popen(
            command("lmsweep.trials.prediction.predict", str(os.getpid())),
            stdin=request,
            stdout=subprocess.PIPE,
            env=environment() | {"CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )
        self._reader = Thread(target=self._read, name="answers", daemon=True)
        self._reader.start()

    def wait(self) -> list[Answer]:
        """Return all answers in order, reporting progress. Raises RequestError if the process failed."""
        line = ProgressLine()
        while not self._over.wait(line.every):
            line.show(self._progress)
        line.end()
        if self._process.wait() or len(self._found) < self.count:
            raise RequestError(f"predicting memory failed ({self._error}); --no-predict runs without predictions")
        return [self._found[index] for index in range(self.count)]

    def within(self, seconds: float) -> dict[int, Answer]:
        """Return the answers that arrive in time, by index, and end the process. Raises RequestError if it failed."""
        left = seconds - (time.monotonic() - self._began)
        if self._over.wait(max(left, 0.0)):
            return dict(enumerate(self.wait()))
        self.close()
        return dict(self._found)

    def close(self) -> None:
        """End the process, even if answers are missing."""
        kill_group(self._process.pid)  # its children, too: they hold its output open
        self._reader.join()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        try:
            with self._process.stdout as lines:
                for line in lines:
                    if line.endswith(b"\n"):  # else the process was killed while it wrote
                        index, answer = json.loads(line)
                        if index not in self._found:  # bounds come once more with the others of their family
                            self._on_answer(index, answer)
                            self._found[index] = answer
        except (OSError, ValueError) as error:  # nobody waits for answers that do not come
            self._error = f"{type(error).__name__}: {error}"
            kill_group(self._process.pid)
        self._over.set()

    def _progress(self) -> str:
        done, passed = len(self._found), time.monotonic() - self._began
        what, words = _WHAT[self._question], configurations(self.count)
        if not done:
            return f"predicting the {what} of {words}"
        first = self.count - self._steps
        if self._question == "bounds" and done < first:
            return f"predicted the {what} of {configurations(done)}, to find out which of {first} fit"
        if self._steps:
            return f"predicted the steps of {done - first} of {configurations(self._steps)}"
        left = passed * (self.count - done) / done
        return f"predicted the {what} of {done} of {words}, {time_left(left)}"


def configurations(count: int) -> str:
    return f"{count} configuration" if count == 1 else f"{count} configurations"
