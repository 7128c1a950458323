"""The program that planning asks about memory, so that the driver need not import torch.

``python -m lmsweep.trials.prediction.predict PID`` reads a request from standard input, as JSON: the question, the
configurations, and a list with one element per configuration for everything else that the question needs. It prints
one line for each answer as it comes: the index of the configuration and the answer, as JSON. It exits when its parent,
the process PID, does.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from lmsweep.trials.analytic.memory_bounds import bounds_of, family
from lmsweep.trials.analytic.memory_prediction import Dimension, Prediction
from lmsweep.trials.machine.processes import die_with_parent
from lmsweep.trials.model.training_step import PHASES
from lmsweep.trials.prediction.flop_count import count_flops
from lmsweep.trials.prediction.largest_fit import largest_that_fits
from lmsweep.trials.prediction.own_code_jobs import answer_with_code
from lmsweep.trials.prediction.peak_memory import fits, predict
from lmsweep.trials.prediction.process_pool import Batch, Question, answer_by_run, answer_jobs
from lmsweep.trials.prediction.trial_graph import UnpredictableError
from lmsweep.trials.spec.config import Mode, RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import Code
from lmsweep.trials.spec.workloads import Subject

Q = TypeVar("Q", bound=Question)
Answer = dict[str, Any]
"""An answer as JSON. Instead of the value it may hold the `reason` why there is none, or the `failure` of a bug."""


@dataclass(frozen=True, kw_only=True)
class PeakQuestion:
    """How much memory does the trial need?"""

    config: TrialConfig
    """The trial's configuration."""
    subject: Subject
    """What is in memory: the model, or attention alone."""


@dataclass(frozen=True, kw_only=True)
class FitQuestion:
    """Does the trial, whose memory is predicted, fit?"""

    config: TrialConfig
    """The trial's configuration."""
    subject: Subject
    """What is in memory: the model, or attention alone."""
    budget: int
    """Bytes that the allocator may have of the device."""
    device_name: str
    """Name of the device, ours or the driver's."""


@dataclass(frozen=True, kw_only=True)
class BoundsQuestion:
    """Between which bounds is the trial's peak?"""

    config: TrialConfig
    """The trial's configuration."""
    subject: Subject
    """What is in memory: the model, or attention alone."""
    room: int
    """Bytes: the bounds need only tell whether the trial fits into this many."""
    device_name: str
    """Name of the device, ours or the driver's."""


@dataclass(frozen=True, kw_only=True)
class FrontierQuestion:
    """What is the largest batch size or context length that fits?"""

    config: TrialConfig
    """The configuration, whose value in the dimension is ignored."""
    dimension: Dimension
    """The dimension to maximize."""
    budget: int
    """Bytes that the allocator may have of the device."""
    device_name: str
    """Name of the device, ours or the driver's."""


def main() -> None:
    """Answer the request on standard input."""
    die_with_parent(int(sys.argv[1]))
    for answered in _answers(json.load(sys.stdin)):
        print(json.dumps(answered), flush=True)


def _answers(request: dict[str, Any]) -> Iterator[tuple[int, Answer]]:
    configs = [TrialConfig(**fields) for fields in request["configs"]]
    written = request.get("code")
    code = Code(**{**written, "trusted": tuple(written["trusted"])}) if written else None

    def columns(*names: str) -> Iterator[tuple[Any, ...]]:
        return zip(configs, *(request[name] for name in names), strict=True)

    match request["question"]:
        case "predict":
            peaks = [PeakQuestion(config=config, subject=subject) for config, subject in columns("subjects")]
            return _answered(_predictions, peaks, code)
        case "fits":
            fit_questions = [
                FitQuestion(config=config, subject=subject, budget=budget, device_name=name)
                for config, subject, budget, name in columns("subjects", "budgets", "device_names")
            ]
            return _answered(_verdicts, fit_questions, code)
        case "bounds":
            families: dict[tuple[TrialConfig, str, int], Batch[BoundsQuestion]] = {}
            for i, (config, subject, room, name) in enumerate(columns("subjects", "rooms", "device_names")):
                one = BoundsQuestion(config=config, subject=subject, room=room, device_name=name)
                families.setdefault((family(config), subject, room), []).append((i, one))
            most = max(2, request["most"] // len(families))
            return answer_jobs(partial(_bounds, most=most), [[batch] for batch in families.values()])
        case "frontier":
            frontiers = [
                FrontierQuestion(config=config, dimension=request["dimension"], budget=budget, device_name=name)
                for config, budget, name in columns("budgets", "device_names")
            ]
            return _answered(_frontiers, frontiers, code)
        case other:
            raise ValueError(f"no such question: {other}")


def _answered(
    answer: Callable[[list[Q]], list[Answer]], questions: list[Q], code: Code | None
) -> Iterator[tuple[int, Answer]]:
    """Answer questions about lmsweep's own code in this process and its pool, those about the user's apart from it."""
    numbered = list(enumerate(questions))
    ours = [index for index, one in numbered if not one.config.references]
    for place, answered in answer_by_run(answer, [questions[index] for index in ours]):
        yield ours[place], answered
    own = [[(index, one)] for index, one in numbered if one.config.references]
    if own and code:
        yield from answer_with_code(answer, own, code, lambda why: {"failure": why})


def _predictions(questions: list[PeakQuestion]) -> list[Answer]:
    """Answers to questions that one run serves."""
    first = questions[0].config
    widest = max((one.config.mode for one in questions), key=lambda mode: len(PHASES[mode]))
    run = widest if first.compile == "none" and first.mode != "forward" else None
    return [_prediction(one.config, one.subject, run) for one in questions]


def _prediction(config: TrialConfig, subject: Subject, run: Mode | None) -> Answer:
    flops = {"flops": asdict(count_flops(config))} if config.model_code is not None else {}
    return _peak(config, subject, run) | flops


def _peak(config: TrialConfig, subject: Subject, run: Mode | None) -> Answer:
    try:
        return asdict(predict(config, subject, run=run))
    except (UnpredictableError, UnsupportedError) as error:
        return {"reason": str(error)}
    except Exception as error:  # noqa: BLE001 - a plan that lacks one prediction is better than none
        return {"failure": _failure(error)}


def _verdicts(questions: list[FitQuestion]) -> list[Answer]:
    return [_verdict(one) for one in questions]


def _verdict(asked: FitQuestion) -> Answer:
    try:
        return {"fits": fits(asked.config, asked.subject, asked.budget, asked.device_name)}
    except Exception as error:  # noqa: BLE001 - a trial that is not known to fit is run
        return {"failure": _failure(error)}


def _bounds(questions: list[BoundsQuestion], *, most: int) -> list[Answer]:
    """Predictions of at most `most` trials of one family on one device, and bounds for the others."""
    found: dict[int, Answer] = {}

    def peak(index: int) -> int | None:
        one = questions[index]
        found[index] = _prediction(one.config, one.subject, None)
        return Prediction(**found[index]).on(one.device_name).peak if "peak" in found[index] else None

    bounds = bounds_of([one.config for one in questions], questions[0].room, peak, most)
    return [found.get(i, asdict(one)) for i, one in enumerate(bounds)]


def _frontiers(questions: list[FrontierQuestion]) -> list[Answer]:
    return [_frontier(one) for one in questions]


def _frontier(asked: FrontierQuestion) -> Answer:
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
