"""What a run says of each trial, in a few words."""

import pytest

from orchestrator.progress import describe, outcome
from orchestrator.resources import this_machine
from orchestrator.terminal import format_seconds
from trials.attempt import Attempt
from trials.outcome import Status
from trials.spec import Trial, TrialConfig


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (5e-4, "500 µs"),
        (12.34, "12.3 s"),
        (59.4, "59.4 s"),
        (59.6, "1 min 00 s"),
        (130.0, "2 min 10 s"),
        (419.6, "7 min 00 s"),
        (3599.7, "1 h 00 min"),
        (3900.0, "1 h 05 min"),
    ],
)
def test_there_is_no_sixtieth_second(seconds, words):
    assert format_seconds(seconds) == words


def test_a_timeout_says_how_long_was_waited_and_not_the_end_of_a_stack():
    attempt = Attempt.begin(
        Trial(config=TrialConfig(d_model=2, timeout_seconds=90.0), workloads=("noop",), sweep="test")
    )
    said = 'killed when its time was up\n  File "runpy", line 198 in _run_module_as_main'
    row = attempt.failure("noop", Status.TIMEOUT, said, this_machine().environments["cpu"])
    assert outcome([row]) == "timeout after 1 min 30 s"


def test_a_trial_is_told_by_the_values_that_it_has():
    flat, bucketed = TrialConfig(d_model=2, ddp="flat"), TrialConfig(d_model=2, ddp="bucketed", bucket_bytes=1000)
    assert describe(flat, ["ddp", "bucket_bytes"]) == "ddp flat"
    assert describe(bucketed, ["ddp", "bucket_bytes"]) == "ddp bucketed, bucket_bytes 1000"
