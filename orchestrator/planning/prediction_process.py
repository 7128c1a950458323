"""Asks the process `lmsweep.trials.prediction.predict`, which may import torch, and collects its answers."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread

from lmsweep.orchestrator.terminal import ProgressLine, time_left
from lmsweep.trials.analytic.prediction_question import Answer, Question, Want, answer_of, as_text
from lmsweep.trials.machine.interpreter import command, environment
from lmsweep.trials.machine.processes import kill_group
from lmsweep.trials.machine.scratch import temporary_folder
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.quantities import count_of
from lmsweep.trials.spec.reference import Code

NOUN = "configuration"
_WHAT: dict[Want, str] = {
    "memory": "memory",
    "bounds": "memory",
    "largest": "largest size",
    "verdict": "fragmentation",
    "operators": "steps",
}
"""What a process predicts, in messages about its progress."""


def start_without_gpu(module: str, request: str) -> "subprocess.Popen[bytes]":
    """Start a module of lmsweep that reads a request, in a process group of its own, which ends with this process. It
    sees no GPU: it needs none, and CUDA, once initialized, would not work in what it forks."""
    with tempfile.TemporaryFile(dir=temporary_folder()) as file:  # the process has its own handle
        file.write(request.encode())
        file.seek(0)
        return subprocess.Popen(
            command(module, str(os.getpid())),
            stdin=file,
            stdout=subprocess.PIPE,
            env=environment() | {"CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )


class Answers:
    """The answers to questions, from a process that starts at once."""

    def __init__(
        self,
        questions: Sequence[Question],
        code: Code | None,
        *,
        on_answer: Callable[[int, Answer], None] = lambda index, answer: None,
        most: int | None = None,
    ) -> None:
        """code: the user's. `on_answer` runs in another thread. most: how many trials of a large plan are predicted."""
        self.count = len(questions)
        self._first_want = questions[0].wants[0]
        self._steps = sum(one.wants == ("operators",) for one in questions)
        """Number of questions about operators alone, which are answered last."""
        self._found: dict[int, Answer] = {}
        self._on_answer = on_answer
        self._began = time.monotonic()
        self._error = "see above"
        self._over = Event()
        request = as_text({"questions": questions, "code": code, "most": most})
        self._process = start_without_gpu("lmsweep.trials.prediction.predict", request)
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
                        index, values = json.loads(line)
                        if index not in self._found:  # an answer may come at once by itself, and again in its batch
                            answer = answer_of(values)
                            self._on_answer(index, answer)
                            self._found[index] = answer
        except (OSError, ValueError) as error:  # `wait` raises, as answers are missing
            self._error = f"{type(error).__name__}: {error}"
            kill_group(self._process.pid)
        self._over.set()

    def _progress(self) -> str:
        done, passed = len(self._found), time.monotonic() - self._began
        what, words = _WHAT[self._first_want], count_of(self.count, NOUN)
        if not done:
            return f"predicting the {what} of {words}"
        others = self.count - self._steps  # answered before those about operators alone
        if self._first_want == "bounds" and done < others:  # most of them follow from a few, so no time left is known
            return f"predicted the {what} of {count_of(done, NOUN)}, to find out which of {others} fit"
        if self._steps and done > others:
            return f"predicted the steps of {done - others} of {count_of(self._steps, NOUN)}"
        left = passed * (self.count - done) / done
        return f"predicted the {what} of {done} of {words}, {time_left(left)}"
