"""Predicted memory for a plan: from the cache on disk or, by a process that may import torch, worked out meanwhile."""

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import trials
from trials.interpreter import command, environment
from trials.prediction import Prediction, memory_config, memory_id, subject_of, upper_bound
from trials.processes import kill_group
from trials.scratch import temporary_folder
from trials.spec import RequestError, Trial, TrialConfig

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
        self._cache = _cache_file()
        for key, content in _read(self._cache).items():
            if key in wanted:
                self._known[key] = _prediction_or_reason(content)
        self._asked = [key for key in wanted if key not in self._known]
        self._process = None
        if self._asked:
            configs, asked_subjects = zip(*(wanted[key] for key in self._asked), strict=True)
            self._process = ask("predict", [memory_config(config) for config in configs], subjects=asked_subjects)

    @property
    def asked(self) -> int:
        """How many the process is at work on."""
        return len(self._asked) if self._process else 0

    def of(self, trial: Trial, device_name: str) -> Prediction | str:
        """The prediction for one of the trials there, or why there is none. Waits for the process."""
        subject = subject_of(trial)
        if subject is None:
            return f"what {' and '.join(trial.workloads)} holds in memory is not predicted"
        if self._process:
            answers = dict(zip(self._asked, answer_of(self._process), strict=True))
            self._process = None
            self._known |= {key: _prediction_or_reason(answer) for key, answer in answers.items()}
            _write(self._cache, {key: answer for key, answer in answers.items() if "failure" not in answer})
        found = self._known[memory_id(trial.config, subject)]
        return found.on(device_name) if isinstance(found, Prediction) else found

    def close(self) -> None:
        """Ends the process if nobody has asked for what it finds."""
        if self._process:
            kill_group(self._process.pid)  # those that it has started would hold its output open
            self._process.communicate()
            self._process = None


def _prediction_or_reason(answer: dict[str, Any]) -> Prediction | str:
    return answer.get("reason") or answer.get("failure") or Prediction(**answer)


def ask(question: str, contents: list[TrialConfig], **options: Any) -> "subprocess.Popen[bytes]":
    """Starts ``python -m trials.predict`` on a question, in a group of its own that ends with this process."""
    request = tempfile.TemporaryFile(dir=temporary_folder())  # noqa: SIM115 - the process has its own handle
    request.write(json.dumps({"question": question, "configs": [asdict(one) for one in contents], **options}).encode())
    request.seek(0)
    asked = command("trials.predict", str(os.getpid()))
    return subprocess.Popen(asked, stdin=request, stdout=subprocess.PIPE, env=environment(), start_new_session=True)


def answer_of(process: "subprocess.Popen[bytes]") -> list[Any]:
    """What it answered. Raises RequestError where it failed."""
    answer, _ = process.communicate()
    if process.returncode:
        raise RequestError("memory could not be predicted (see above); --no-predict goes without")
    answers: list[Any] = json.loads(answer)
    return answers


def _cache_file() -> Path:
    """Predictions that this very code makes with this very torch."""
    digest = hashlib.sha256(f"{importlib.metadata.version('torch')} {sys.version_info[:2]}".encode())
    for path in sorted(Path(trials.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmsweep"
    return folder / f"predictions-{digest.hexdigest()[:16]}.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):  # not there, or not readable: predicted anew
        return {}
    return found


def _write(path: Path, new: dict[str, Any]) -> None:
    if not new:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as aside:
            whole = Path(aside, path.name)
            whole.write_text(json.dumps(_read(path) | new))
            whole.replace(path)
    except OSError as error:  # a cache that cannot be kept costs time, not results
        print(f"lmsweep: predictions are not kept: {error}", file=sys.stderr)
