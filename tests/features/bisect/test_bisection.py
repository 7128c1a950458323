"""Which release to measure next, to find the one in which something changed."""

import math

from lmsweep.orchestrator.features.bisect.bisect_sweep import Bisection


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
