"""The program that planning asks about memory, so that the driver need not import torch.

``python -m lmsweep.trials.prediction.predict PID`` reads a request from standard input, as JSON: the question, the
configurations, and a list per further field of `Question`; `then` may hold another request. It prints the index of each
configuration and its answer, as JSON, as they come. It exits when its parent, the process PID, does.
"""

import gc
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from lmsweep.trials.analytic.memory_bounds import Need, bounds_of, family
from lmsweep.trials.analytic.memory_prediction import Dimension, Prediction, enough, upper_bound
from lmsweep.trials.analytic.rates.operators import row_of
from lmsweep.trials.machine.processes import die_with_parent
from lmsweep.trials.model.training_step import PHASES
from lmsweep.trials.prediction.capacity.device_room import any_batch_step, prepare
from lmsweep.trials.prediction.depth.shallow_models import has_own_code
from lmsweep.trials.prediction.flop_count import count_flops
from lmsweep.trials.prediction.largest_batch_fit import largest_that_fits
from lmsweep.trials.prediction.own_code_jobs import LIMIT_SECONDS, answer_with_code
from lmsweep.trials.prediction.peak_memory import eager_bounds, fits, predict
from lmsweep.trials.prediction.process_pool import Batch, answer_batches, by_run
from lmsweep.trials.prediction.step_operators import step_operators, structure_of, why_untimed
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import Code
from lmsweep.trials.spec.words import Mode
from lmsweep.trials.spec.workloads import Subject

FRONTIER_SECONDS = 600.0
"""Time that the search for the largest size of the user's own code may take: it runs dozens of times."""

Answer = dict[str, Any]
"""An answer, in JSON's types and operators. Instead of the value it may hold the `reason` why there is none, or the
`failure` of a bug."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked about one configuration. Bytes are those that the allocator may have of the device."""

    config: TrialConfig
    subject: Subject = "model"
    """What is in memory: the model, or attention alone."""
    budget: int = 0
    device_name: str = ""
    """Ours or the driver's."""
    dimension: Dimension = "batch_size"
    """What to maximize."""
    rooms: tuple[tuple[str, int], ...] = ()
    """Devices, each with bytes: bounds need only decide whether the trial fits."""
    index: int = 0
    """Its place in the request."""
    kept: Answer | None = None
    """The answer, if it is known already."""


Questions = list[Question]


def main() -> None:
    """Answer the request on standard input."""
    die_with_parent(int(sys.argv[1]))
    gc.freeze()  # PyTorch's objects live as long as this process
    gc.set_threshold(100_000, 20, 100)  # a sixth of the time went into collecting
    request = json.load(sys.stdin)
    for index, answer in _answers(request):
        print_answer(index, answer)
    if then := request.get("then"):
        for index, answer in _answers(then):
            print_answer(len(request["configs"]) + index, answer)


def print_answer(index: int, answer: Answer) -> None:
    # One write: processes of the pool share the pipe, and an unbuffered print writes the end of the line by itself.
    sys.stdout.write(json.dumps([index, answer], default=row_of) + "\n")
    sys.stdout.flush()


def _answers(request: dict[str, Any]) -> Iterator[tuple[int, Answer]]:
    configs = [TrialConfig(**fields) for fields in request["configs"]]
    written = request.get("code")
    code = Code(**{**written, "trusted": tuple(written["trusted"])}) if written else None

    def questions(**columns: str) -> Questions:
        """One question for each configuration; `columns`: field -> name in the request."""
        values = zip(*(request[name] for name in columns.values()), strict=True)
        return [
            Question(config=config, **dict(zip(columns, given, strict=True)))
            for config, given in zip(configs, values, strict=True)
        ]

    match request["question"]:
        case "predict":
            answer = partial(_predictions, with_operators=request.get("operators", False))
            return _answered(answer, by_run(questions(subject="subjects")), code)
        case "operators":
            structures: dict[object, Batch[Question]] = {}
            for i, one in enumerate(questions(subject="subjects")):
                structures.setdefault(i if one.config.references else structure_of(one.config), []).append((i, one))
            return _answered(partial(_each, _operators), list(structures.values()), code)
        case "fits":
            asked = questions(subject="subjects", budget="budgets", device_name="device_names")
            return _answered(partial(_each, _verdict), by_run(asked), code)
        case "bounds":
            families: dict[object, Batch[Question]] = {}
            for i, one in enumerate(questions(subject="subjects", rooms="rooms", kept="kept")):
                one = replace(one, index=i, rooms=tuple((name, room) for name, room in one.rooms))
                key = i if one.config.references else (family(one.config), one.subject, one.rooms)
                families.setdefault(key, []).append((i, one))
            most = max(2, request["most"] // len(families)) if request["most"] else len(configs)
            return _answered(partial(_bounds, most=most), list(families.values()), code)
        case "frontier":
            asked = [
                replace(one, dimension=request["dimension"])
                for one in questions(budget="budgets", device_name="device_names")
            ]
            return _answered(partial(_each, frontier), by_run(asked), code, FRONTIER_SECONDS)
        case "room":
            asked = questions(rooms="rooms")
            prepare([one.config for one in asked], code)
            return _answered(partial(_each, _room), [[(i, one)] for i, one in enumerate(asked)], code)
        case other:
            raise ValueError(f"no such question: {other}")


def _answered(
    answer: Callable[[Questions], list[Answer]],
    batches: list[Batch[Question]],
    code: Code | None,
    limit: float = LIMIT_SECONDS,
) -> Iterator[tuple[int, Answer]]:
    """Answer questions about lmsweep's own code in this process and its pool, those about the user's apart from it."""
    users = [batch for batch in batches if batch[0][1].config.references]
    if not any(has_own_code(batch[0][1].config) for batch in users):
        limit = FRONTIER_SECONDS  # transformers' code ends
    yield from answer_batches(answer, [batch for batch in batches if not batch[0][1].config.references])
    if code:
        yield from answer_with_code(answer, users, code, lambda why: {"failure": why}, limit=limit)
        return
    for batch in users:
        yield from ((index, {"failure": "it needs your own code, which is not available"}) for index, _ in batch)


def _each(answer: Callable[[Question], Answer], questions: Questions) -> list[Answer]:
    return [answer(one) for one in questions]


def _predictions(questions: Questions, *, with_operators: bool) -> list[Answer]:
    """Answers to questions that one run serves."""
    first = questions[0].config
    widest = max((one.config.mode for one in questions), key=lambda mode: len(PHASES[mode]))
    run = widest if first.compile == "none" and first.mode != "forward" else None
    return [_prediction(one, run) | (_operators(one) if with_operators else {}) for one in questions]


def _prediction(asked: Question, run: Mode | None) -> Answer:
    flops = {"flops": asdict(count_flops(asked.config))} if asked.config.has_counted_flops else {}
    return _peak(asked.config, asked.subject, run) | flops


def _peak(config: TrialConfig, subject: Subject, run: Mode | None) -> Answer:
    try:
        return asdict(predict(config, subject, run=run))
    except UnpredictableError as error:
        return _eager_bounds(config, subject) or {"reason": str(error)}
    except UnsupportedError as error:
        return {"reason": str(error)}
    except Exception as error:  # noqa: BLE001 - a plan that lacks one prediction is better than none
        return {"failure": _failure(error)}


def _eager_bounds(config: TrialConfig, subject: Subject) -> Answer | None:
    try:
        found = eager_bounds(config, subject)
    except (UnpredictableError, UnsupportedError):
        return None
    return {"bounds": asdict(found)} if found else None


def _operators(asked: Question) -> Answer:
    if asked.config.device_type != "cuda":
        return {}
    try:
        return {"operators": step_operators(asked.config, asked.subject)}
    except (UnpredictableError, UnsupportedError) as error:
        return {"no_operators": str(error)}
    except Exception as error:  # noqa: BLE001 - a plan that lacks one prediction is better than none
        return {"no_operators": _failure(error)}


def _verdict(asked: Question) -> Answer:
    try:
        return {"fits": fits(asked.config, asked.subject, asked.budget, asked.device_name)}
    except Exception as error:  # noqa: BLE001 - a trial that is not known to fit is run
        return {"failure": _failure(error)}


def _bounds(questions: Questions, *, most: int) -> list[Answer]:
    """Predictions of at most `most` trials of one family on the same devices, and bounds for the others."""
    found: dict[int, Answer] = {}
    rooms = questions[0].rooms

    def need(index: int) -> Need | None:
        one = questions[index]
        found[index] = one.kept or _prediction(one, None)
        if len(questions) > 1:  # at once, also from a process of the pool: a plan that is killed keeps it
            print_answer(one.index, found[index])
        if "peak" not in found[index]:
            return None
        predicted = Prediction(**{name: value for name, value in found[index].items() if name != "flops"})
        on_each = [predicted.on(name) for name, _ in rooms]
        return Need(min(one.peak for one in on_each), max(enough(one) for one in on_each))

    bounds = bounds_of(
        [one.config for one in questions],
        [room for _, room in rooms],
        need,
        most,
        guesses=[upper_bound(one.config, one.subject) for one in questions],
        first=[index for index, one in enumerate(questions) if one.kept],
    )
    return [found.get(i, asdict(one)) for i, one in enumerate(bounds)]


def _room(asked: Question) -> Answer:
    """The largest batch on each device, and the operators of each of these batches."""
    try:
        step = any_batch_step(asked.config)
        rooms = [step.room(name, room) for name, room in asked.rooms]
        if why := why_untimed(asked.config):
            return {"rooms": rooms, "no_operators": why}
        return {"rooms": rooms, "operators": {batch: step.operators(batch) for batch, _, _ in rooms if batch}}
    except RequestError as error:
        return {"refused": str(error)}
    except (UnpredictableError, UnsupportedError) as error:
        return {"reason": str(error)}
    except Exception as error:  # noqa: BLE001 - an answer that lacks one line is better than none
        return {"reason": _failure(error)}


def frontier(asked: Question) -> Answer:
    """The largest size that fits, or the reason why none is known."""
    try:
        largest = largest_that_fits(asked.config, asked.dimension, asked.budget, asked.device_name)
        return {"largest": largest.sure, "possible": largest.possible, "reason": None}
    except (UnpredictableError, UnsupportedError) as error:
        return {"largest": None, "possible": None, "reason": str(error)}
    except Exception as error:  # noqa: BLE001 - a frontier that lacks one row is better than none
        return {"largest": None, "possible": None, "reason": _failure(error)}


def _failure(error: Exception) -> str:
    if isinstance(error, RequestError):  # it says itself what is wrong
        return str(error)
    return f"predicting it failed: {type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
