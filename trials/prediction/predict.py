"""The program that planning asks about steps, so that the driver need not import torch.

``python -m lmsweep.trials.prediction.predict PID`` reads a request from standard input, as JSON: `questions`, the
user's `code` or null, and how many trials of a large plan to predict at `most`, or null. It prints the index of each
question and its answer, as JSON, as they come. It exits when its parent, the process PID, does.
"""

import fcntl
import gc
import json
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from lmsweep.trials.analytic.memory_bounds import Need, bounds_of, family
from lmsweep.trials.analytic.memory_prediction import enough, upper_bound
from lmsweep.trials.analytic.prediction_question import Answer, Question, as_text, question_of
from lmsweep.trials.analytic.rates.operators import row_of
from lmsweep.trials.machine.processes import die_with_parent
from lmsweep.trials.model.training_step import PHASES
from lmsweep.trials.prediction.flop_count import count_flops
from lmsweep.trials.prediction.many_steps.lasting_memory import (
    beyond,
    fixed,
    largest_lasting,
    many_steps,
    run_fits,
    run_memory,
    some_shapes,
    with_size,
)
from lmsweep.trials.prediction.own_code_jobs import LIMIT_SECONDS, answer_with_code
from lmsweep.trials.prediction.peak_memory import allocations, eager_bounds, fits_in, predict
from lmsweep.trials.prediction.process_pool import Batch, answer_batches, together
from lmsweep.trials.prediction.shared_runs import one_run_for
from lmsweep.trials.prediction.step_family import largest_of_trial, prepare, step_family
from lmsweep.trials.prediction.step_operators import step_operators, structure_of, why_untimed
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import Code
from lmsweep.trials.spec.words import Mode

LARGEST_SECONDS = 600.0
"""Time limit of the search for the largest size of the user's own code, which runs the code dozens of times."""

_TURN = tempfile.TemporaryFile()  # noqa: SIM115
"""Locked by the process that writes an answer."""

Found = dict[str, Any]
"""Fields of an answer."""


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    gc.freeze()  # PyTorch's objects live as long as this process
    gc.set_threshold(100_000, 20, 100)  # a sixth of the time went into collecting
    request = json.load(sys.stdin)
    code = Code(**request["code"] | {"trusted": tuple(request["code"]["trusted"])}) if request["code"] else None
    questions = [question_of(values, index) for index, values in enumerate(request["questions"])]
    for index, answer in _answers(questions, code, request["most"]):
        print_answer(index, answer)


def print_answer(index: int, answer: Answer) -> None:
    # Processes of the pool share the pipe, which mixes what two write beyond 4096 bytes. This kind of lock belongs to a
    # process and ends with it: one that is killed while it writes blocks no other.
    fcntl.lockf(_TURN, fcntl.LOCK_EX)
    sys.stdout.write(as_text([index, answer]) + "\n")
    sys.stdout.flush()
    fcntl.lockf(_TURN, fcntl.LOCK_UN)


def _answers(questions: list[Question], code: Code | None, most: int | None) -> Iterator[tuple[int, Answer]]:
    """Yield the answers. The first kind of question is answered for all configurations before the second kind."""
    kinds = dict.fromkeys(one.wants for one in questions)
    of_kind = [[one for one in questions if one.wants == wants] for wants in kinds]
    in_batches = [together(asked, _shared) for asked in of_kind]
    for number, (wants, asked, batches) in enumerate(zip(kinds, of_kind, in_batches, strict=True), 1):
        answer, limit = _one_by_one, LIMIT_SECONDS
        if "bounds" in wants:
            # Of each family at least two: one that fits and one that does not bound the others.
            answer = partial(_bounds, most=max(2, most // len(batches)) if most else len(asked))
        elif "largest" in wants:
            prepare([one.config for one in asked if not one.is_trial], code)
            limit = LARGEST_SECONDS
        # Several batches go to processes of the pool, the user's code to others.
        forks_later = any(len(later) > 1 or later[0][0].config.references for later in in_batches[number:])
        yield from _answered(answer, batches, code, limit, forks_later=forks_later)


def _shared(asked: Question) -> Hashable:
    """A key of the question among those of its kind: one run, or one search, answers all with the same key."""
    if asked.config.references or not asked.is_trial:
        return asked.index
    if asked.config.varies:
        return fixed(asked.config), asked.subject, asked.limits
    if asked.wants == ("operators",):
        return structure_of(asked.config)
    if "bounds" in asked.wants:
        return family(asked.config), asked.subject, asked.limits
    return one_run_for(asked.config)


def _answered(
    answer: Callable[[Batch], list[Answer]], batches: list[Batch], code: Code | None, limit: float, *, forks_later: bool
) -> Iterator[tuple[int, Answer]]:
    """Answer questions about lmsweep's own code in this process and its pool, those about the user's apart from it."""
    users = [batch for batch in batches if batch[0].config.references]
    if not any(batch[0].config.has_own_code for batch in users):
        limit = LARGEST_SECONDS  # models of transformers alone: their code neither hangs nor waits
    ours = [batch for batch in batches if not batch[0].config.references]
    yield from answer_batches(answer, ours, forks_later=forks_later or bool(users))
    if code:
        yield from answer_with_code(answer, users, code, lambda why: Answer(failure=why), limit=limit)
    else:
        failure = Answer(failure="it needs your own code, which is not available")
        yield from ((one.index, failure) for batch in users for one in batch)


def _one_by_one(batch: Batch) -> list[Answer]:
    """Answer questions that share a run: of the mode with most phases. Inference and compiled code run each mode."""
    first = batch[0].config
    widest = max((one.config.mode for one in batch), key=lambda mode: len(PHASES[mode]))
    run = widest if first.compile == "none" and first.mode != "forward" else None
    return [answer_to(one, run) for one in batch]


def answer_to(asked: Question, run: Mode | None = None) -> Answer:
    """Answer a question by itself. run: the mode of a run that serves others too."""
    found: Found = {}
    if "memory" in asked.wants or "bounds" in asked.wants:
        found |= _known(lambda: _memory(asked, run), "reason")
        if asked.config.has_counted_flops:
            found["flops"] = count_flops(asked.config)
    if "verdict" in asked.wants:
        found |= _known(lambda: _verdict(asked))
    if "largest" in asked.wants:
        found |= _known(lambda: _largest(asked), "reason")
    elif "operators" in asked.wants and asked.config.device_type == "cuda":
        rows = _known(lambda: _operators(asked))
        why = rows.get("refused", rows.get("failure"))  # the time is unknown, whatever the reason
        found |= rows if why is None else {"untimed": why}
    return Answer(**found)


def _known(find: Callable[[], Found], unknown: str = "failure") -> Found:
    """Return what is found, or why not under `unknown`, `refused` or `failure`: a plan may lack a prediction."""
    try:
        return find()
    except (UnpredictableError, UnsupportedError) as error:
        return {unknown: str(error)}
    except RequestError as error:
        return {"refused": str(error)}
    except Exception as error:  # noqa: BLE001
        return {"failure": f"predicting it failed: {type(error).__name__}: {error}"}


def _operators(asked: Question) -> Found:
    if asked.config.varies:
        return _of_some_shapes([asked.config])
    return {"operators": [*map(row_of, step_operators(asked.config, asked.subject))]}


def _of_some_shapes(configs: Sequence[TrialConfig]) -> Found:
    """The operators of some steps of configurations that differ in the batch alone."""
    some = {shape: one for config in configs for shape, one in some_shapes(config).items()}
    return {"shapes": [(*shape, [*map(row_of, step_operators(one))]) for shape, one in some.items()]}


def _verdict(asked: Question) -> Found:
    limit = asked.limits[0]
    if asked.config.varies:
        return {"fits": run_fits(asked.config, limit), "many_steps": many_steps(asked.config, limit)}
    return {"fits": fits_in(limit, allocations(asked.config, asked.subject), asked.config)}


def _memory(asked: Question, run: Mode | None) -> Found:
    if asked.config.varies:
        return {"prediction": run_memory(asked.config)}
    try:
        return {"prediction": predict(asked.config, asked.subject, run=run)}
    except UnpredictableError:
        with suppress(UnpredictableError, UnsupportedError):
            if bounds := eager_bounds(asked.config, asked.subject):
                return {"bounds": bounds}
        raise


def _largest(asked: Question) -> Found:
    """The largest size that fits within each limit, and the operators of a step of that size."""
    if asked.config.varies:
        return _largest_varied(asked)
    if asked.is_trial:
        return {"largest": tuple(largest_of_trial(asked.config, asked.dimension, limit) for limit in asked.limits)}
    step = step_family(asked.config)
    found = [step.largest(limit) for limit in asked.limits]
    if why := why_untimed(asked.config):
        return {"largest": tuple(found), "untimed": why}
    rows = {one.sure: list(map(row_of, step.operators(one.sure))) for one in found if one.sure}
    return {"largest": tuple(one._replace(operators=rows.get(one.sure, ())) for one in found)}


def _largest_varied(asked: Question) -> Found:
    largest = [largest_lasting(asked.config, limit) for limit in asked.limits]
    further = [beyond(asked.config, *pair) for pair in zip(asked.limits, largest, strict=True)]
    found: Found = {"largest": tuple(largest), "beyond": tuple(further)}
    if "operators" in asked.wants:
        sizes = sorted({one.sure for one in largest if one.sure})
        ends = {*sizes[:1], *sizes[-1:]}  # the smallest and the largest, from whose operators the times of all follow
        found |= _of_some_shapes([with_size(asked.config, size) for size in ends])
    return found


def _bounds(batch: Batch, *, most: int) -> list[Answer]:
    """Answer questions about one family on the same devices: predict at most `most` trials, and bound the others."""
    found: dict[int, Answer] = {}
    limits = batch[0].limits

    def need(index: int) -> Need | None:
        """Predict a trial, with its answer in `found`; None if what it needs is not predicted."""
        one = batch[index]
        found[index] = one.kept or answer_to(one)
        if len(batch) > 1:  # print it at once, so that a killed plan keeps it, and again with all at the end
            print_answer(one.index, found[index])
        if (predicted := found[index].prediction) is None:
            return None
        on_each = [predicted.on(limit.device_name) for limit in limits]
        return Need(min(of_device.peak for of_device in on_each), max(enough(of_device) for of_device in on_each))

    bounds = bounds_of(
        [one.config for one in batch],
        [limit.bytes for limit in limits],
        need,
        most,
        guesses=[upper_bound(one.config, one.subject) for one in batch],
        first=[index for index, one in enumerate(batch) if one.kept],
    )
    return [found.get(i, Answer(bounds=bound, is_of_plan=True)) for i, bound in enumerate(bounds)]


if __name__ == "__main__":
    main()
