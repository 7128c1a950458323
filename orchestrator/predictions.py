"""Predicted memory for a plan: from the cache on disk or, by a process that may import torch, worked out meanwhile."""

import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import trials
from orchestrator.answers import Answers
from orchestrator.fit import Budget, depends_on_order
from trials.prediction import Prediction, Subject, cublas_workspace, memory_config, memory_id, subject_of, upper_bound
from trials.spec import Trial, TrialConfig

MOST = 2000
"""Different configurations of one plan whose memory is predicted; at a tenth of a second each, more would take long."""

SMALL = 2 * 10**9
"""Bytes that every device has: to decide whether a trial fits, less need not be predicted."""

TOO_MANY = f"the sweep has more than {MOST} different ones"


class Predictions:
    """The predictions for trials; those that the cache lacks are begun at once, in the background."""

    def __init__(self, trials: Iterable[Trial], *, least: int = 0) -> None:
        """Trials that certainly need less than `least` bytes are left out."""
        subjects = ((trial.config, subject_of(trial)) for trial in trials)
        wanted = {memory_id(config, subject): (config, subject) for config, subject in subjects if subject}
        self._known: dict[str, Prediction | str] = {
            key: f"it needs less than {least} bytes"
            for key, (config, subject) in wanted.items()
            if upper_bound(config, subject) < least
        }
        self._known |= dict.fromkeys([key for key in wanted if key not in self._known][MOST:], TOO_MANY)
        self._verdicts: dict[str, bool | None] = {}
        self._cache = _Cache()
        kept = self._cache.read()
        self._known |= {key: _prediction_or_reason(kept[key]) for key in wanted if key in kept}
        self._asked = [key for key in wanted if key not in self._known]
        self._answers = None
        if self._asked:
            configs, asked_subjects = zip(*(wanted[key] for key in self._asked), strict=True)
            self._answers = Answers(
                "predict",
                [memory_config(config) for config in configs],
                subjects=asked_subjects,
                on_answer=lambda index, answer: self._cache.keep(self._asked[index], answer),
            )

    @property
    def asked(self) -> int:
        """How many the process is at work on."""
        return self._answers.count if self._answers else 0

    def of(self, trial: Trial, device_name: str) -> Prediction | str:
        """The prediction for one of the trials there, or why there is none. Waits for the process."""
        subject = subject_of(trial)
        if subject is None:
            return f"what {' and '.join(trial.workloads)} holds in memory is not predicted"
        if self._answers:
            answers = dict(zip(self._asked, self._answers.wait(), strict=True))
            self._answers = None
            self._known |= {key: _prediction_or_reason(answer) for key, answer in answers.items()}
        found = self._known[memory_id(trial.config, subject)]
        return found.on(device_name) if isinstance(found, Prediction) else found

    def settle(self, asked: Iterable[tuple[Trial, str, Budget]]) -> None:
        """Has the allocator simulated, for all at once, where its order of blocks decides whether a trial fits into a
        budget on a device of that name; `verdict` then knows.
        """
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


def _prediction_or_reason(answer: dict[str, Any]) -> Prediction | str:
    return answer.get("reason") or answer.get("failure") or Prediction(**answer)


class _Cache:
    """Predictions that this very code makes with this very torch, kept on disk as they come: a line each, added at the
    end, so that what is killed keeps what it had, and two that predict at the same time keep both.
    """

    def __init__(self) -> None:
        digest = hashlib.sha256(f"{importlib.metadata.version('torch')} {sys.version_info[:2]}".encode())
        for path in sorted(Path(trials.__file__).parent.glob("*.py")):
            digest.update(path.read_bytes())
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmsweep"
        self._path = folder / f"predictions-{digest.hexdigest()[:16]}.jsonl"
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
        if "failure" in answer or not self._works:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as file:
                # One write, which others' do not mix with; the first line break ends what was cut short.
                file.write(f"\n{json.dumps([key, answer])}\n".encode())
        except OSError as error:  # a cache that cannot be kept costs time, not results
            self._works = False
            print(f"lmsweep: predictions are not kept: {error}", file=sys.stderr)
