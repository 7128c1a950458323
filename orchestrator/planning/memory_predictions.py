"""Provides the predicted memory of a plan's trials, from the cache on disk or from a process in the background."""

import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from lmsweep import trials
from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.planning.memory_budget import budget, why_too_large
from lmsweep.orchestrator.planning.prediction_process import Answers
from lmsweep.orchestrator.terminal import counting
from lmsweep.trials.analytic.memory_bounds import Bounds
from lmsweep.trials.analytic.memory_prediction import (
    Prediction,
    cublas_workspace,
    enough,
    memory_config,
    memory_id,
    subject_of,
    upper_bound,
)
from lmsweep.trials.analytic.prediction_question import (
    Answer,
    ManySteps,
    MemoryLimit,
    Question,
    Want,
    answer_of,
    as_text,
)
from lmsweep.trials.analytic.rates.operators import Operators, from_values
from lmsweep.trials.code.digest import code_digest
from lmsweep.trials.machine.scratch import cache_folder
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import StepFlops, Trial
from lmsweep.trials.spec.reference import Code
from lmsweep.trials.spec.workloads import Subject

FEW = 250
"""Up to this many configurations, each is predicted. Of more, only those that decide which others fit."""

MOST = 2000
"""Up to this many configurations, all are decided. Of more, at most SOME are predicted, in BOUND_SECONDS."""

SOME = 200
"""Maximum number of configurations that are predicted in a larger plan, or two of each family if that is more."""

BOUND_SECONDS = 5.0
"""Time limit for predictions in such a larger plan. A trial undecided by then runs, and may run out of memory."""

OPERATORS = " operators"
"""Suffix of a key in the cache, for an answer that has only the operators of a step."""

SMALL = 2 * 10**9
"""Bytes that every device has. A trial that needs less fits, without a prediction."""


class Predictions:
    """The predictions of trials. A process in the background makes those that the cache lacks. In a small plan it
    predicts each trial, at once; in a large one only what decides which trials fit, once `bound` names the devices."""

    def __init__(self, trials: Iterable[Trial], *, least: int = 0, each: bool = False, operators: bool = False) -> None:
        """least: bytes; no smaller trial is predicted. each: up to MOST are, not FEW. operators: of steps, too."""
        self._digest, self._memory_id = cache(code_digest), cache(memory_id)
        self._wanted: dict[str, Question] = {}
        """Key -> what is asked. Trials that need the same memory share a key."""
        self._code: Code | None = None
        for trial in counting(trials, "looked up {} predictions"):
            if subject := subject_of(trial):
                self._wanted[self._key(trial, subject)] = Question(config=trial.config, subject=subject)
                self._code = self._code or trial.code
        bounds = {key: upper_bound(one.config, one.subject) for key, one in self._wanted.items()} if least else {}
        small = [key for key, high in bounds.items() if high is not None and high < least]
        self.has_operators = operators
        self._cache = _Cache()
        cached = self._cache.read({name for key in self._wanted for name in (key, key + OPERATORS)})
        self._kept = {key: cached[key] for key in self._wanted if key in cached}
        """Key -> what the cache has of its memory."""
        self._known = dict.fromkeys(small, Answer(reason=f"it needs less than {least} bytes")) | cached
        """Name -> an answer. A name is a key, a key with OPERATORS, or what `_verdict_key` returns. It alone grows."""
        count = len(self._wanted) - len(small)
        self._time_limit: float | None = BOUND_SECONDS if count > MOST else None
        """Seconds after which no more answers are awaited; None: all are."""
        self._without_memory = [key for key in self._wanted if key not in self._known]
        """Keys about whose memory nothing was known at first."""
        on_gpu = [key for key, one in self._wanted.items() if one.config.device_type == "cuda"]
        wants_steps = operators and not self._time_limit
        self._without_step = [key for key in on_gpu if not self._of_step(key)] if wants_steps else []
        """Keys whose operators are wanted, and were not known at first."""
        self._answers: Answers | None = None
        self._awaited: list[str] = []  # the names of these answers, in their order
        is_large = count > (MOST if each else FEW)
        self._is_waiting = is_large and bool(self._without_memory or self._without_step)
        """Whether a large plan has yet to ask."""
        if not is_large:
            self._start(self._questions_of_small_plan())

    def bound(self, limits: Mapping[str, Sequence[MemoryLimit]]) -> None:
        """In a large plan, start to find out which configurations fit. limits: cpu, cuda, ... -> of devices there."""
        if self._is_waiting:
            self._is_waiting = False
            self._start(self._questions_of_large_plan(limits))

    def _questions_of_small_plan(self) -> dict[str, Question]:
        """Return name -> question. One asks for memory and operators, also where only the latter are unknown."""
        wants: tuple[Want, ...] = ("memory", "operators") if self.has_operators else ("memory",)
        incomplete = {*self._without_memory, *self._without_step}
        return {key: self._question(key, *wants) for key in self._wanted if key in incomplete}

    def _questions_of_large_plan(self, limits: Mapping[str, Sequence[MemoryLimit]]) -> dict[str, Question]:
        """Return name -> question: those that decide which configurations fit, and those about operators alone."""
        decided = {key: self._without_prediction(key, limits) for key in self._without_memory}
        self._known |= {key: answer for key, answer in decided.items() if answer}
        undecided = [key for key, answer in decided.items() if not answer]
        # What the cache has is asked again with its answer, `kept`: that costs nothing, and decides about others, too.
        deciding = [*self._kept, *undecided] if undecided else []
        questions = {}
        for key in deciding:
            question = self._question(key, "bounds")
            there = limits.get(question.config.device_type, ())
            questions[key] = replace(question, kept=self._kept.get(key), limits=tuple(there))
        return questions | {key + OPERATORS: self._question(key, "operators") for key in self._without_step}

    def _without_prediction(self, key: str, limits: Mapping[str, Sequence[MemoryLimit]]) -> Answer | None:
        """Return the answer of a large plan about a configuration that need not be predicted, or cannot be."""
        config = self._wanted[key].config
        there = limits.get(config.device_type, ())
        if not there:
            known = config.device_type in limits
            why = "the memory size of its device is unknown" if known else f"no {config.device_type} device is here"
            return Answer(reason=f"{why}; in a plan this large, --for H100 predicts")
        high = upper_bound(config, self._wanted[key].subject)
        if high is None:
            return Answer(reason="in a plan this large, your own code is not predicted") if self._time_limit else None
        return Answer(bounds=Bounds(high=high)) if high <= min(limit.bytes for limit in there) else None

    def _question(self, key: str, *wants: Want) -> Question:
        wanted = self._wanted[key]
        return replace(wanted, config=memory_config(wanted.config), wants=wants)

    def _start(self, questions: Mapping[str, Question]) -> None:
        """Ask in the background; `_collect` gets the answers."""
        if questions:
            self._awaited = list(questions)
            self._answers = self._ask(questions, most=SOME if self._time_limit else None)

    def _ask(self, questions: Mapping[str, Question], most: int | None = None) -> Answers:
        """Return the answers to come; those that are new go into the cache under the name of their question."""
        names = list(questions)

        def keep(index: int, answer: Answer) -> None:
            if not questions[names[index]].kept:
                self._cache.keep(names[index], answer)

        return Answers(list(questions.values()), self._code, on_answer=keep, most=most)

    @property
    def asked(self) -> int:
        """Return how many configurations an answer is awaited about."""
        if self._is_waiting:
            return len(self._without_memory)
        return sum(not name.endswith(OPERATORS) for name in self._awaited) if self._answers else 0

    def of(self, trial: Trial, device_name: str) -> Prediction | Bounds | Refusal:
        """Return a trial's prediction or bounds on this device, or why there is neither. Raises RequestError."""
        subject = subject_of(trial)
        if subject is None:
            return Refusal(f"the memory of the workload {' and '.join(trial.workloads)} is not predicted")
        self._collect()
        # Attention alone has no key if the trial was looked up with a workload that holds the whole model.
        found = self._known.get(self._key(trial, subject), Answer(reason="only its larger workload is predicted"))
        if found.prediction:
            return found.prediction.on(device_name)
        return found.bounds or Refusal(str(found.why_not))

    def flops(self, trial: Trial) -> StepFlops | None:
        """Return the FLOPs of a trial whose closed form does not count them, if the prediction has."""
        if not trial.config.has_counted_flops or (subject := subject_of(trial)) is None:
            return None
        self._collect()
        return self._known.get(self._key(trial, subject), Answer()).flops

    def shapes(self, trial: Trial) -> Mapping[tuple[int, int], Operators] | Refusal:
        """Return rows, width and operators of some steps of a trial whose batches differ, or why they are unknown."""
        self._collect()
        key = self._key(trial, subject_of(trial) or "model")
        answer = self._of_step(key) or Answer()
        if answer.shapes:
            return {(rows, width): from_values(its) for rows, width, its in answer.shapes}
        return Refusal(answer.why_no_step or "in a plan this large, not every step is predicted")

    def operators(self, trial: Trial) -> Operators | Refusal:
        """Return what one iteration of the trial computes and moves, or why that is unknown. Raises RequestError."""
        subject = subject_of(trial)
        if subject is None:
            return Refusal(f"the step of the workload {' and '.join(trial.workloads)} is not predicted")
        self._collect()
        key = self._key(trial, subject)
        answer = self._of_step(key) or self._known.get(key, Answer())
        if answer.operators or answer.shapes:
            return from_values(answer.operators)
        return Refusal(answer.why_no_step or answer.reason or "in a plan this large, not every step is predicted")

    def _of_step(self, key: str) -> Answer | None:
        """Return the answer that has the operators of a step, or says why there are none."""
        answers = (self._known.get(name, Answer()) for name in (key + OPERATORS, key))
        return next((one for one in answers if one.operators or one.shapes or one.why_no_step), None)

    def settle(self, asked: Iterable[tuple[Trial, Fingerprint]]) -> None:
        """Simulate the allocator where only this decides whether a trial fits there. Raises RequestError."""
        if self._time_limit:
            return  # in a plan this large, undecided trials run
        questions: dict[str, Question] = {}
        for trial, environment in asked:
            available, prediction = budget(trial.config, environment), self.of(trial, environment.device_name)
            if not available or not isinstance(prediction, Prediction):
                continue
            # The peak fits, but the segments of the allocator may not. Batches that differ fragment them step by step.
            is_close = prediction.peak <= available.bytes < enough(prediction)
            if is_close or (trial.config.varies and trial.config.device_type == "cuda"):
                limit = MemoryLimit(environment.device_name, available.bytes)
                config, subject = memory_config(trial.config), subject_of(trial) or "model"
                questions[self._verdict_key(trial, limit)] = Question(
                    config=config, subject=subject, limits=(limit,), wants=("verdict",)
                )
        self._known |= self._cache.read(set(questions)) if questions else {}
        if unknown := {key: question for key, question in questions.items() if key not in self._known}:
            self._known |= dict(zip(unknown, self._ask(unknown).wait(), strict=True))

    def why_too_large(self, trial: Trial, environment: Fingerprint) -> str | None:
        available, prediction = budget(trial.config, environment), self.of(trial, environment.device_name)
        if available is None or isinstance(prediction, Refusal):
            return None
        key = self._verdict_key(trial, MemoryLimit(environment.device_name, available.bytes))
        return why_too_large(prediction, available, self._known.get(key, Answer()).fits)

    def many_steps(self, trial: Trial, environment: Fingerprint) -> ManySteps | None:
        """Return whether memory lasts there for many steps whose batches differ; None if that was not predicted."""
        if not trial.config.varies or subject_of(trial) is None or not (available := budget(trial.config, environment)):
            return None
        key = self._verdict_key(trial, MemoryLimit(environment.device_name, available.bytes))
        return self._known.get(key, Answer()).many_steps

    def _collect(self) -> None:
        if not self._answers:
            return
        limit = self._time_limit
        answers = self._answers.within(limit) if limit else dict(enumerate(self._answers.wait()))
        self._answers = None
        in_time = {self._awaited[index]: answer for index, answer in answers.items()}
        late = Answer(reason=f"in a plan this large, only what {BOUND_SECONDS:g} s suffice for is predicted")
        self._known = dict.fromkeys(self._awaited, late) | self._known | in_time  # of one name, the last counts

    def _key(self, trial: Trial, subject: Subject) -> str:
        return self._memory_id(trial.config, subject, self._digest(trial.config.references, trial.code))

    def _verdict_key(self, trial: Trial, limit: MemoryLimit) -> str:
        subject = subject_of(trial)
        assert subject is not None, "a trial with a prediction has a subject"
        return f"{self._key(trial, subject)} in {limit.bytes} with {cublas_workspace(limit.device_name)}"

    def close(self) -> None:
        if self._answers:
            self._answers.close()
        self._answers = None


class _Cache:
    """A file whose lines are JSON: [name, answer]. Another torch, Python or lmsweep.trials has another file."""

    def __init__(self) -> None:
        digest = hashlib.sha256(f"{importlib.metadata.version('torch')} {sys.version_info[:2]}".encode())
        for path in sorted(Path(trials.__file__).parent.rglob("*.py")):
            digest.update(path.read_bytes())
        self._path = cache_folder() / f"predictions-{digest.hexdigest()[:16]}.jsonl"
        self._works = True

    def read(self, wanted: set[str]) -> dict[str, Answer]:
        try:
            lines = self._path.read_text().splitlines()
        except (OSError, ValueError):  # missing or unreadable: predict again
            return {}
        found = {}
        for line in lines:
            name = line.removeprefix('["').partition('"')[0]  # without parsing the whole line
            if name not in wanted:
                continue
            try:
                _, answer = json.loads(line)
                found[name] = answer_of(answer)
            except (ValueError, TypeError, AttributeError):  # its writer was killed
                continue
        return found

    def keep(self, name: str, answer: Answer) -> None:
        # Not kept: what another version or folder may answer, and bounds that follow from other trials of the plan.
        if answer.refused or answer.failure or answer.is_of_plan or not self._works:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as file:
                # A single write does not mix with those of others; the leading line break ends a line cut short.
                file.write(f"\n{as_text([name, answer])}\n".encode())
        except OSError as error:  # losing the cache costs time, not results
            self._works = False
            print(f"lmsweep: cannot write the cache of memory predictions: {error}", file=sys.stderr)
