"""Provides the predicted memory of a plan's trials, from the cache on disk or from a process in the background."""

import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from lmsweep import trials
from lmsweep.orchestrator.cluster.refusal import Refusal
from lmsweep.orchestrator.planning.memory_budget import Budget, LargestDevice, depends_on_order
from lmsweep.orchestrator.planning.prediction_process import Answer, Answers
from lmsweep.trials.analytic.memory_bounds import Bounds
from lmsweep.trials.analytic.memory_prediction import (
    Prediction,
    cublas_workspace,
    memory_config,
    memory_id,
    subject_of,
    upper_bound,
)
from lmsweep.trials.code.digest import code_digest
from lmsweep.trials.machine.cache_folder import cache_folder
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.spec.reference import Code
from lmsweep.trials.spec.step_flops import StepFlops
from lmsweep.trials.spec.workloads import Subject

MOST = 2000
"""Most configurations for which each is predicted. In a larger plan some are predicted, and the others bounded."""

SOME = 200
"""How many are predicted in a larger plan, or two of each family of comparable configurations if that is more."""

BOUND_SECONDS = 5.0
"""Time that a larger plan may take for its bounds. A trial without bounds by then runs, and may run out of memory."""

SMALL = 2 * 10**9
"""Bytes that every device has. To decide whether a trial fits, a smaller one need not be predicted."""


class FitQuestion(NamedTuple):
    """Whether a trial fits into a budget on a device."""

    trial: Trial
    device_name: str
    budget: Budget


class _Wanted(NamedTuple):
    config: TrialConfig
    subject: Subject


class Predictions:
    """The predictions of trials. Those missing in the cache are started at once, in the background."""

    def __init__(self, trials: Iterable[Trial], *, least: int = 0) -> None:
        """Trials that certainly need less than `least` bytes are not predicted."""
        self._digests: dict[tuple[tuple[str, ...], Code], str | None] = {}
        wanted: dict[str, _Wanted] = {}
        self._code: Code | None = None
        for trial in trials:
            if subject := subject_of(trial):
                wanted[self._key(trial, subject)] = _Wanted(trial.config, subject)
                self._code = self._code or trial.code
        self._known: dict[str, Prediction | Bounds | Refusal] = {
            key: Refusal(f"it needs less than {least} bytes")
            for key, one in wanted.items()
            if (most := upper_bound(one.config, one.subject)) is not None and most < least
        }
        self._flops: dict[str, StepFlops] = {}
        self._verdicts: dict[str, bool | None] = {}
        self._cache = _Cache()
        kept = self._cache.read()
        for key in wanted:
            if key in kept:
                self._learn(key, kept[key])
        self._asked = [key for key in wanted if key not in self._known]
        self._answers: Answers | None = None
        self._is_bounding = False
        self._undecided = wanted if len(self._asked) > MOST else {}
        if self._asked and not self._undecided:
            asked = [wanted[key] for key in self._asked]
            self._answers = Answers(
                "predict",
                [memory_config(one.config) for one in asked],
                code=vars(self._code) if self._code else None,
                subjects=[one.subject for one in asked],
                on_answer=lambda index, answer: self._cache.keep(self._asked[index], answer),
            )

    def bound(self, largest: Mapping[str, LargestDevice]) -> None:
        """Start to bound the memory of more than MOST configurations, now that the devices are known.

        `largest` has the device with most memory, by kind of device.
        """
        asked = []
        for key in self._asked if self._undecided else ():
            config, subject = self._undecided[key]
            if config.device_type not in largest:
                self._known[key] = Refusal("the memory size of its device is unknown")
            elif (most := upper_bound(config, subject)) is None:
                self._known[key] = Refusal("in a plan this large, your own code is not predicted")
            elif most <= largest[config.device_type].room:
                self._known[key] = Refusal(f"it needs less than {gib(largest[config.device_type].room)}")
            else:
                asked.append(key)
        if asked:
            self._is_bounding = True
            self._asked = asked
            chosen = [self._undecided[key] for key in asked]
            devices = [largest[one.config.device_type] for one in chosen]
            self._answers = Answers(
                "bounds",
                [memory_config(one.config) for one in chosen],
                subjects=[one.subject for one in chosen],
                device_names=[device.name for device in devices],
                rooms=[device.room for device in devices],
                most=SOME,
                on_answer=lambda index, answer: self._cache.keep(asked[index], answer),
            )
        self._undecided = {}

    @property
    def asked(self) -> int:
        """The number of configurations that the process works on."""
        return self._answers.count if self._answers else 0

    def of(self, trial: Trial, device_name: str) -> Prediction | Bounds | Refusal:
        """Return the prediction of one of the trials on this device, or its bounds, or why there is neither.

        Waits for the process. Raises RequestError if it failed.
        """
        subject = subject_of(trial)
        if subject is None:
            return Refusal(f"the memory of the workload {' and '.join(trial.workloads)} is not predicted")
        self._collect()
        found = self._known[self._key(trial, subject)]
        return found.on(device_name) if isinstance(found, Prediction) else found

    def flops(self, trial: Trial) -> StepFlops | None:
        """Return the FLOPs of one of the trials with the user's own model, if they were counted on the way."""
        if trial.config.model_code is None or (subject := subject_of(trial)) is None:
            return None
        self._collect()
        return self._flops.get(self._key(trial, subject))

    def settle(self, questions: Iterable[FitQuestion]) -> None:
        """Simulate the allocator, for all questions at once, where only that decides whether a trial fits.

        `verdict` then has the results. Raises RequestError if the process failed.
        """
        if self._is_bounding:
            return  # in a plan this large, undecided trials run
        kept = self._cache.read()
        asked: dict[str, FitQuestion] = {}
        for question in questions:
            prediction = self.of(question.trial, question.device_name)
            if not isinstance(prediction, Prediction) or not depends_on_order(prediction, question.budget):
                continue
            key = self._verdict_key(question)
            if key in kept:
                self._verdicts[key] = kept[key]["fits"]
            else:
                asked[key] = question
        if asked:
            keys = list(asked)
            answers = Answers(
                "fits",
                [memory_config(one.trial.config) for one in asked.values()],
                subjects=[subject_of(one.trial) for one in asked.values()],
                budgets=[one.budget.bytes for one in asked.values()],
                device_names=[one.device_name for one in asked.values()],
                code=vars(self._code) if self._code else None,
                on_answer=lambda index, answer: self._cache.keep(keys[index], answer),
            ).wait()
            self._verdicts |= {key: answer.get("fits") for key, answer in zip(keys, answers, strict=True)}

    def verdict(self, question: FitQuestion) -> bool | None:
        """Return whether the trial fits, if `settle` has simulated it; None if that is not known."""
        return self._verdicts.get(self._verdict_key(question)) if subject_of(question.trial) else None

    def _collect(self) -> None:
        """Wait for the process, if one was started. Raises RequestError if it failed."""
        if not self._answers:
            return
        answers = self._answers.within(BOUND_SECONDS) if self._is_bounding else dict(enumerate(self._answers.wait()))
        self._answers = None
        late = Refusal(f"in a plan this large, only what {BOUND_SECONDS:g} s suffice for is predicted")
        for index, key in enumerate(self._asked):
            self._known[key] = late
            if index in answers:
                self._learn(key, answers[index])

    def _learn(self, key: str, answer: Answer) -> None:
        flops = answer.get("flops")
        if flops:
            self._flops[key] = StepFlops(**flops)
        self._known[key] = _from_answer({name: value for name, value in answer.items() if name != "flops"})

    def _key(self, trial: Trial, subject: Subject) -> str:
        """Return the identifier of the trial's prediction."""
        if trial.code is None:
            return memory_id(trial.config, subject)
        state = (trial.config.references, trial.code)
        if state not in self._digests:
            self._digests[state] = code_digest(trial.config.references, trial.code)
        return memory_id(trial.config, subject, self._digests[state])

    def _verdict_key(self, question: FitQuestion) -> str:
        subject = subject_of(question.trial)
        assert subject is not None, "a trial with a prediction has a subject"
        workspace = cublas_workspace(question.device_name)
        return f"{self._key(question.trial, subject)} in {question.budget.bytes} with {workspace}"

    def close(self) -> None:
        """End the process if its answers have not been used."""
        if self._answers:
            self._answers.close()
            self._answers = None


def _from_answer(answer: Answer) -> Prediction | Bounds | Refusal:
    if answer.keys() == {"low", "high"}:
        return Bounds(**answer)
    if reason := answer.get("reason") or answer.get("failure"):
        return Refusal(reason)
    return Prediction(**answer)


class _Cache:
    """Predictions made by this code with this version of torch, on disk.

    Each answer is one line appended as it arrives. So a killed process keeps what it had, and two processes that
    predict at the same time keep both.
    """

    def __init__(self) -> None:
        digest = hashlib.sha256(f"{importlib.metadata.version('torch')} {sys.version_info[:2]}".encode())
        for path in sorted(Path(trials.__file__).parent.rglob("*.py")):
            digest.update(path.read_bytes())
        self._path = cache_folder() / f"predictions-{digest.hexdigest()[:16]}.jsonl"
        self._works = True

    def read(self) -> dict[str, Answer]:
        """Return the cached answers by memory_id, or by the key of a verdict."""
        try:
            lines = self._path.read_text().splitlines()
        except (OSError, ValueError):  # missing or unreadable: predict again
            return {}
        found = {}
        for line in lines:
            try:
                key, answer = json.loads(line)
                found[str(key)] = dict(answer)
            except (ValueError, TypeError):  # its writer was killed
                continue
        return found

    def keep(self, key: str, answer: Answer) -> None:
        if not ({"peak", "reason", "fits"} & answer.keys()) or not self._works:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as file:
                # A single write does not mix with those of others; the leading line break ends a line cut short.
                file.write(f"\n{json.dumps([key, answer])}\n".encode())
        except OSError as error:  # losing the cache costs time, not results
            self._works = False
            print(f"lmsweep: cannot write the cache of memory predictions: {error}", file=sys.stderr)
