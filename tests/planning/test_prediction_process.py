"""The process that predicts: its answers arrive whole, and no failure leaves the plan waiting."""

import os
import sys
from dataclasses import replace
from multiprocessing import get_context

import pytest

from lmsweep.orchestrator.planning.prediction_process import Answers
from lmsweep.trials.analytic.prediction_question import Answer, MemoryLimit, Question
from lmsweep.trials.analytic.rates.operators import from_values
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.predict import print_answer
from lmsweep.trials.prediction.process_pool import Batch, answer_batches
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.spec.config import RequestError, TrialConfig

pytestmark = pytest.mark.usefixtures("warm")

TINY = TrialConfig(model="tiny", d_model=32, d_ff=64, num_layers=1, num_heads=2, vocab_size=64, context_length=8)


def print_answers_to(pipe: int) -> None:
    sys.stdout = os.fdopen(pipe, "w")
    for _ in range(100):
        print_answer(2, Answer(reason="unknown" * 5000))


def test_long_answers_of_several_processes_arrive_whole() -> None:
    """A pipe keeps writes of two processes apart up to 4096 bytes; the operators of a step take more."""
    read, write = os.pipe()
    children = [get_context("fork").Process(target=print_answers_to, args=(write,)) for _ in range(4)]
    for one in children:
        one.start()
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        lines = answers.read().splitlines()
    for one in children:
        one.join()
    assert lines == [b'[2, {"is_of_plan": false, "reason": "' + b"unknown" * 5000 + b'"}]'] * 400


def test_a_plan_does_not_wait_for_answers_that_nobody_can_keep() -> None:
    def keep(index: int, answer: Answer) -> None:
        raise OSError("no space left on device")

    answers = Answers([Question(config=TINY)], None, on_answer=keep)
    with pytest.raises(RequestError, match=r"no space left on device.*--no-predict runs without"):
        answers.wait()


@pytest.mark.slow
def test_one_process_answers_many_questions_each_at_its_place() -> None:
    on_gpu = replace(TINY, device="cuda")
    modes = ("train_step", "forward", "forward_backward")
    configs = [replace(TINY, mode=mode, batch_size=batch) for batch in (1, 2) for mode in modes]
    questions = [Question(config=on_gpu, wants=("operators",)), *(Question(config=one) for one in configs)]
    step, *memory = Answers(questions, None).wait()
    assert [one.prediction for one in memory] == [predict(one) for one in configs]
    assert not any(one.operators for one in memory)
    assert from_values(step.operators) == step_operators(on_gpu) and not step.prediction


def process_of(batch: Batch) -> list[int]:
    return [os.getpid() for _ in batch]


def test_a_process_that_forks_later_computes_nothing_itself() -> None:
    """Where there is a GPU, what it forks after a backward pass could not compute gradients."""
    batches = [[Question(config=TINY)]]
    ((_, here),) = answer_batches(process_of, batches, forks_later=False)
    ((_, apart),) = answer_batches(process_of, batches, forks_later=True)
    assert here == os.getpid() != apart


def test_a_question_that_wants_everything_is_answered_by_one_record() -> None:
    limits = (MemoryLimit("H100 SXM", 2**30), MemoryLimit("a 24MB device", 24 * 2**20))
    wants = ("memory", "verdict", "largest", "operators")
    config = replace(TINY, device="cuda", causal=False)
    (found,) = Answers([Question(config=config, limits=limits, wants=wants, is_trial=False)], None).wait()
    assert found.why_not is None and found.prediction and found.fits is True
    large, little = found.largest
    assert large.sure > little.sure and large.operators and large.lasting == little.lasting
    weights = 32 * 32 * 4 + 3 * 32 * 64 + 3 * 32 + 2 * 64 * 32
    assert large.lasting == pytest.approx(16 * weights, rel=0.1), "each with its gradient and two moments"
