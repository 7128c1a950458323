"""Which release to measure next, to find the one in which something changed."""

import math
from pathlib import Path

from lmsweep.orchestrator.features.bisect.bisect_sweep import Bisection, known_releases
from tests.support.command import answer_here
from tests.support.wheels import write_wheel


def test_halving_finds_the_release_in_which_it_changed_with_few_measurements_and_skips_those_that_fail() -> None:
    for count, change in ((most, change) for most in (2, 3, 8, 20) for change in range(1, most)):
        search, measured = Bisection(count), 0
        while (position := search.next()) is not None:
            search.learn(position, position >= change)
            measured += 1
        assert (search.low, search.high) == (change - 1, change)
        assert measured <= math.ceil(math.log2(count - 1)) if count > 2 else measured == 0
    search = Bisection(9)
    while (position := search.next()) is not None:
        search.learn(position, None if position in (4, 5) else position >= 5)
    assert (search.low, search.high, search.skipped) == (3, 6, {4, 5})


def test_a_release_is_one_however_it_is_written_and_the_ends_are_as_they_were_given(wheels: Path) -> None:
    write_wheel(wheels, "speedy", "1.1.0", "SIZE = 1\n")
    assert known_releases("speedy", "1", "2.0+cu126") == ["1", "1.1.0", "2.0+cu126"]
    assert known_releases("speedy", "2", "1.1") == ["2", "1.1"]
    assert known_releases("speedy", "2.0+cpu", "2.0+cu126") == ["2.0+cpu", "2.0+cu126"]


def test_two_spellings_of_one_release_are_refused(wheels: Path) -> None:
    for words in ("--good 1 --bad 1.0", "--releases 1.0,2.0,2.0.0"):
        done = answer_here("bisect", "quick", "--package", "speedy", *words.split())
        assert done.returncode == 2 and f"lmsweep: {words}: give at least two different releases" in done.stderr
