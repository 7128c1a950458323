"""The process that predicts: its answers arrive whole, and no failure leaves the plan waiting."""

import io
import sys
from dataclasses import replace

import pytest

from lmsweep.orchestrator.planning.prediction_process import Answer, Answers
from lmsweep.trials.prediction.predict import print_answer
from lmsweep.trials.spec.config import RequestError, TrialConfig

TINY = TrialConfig(model="tiny", d_model=32, d_ff=64, num_layers=1, num_heads=2, vocab_size=64, context_length=8)


class Writes(io.RawIOBase):
    """Keeps what each system call would write."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, text: bytes) -> int:  # type: ignore[override]
        self.calls.append(bytes(text))
        return len(text)


def test_an_answer_is_one_write_also_where_python_is_unbuffered(monkeypatch: pytest.MonkeyPatch) -> None:
    writes = Writes()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(writes, write_through=True))  # type: ignore[type-var]
    print_answer(3, {"peak": 1})
    assert writes.calls == [b'[3, {"peak": 1}]\n'], "processes of a pool write to one pipe at the same time"


def test_a_plan_does_not_wait_for_answers_that_nobody_can_keep() -> None:
    def keep(index: int, answer: Answer) -> None:
        raise OSError("no space left on device")

    answers = Answers("predict", [TINY], subjects=["model"], code=None, on_answer=keep)
    with pytest.raises(RequestError, match=r"no space left on device.*--no-predict runs without"):
        answers.wait()


def test_one_process_answers_two_questions() -> None:
    asked = {"code": None, "subjects": ["model"]}
    then = asked | {"question": "operators", "configs": [replace(TINY, device="cuda")]}
    memory, step = Answers("predict", [TINY], then=then, **asked).wait()
    assert memory["peak"] and step["operators"]
