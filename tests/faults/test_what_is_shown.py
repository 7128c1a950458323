"""Whatever a row holds that the store takes, every function that shows rows shows it."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from lmsweep.analysis.tables.render import FORMATS
from lmsweep.orchestrator.commands.run_summary import where_the_time_went
from lmsweep.orchestrator.features.trial.trial_table import show_trial
from lmsweep.orchestrator.planning.time_estimate import Estimate
from lmsweep.orchestrator.running.progress.eta import Eta
from lmsweep.orchestrator.running.progress.trial_progress import RunProgress
from lmsweep.orchestrator.running.progress.trial_words import descriptions
from lmsweep.orchestrator.running.run_plan import Account
from lmsweep.orchestrator.terminal import NotShownWarning, continuing, format_seconds, say_warnings
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import RequestError
from tests.support.command import answer_here
from tests.support.made_up_results import H200, Attempts, config, planned

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
KNOWN = st.sampled_from(["step", "forward", "backward", "trial", "energy", "error"])
METRIC = st.sampled_from(["time", "device_time", "measured_time", "peak_allocated", "energy", "tflops", "foo_time"])
SAMPLES = st.none() | st.lists(FINITE, min_size=1, max_size=6).map(tuple)

ONE = {
    "status": st.sampled_from(list(Status)),
    "phase": st.none() | KNOWN | TEXT,
    "metric": st.none() | METRIC | TEXT,
    "unit": st.none() | st.sampled_from(["s", "B", "1", "J"]) | TEXT,
    "samples": SAMPLES,
    "warmup_samples": SAMPLES,
    "flags": st.lists(st.sampled_from([flag.value for flag in Flag]) | TEXT, max_size=3).map(tuple),
    "error": st.none() | TEXT,
    "reason": st.none() | TEXT,
    "workload": st.sampled_from(["timing", "memory", "mine.bench:measure"]) | TEXT,
}
ROWS = st.lists(st.fixed_dictionaries(ONE), min_size=1, max_size=5)
TIME = {"status": Status.OK, "phase": "step", "metric": "time", "unit": "s"}
ISSUE = [TIME | {"samples": (5e-324, 1e308, 1e308, 1e308)}]
BOUND = (Flag.HOST_BOUND.value,)
ZERO = [TIME | {"metric": name, "samples": (0.0,), "flags": BOUND} for name in ("time", "device_time")]
OTHER_TIME = [TIME | {"phase": "trial", "metric": "foo_time", "samples": (1e308, 1e308)}]

TRIAL = config(context_length=128)
FUZZ = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def records(attempts: Attempts, contents: list[dict[str, Any]]) -> list[Record]:
    return [replace(attempts._base(TRIAL, status=Status.OK), **content) for content in contents]


@given(FINITE | st.sampled_from([float("inf"), float("-inf"), float("nan")]))
@FUZZ
def test_any_number_of_seconds_is_printed_in_a_few_words(seconds: float) -> None:
    assert len(format_seconds(seconds)) < 20


@given(ROWS)
@example(ISSUE)
@example(ZERO)
@example(OTHER_TIME)
@settings(FUZZ, max_examples=20)
def test_progress_and_the_table_of_a_trial_show_any_row(contents: list[dict[str, Any]]) -> None:
    rows = records(Attempts(Path("unused")), contents)
    trials = [planned(TRIAL, index, environment=H200) for index in range(5)]
    estimate = Estimate(seconds=30.0, iterating=20.0, reason=None, is_new=True, rests_on_model=True)
    out = io.StringIO()
    eta = Eta(trials, dict.fromkeys(range(5), estimate))
    progress = RunProgress(trials, eta, Console(width=80, file=out), names=descriptions(trials))
    account = Account(began=0.0, slots=1)
    with answers_nothing():
        for one in trials[:4]:
            progress.started(one)
            progress.ended(one, rows)
            account.add(rows)
            Console(width=80, file=io.StringIO()).print(progress.view.draw())
        where_the_time_went(account)
        show_trial(rows)
    assert out.getvalue().count("/5]") == 4


@contextmanager
def answers_nothing() -> Iterator[None]:
    """Without NumPy's words about sums that are too large. NotShownWarning stays an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("error", NotShownWarning)
        yield


def test_what_cannot_be_shown_is_one_line_and_the_rest_continues(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default", NotShownWarning)
        say_warnings()
        with continuing("the line of trial [1/2]"):
            raise OverflowError("cannot convert\nfloat infinity" + "x" * 1000)
        with continuing("the table"):
            raise RequestError("no such column")
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and len(said[0]) < 400
    words = "lmsweep: the line of trial [1/2] could not be shown: OverflowError at test_what_is_shown.py"
    assert said[0].startswith(words)
    assert said[1] == "lmsweep: the table could not be shown: no such column"


VERBS = (
    *(f"table {{store}} --format {name}" for name in FORMATS),
    "compare {store} --baseline precision=fp32 --contrast precision=bf16",
    "best {store}",
    "report {store} -o {folder}/report.html",
    "report {store} --share {folder}/shared",
    "export cs336-2025 {store} -o {folder}/course",
)


@pytest.mark.slow
@given(ROWS)
@example(ISSUE)
@example(ZERO)
@settings(FUZZ, max_examples=6)
def test_every_verb_that_reads_shows_any_row(contents: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder, answers_nothing():
        attempts = Attempts(Path(folder) / "results")
        for content in contents:
            attempts.store.keep(records(attempts, [content]))
        for seconds in (1.0, 1e308):
            attempts.ok(config(context_length=128, precision="bf16"), {"step.time": (seconds, 1e308)})
        for words in VERBS:
            done = answer_here("--debug", *words.format(store=attempts.store.location, folder=folder).split())
            assert done.returncode in (0, 2), done.stderr  # 2: there is nothing to compare
