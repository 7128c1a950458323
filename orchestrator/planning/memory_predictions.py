"""Predicted memory for a plan: from the cache on disk or, by a process that may import torch, worked out meanwhile."""

import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lmsweep import trials
from lmsweep.orchestrator.planning.memory_budget import Budget, depends_on_order
from lmsweep.orchestrator.planning.prediction_process import Answers
from lmsweep.trials.analytic.memory_bounds import Bounds
from lmsweep.trials.analytic.memory_prediction import (
    Prediction,
    cublas_workspace,
    memory_config,
    memory_id,
    subject_of,
    upper_bound,
)
from lmsweep.trials.machine.cache_folder import cache_folder
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.spec.workloads import Subject

MOST = 2000
"""Different configurations of a plan, each of which is predicted; of more, some are, and the others are bounded."""

SOME = 200
"""So many, or two of each family of configurations that can be compared."""

BOUND_SECONDS = 5.0
"""That a plan of more than MOST may take for its bounds: what is not bounded by then runs, and may be out of memory."""

SMALL = 2 * 10**9
"""Bytes that every device has: to decide whether a trial fits, less need not be predicted."""


class Predictions:
    """The predictions for trials; those that the cache lacks are begun at once, in the background."""

    def __init__(self, trials: Iterable[Trial], *, least: int = 0) -> None:
        """Trials that certainly need less than `least` bytes are left out."""
        subjects = ((trial.config, subject_of(trial)) for trial in trials)
        wanted = {memory_id(config, subject): (config, subject) for config, subject in subjects if subject}
        self._known: dict[str, Prediction | Bounds | str] = {
            key: f"it needs less than {least} bytes"
            for key, (config, subject) in wanted.items()
            if upper_bound(config, subject) < least
        }
        self._verdicts: dict[str, bool | None] = {}
        self._cache = _Cache()
        kept = self._cache.read()
        self._known |= {key: _prediction_or_reason(kept[key]) for key in wanted if key in kept}
        self._asked = [key for key in wanted if key not in self._known]
        self._answers: Answers | None = None
        self._is_bounding = False
        self._undecided = wanted if len(self._asked) > MOST else {}
        if self._asked and not self._undecided:
            configs, asked_subjects = zip(*(wanted[key] for key in self._asked), strict=True)
            self._answers = Answers(
                "predict",
                [memory_config(config) for config in configs],
                subjects=asked_subjects,
                on_answer=lambda index, answer: self._cache.keep(self._asked[index], answer),
            )

    def bound(self, rooms: Mapping[str, tuple[str, int]]) -> None:
        """Begins to find out which of more than MOST fit, now that it is known where to: `rooms` has for each kind of
        device the name of the one with most memory, and the bytes that a trial may use of it.
        """
        asked = []
        for key in self._asked if self._undecided else ():
            config, subject = self._undecided[key]
            _, room = rooms.get(config.device_type, ("", None))
            if room is None:
                self._known[key] = "the memory of its device is not known"
            elif upper_bound(config, subject) <= room:
                self._known[key] = f"it needs less than {gib(room)}"
            else:
                asked.append(key)
        if asked:
            self._is_bounding = True
            self._asked = asked
            chosen = [self._undecided[key] for key in asked]
            places = [rooms[config.device_type] for config, _ in chosen]
            self._answers = Answers(
                "bounds",
                [memory_config(config) for config, _ in chosen],
                subjects=[subject for _, subject in chosen],
                device_names=[name for name, _ in places],
                rooms=[room for _, room in places],
                most=SOME,
                on_answer=lambda index, answer: self._cache.keep(asked[index], answer),
            )
        self._undecided = {}

    @property
    def asked(self) -> int:
        """How many the process is at work on."""
        return self._answers.count if self._answers else 0

    def of(self, trial: Trial, device_name: str) -> Prediction | Bounds | str:
        """The prediction for one of the trials there, or its bounds, or why there is neither. Waits for the process."""
        subject = subject_of(trial)
        if subject is None:
            return f"what {' and '.join(trial.workloads)} holds in memory is not predicted"
        if self._answers:
            answers = (
                self._answers.within(BOUND_SECONDS) if self._is_bounding else dict(enumerate(self._answers.wait()))
            )
            self._answers = None
            late = f"of so many trials only some are predicted, in {BOUND_SECONDS:g} s"
            self._known |= {
                key: _prediction_or_reason(answers[index]) if index in answers else late
                for index, key in enumerate(self._asked)
            }
        found = self._known[memory_id(trial.config, subject)]
        return found.on(device_name) if isinstance(found, Prediction) else found

    def settle(self, asked: Iterable[tuple[Trial, str, Budget]]) -> None:
        """Has the allocator simulated, for all at once, where its order of blocks decides whether a trial fits into a
        budget on a device of that name; `verdict` then knows.
        """
        if self._is_bounding:
            return  # of so many, what is not decided runs
        kept = self._cache.read()
        open_: dict[str, tuple[TrialConfig, Subject, int, str]] = {}
        for trial, device_name, room in asked:
            prediction = self.of(trial, device_name)
            if not isinstance(prediction, Prediction) or not depends_on_order(prediction, room):
                continue
            subject = subject_of(trial)
            assert subject is not None, "what has a prediction has a subject"
            key = _verdict_key(trial, subject, device_name, room)
            if key in kept:
                self._verdicts[key] = kept[key]["fits"]
            else:
                open_[key] = (memory_config(trial.config), subject, room.bytes, device_name)
        if open_:
            configs, subjects, budgets, names = (list(column) for column in zip(*open_.values(), strict=True))
            keys = list(open_)
            answers = Answers(
                "fits",
                configs,
                subjects=subjects,
                budgets=budgets,
                device_names=names,
                on_answer=lambda index, answer: self._cache.keep(keys[index], answer),
            ).wait()
            self._verdicts |= {key: answer.get("fits") for key, answer in zip(keys, answers, strict=True)}

    def verdict(self, trial: Trial, device_name: str, room: Budget) -> bool | None:
        """Whether it fits, where `settle` was asked and the order of blocks decides; None where that is not known."""
        subject = subject_of(trial)
        return self._verdicts.get(_verdict_key(trial, subject, device_name, room)) if subject else None

    def close(self) -> None:
        """Ends the process if nobody has asked for what it finds."""
        if self._answers:
            self._answers.close()
            self._answers = None


def _verdict_key(trial: Trial, subject: Subject, device_name: str, room: Budget) -> str:
    return f"{memory_id(trial.config, subject)} in {room.bytes} with {cublas_workspace(device_name)}"


def _prediction_or_reason(answer: dict[str, Any]) -> Prediction | Bounds | str:
    if answer.keys() == {"low", "high"}:
        return Bounds(**answer)
    return answer.get("reason") or answer.get("failure") or Prediction(**answer)


class _Cache:
    """Predictions that this very code makes with this very torch, kept on disk as they come: a line each, added at the
    end, so that what is killed keeps what it had, and two that predict at the same time keep both.
    """

    def __init__(self) -> None:
        digest = hashlib.sha256(f"{importlib.metadata.version('torch')} {sys.version_info[:2]}".encode())
        for path in sorted(Path(trials.__file__).parent.rglob("*.py")):
            digest.update(path.read_bytes())
        self._path = cache_folder() / f"predictions-{digest.hexdigest()[:16]}.jsonl"
        self._works = True

    def read(self) -> dict[str, dict[str, Any]]:
        """What is kept, by memory_id."""
        try:
            lines = self._path.read_text().splitlines()
        except (OSError, ValueError):  # not there, or not readable: predicted anew
            return {}
        found = {}
        for line in lines:
            try:
                key, answer = json.loads(line)
                found[str(key)] = dict(answer)
            except (ValueError, TypeError):  # cut short by what killed its writer
                continue
        return found

    def keep(self, key: str, answer: dict[str, Any]) -> None:
        if not ({"peak", "reason", "fits"} & answer.keys()) or not self._works:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as file:
                # One write, which others' do not mix with; the first line break ends what was cut short.
                file.write(f"\n{json.dumps([key, answer])}\n".encode())
        except OSError as error:  # a cache that cannot be kept costs time, not results
            self._works = False
            print(f"lmsweep: predictions are not kept: {error}", file=sys.stderr)
