"""The states of the user's code: which is latest, which previous, what tables show, what is refused."""

from dataclasses import replace

import pytest

from lmsweep import analysis
from lmsweep.analysis.comparison.compare import compare, select_sides
from lmsweep.analysis.data.code_states import latest_code
from lmsweep.analysis.data.selection import select
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import RequestError, TrialConfig
from tests.support.command import lmsweep_here
from tests.support.made_up_results import LAPTOP, Attempts, samples

FIRST, SECOND, THIRD = "1111aaaa00000000", "2222bbbb00000000", "3333cccc00000000"
OTHER = "9999ffff00000000"


def measured(
    attempts: Attempts, attention: str, digest: str | None, seconds: float, *, error: float = 1e-6, context: int = 64
) -> None:
    trial = TrialConfig(d_model=16, context_length=context, attention=attention)
    fingerprint = replace(LAPTOP, code_digest=digest, code_revision=f"{digest[:4]}dddd" if digest else None)
    values: dict[str, tuple[float, ...] | None] = {
        "forward.time": samples(seconds, 0.01 * seconds),
        "backward.time": samples(2 * seconds, 0.01 * seconds),
    }
    if digest:
        values |= {"error.output": (error,), "error.gradient": (2 * error,)}
    units = {"error.output": "1", "error.gradient": "1"}
    flags = (Flag.DISAGREES,) if error > 1e-3 else ()
    attempts.ok(trial, values, units=units, flags=flags, fingerprint=fingerprint, workload="attention")


def edited(attempts: Attempts, *digests: str) -> None:
    """Adds a result of these states of a file, in their order, and one of PyTorch's attention."""
    for digest in digests:
        measured(attempts, "flash.py:attend", digest, 1.0)
    measured(attempts, "sdpa", None, 1.0)


def test_states_are_ordered_by_their_newest_result_among_those_of_the_same_references(attempts: Attempts) -> None:
    edited(attempts, FIRST, SECOND, THIRD)
    measured(attempts, "other.py:attend", OTHER, 1.0)
    frame = analysis.load(attempts.store)
    states = frame.drop_duplicates(["attention", "code_digest"]).set_index("code_digest")["code"]
    assert states[FIRST] == FIRST[:8] and states[SECOND] == "previous" and states[THIRD] == "latest"
    assert states[OTHER] == "latest", "an edit of one file leaves the results of another the latest"
    assert frame.loc[frame["attention"] == "sdpa", "code"].isna().all()
    measured(attempts, "flash.py:attend", FIRST, 1.0, context=128)
    states = analysis.load(attempts.store).drop_duplicates("code_digest").set_index("code_digest")["code"]
    assert states[FIRST] == "latest" and states[THIRD] == "previous" and states[SECOND] == SECOND[:8]


def test_a_state_is_chosen_by_word_digest_or_commit(attempts: Attempts) -> None:
    edited(attempts, FIRST, SECOND)
    frame = analysis.load(attempts.store)
    for text, digests in {
        "latest": {SECOND},
        "previous": {FIRST},
        "1111": {FIRST},
        "2222dddd": {SECOND},
        "latest,previous": {FIRST, SECOND},
    }.items():
        assert set(select(frame, {"code": text})["code_digest"]) == digests, text
    assert set(select(frame, {"code": "-"})["attention"]) == {"sdpa"}
    with pytest.raises(RequestError, match=r"--where code=12: there is no such state.*digests are 2222bbbb \(2026-"):
        select(frame, {"code": "12"})


def test_without_two_states_there_is_nothing_to_compare_with(attempts: Attempts) -> None:
    measured(attempts, "sdpa", None, 1.0)
    frame = analysis.load(attempts.store)
    with pytest.raises(RequestError, match="--baseline code=previous: no such result uses code of your own"):
        select_sides(frame, {"code": "previous"}, {"code": "latest"})
    measured(attempts, "flash.py:attend", FIRST, 1.0)
    frame = analysis.load(attempts.store)
    with pytest.raises(RequestError, match=r"only one state of your code among these results, 1111aaaa \(2026-.*edit"):
        select_sides(frame, {"code": "previous"}, {"code": "latest"})


def test_compare_shows_the_errors_of_a_change_beside_its_times(attempts: Attempts) -> None:
    measured(attempts, "flash.py:attend", FIRST, 2.0)
    measured(attempts, "flash.py:attend", SECOND, 1.0, error=0.1)
    measured(attempts, "sdpa", None, 0.5)
    sides = select_sides(analysis.load(attempts.store, pooled=False), {"code": "previous"}, {"code": "latest"})
    found = compare(sides.baseline, sides.contrast, between=sides.between)
    assert found.title.startswith("code latest (2222bbbb) against previous (1111aaaa)")
    assert list(found.frame["verdict"]) == ["faster", "faster"] and list(found.frame["ratio"]) == [0.5, 0.5]
    assert list(found.frame["error_baseline"]) == [2e-6] * 2 and list(found.frame["error_contrast"]) == [0.2] * 2
    assert all("disagrees" in flags for flags in found.frame["flags"])


def test_tables_show_the_latest_state_and_say_what_they_leave_out(attempts: Attempts) -> None:
    edited(attempts, FIRST, SECOND, THIRD)
    with pytest.warns(UserWarning, match="2 results of 2 earlier states of your code are not shown"):
        shown = latest_code(analysis.load(attempts.store))
    assert set(shown["code_digest"].dropna()) == {THIRD} and "sdpa" in set(shown["attention"])
    location = attempts.store.location
    latest = lmsweep_here("table", location, "--preset", "attention")
    assert "error.output" in latest and "error.gradient" in latest and "code_digest" not in latest
    lines = lmsweep_here("table", location, "--rows", "attention,code").splitlines()
    states = [line.split()[1] for line in lines if line.startswith("attend")]
    assert states == [FIRST[:8], "previous", "latest"], "nothing is left out if states are asked for"
