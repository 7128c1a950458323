"""When a time is flagged as the host's."""

from lmsweep.trials.bench.iterations import host_bound_flags


def test_the_host_is_the_limit_where_the_device_waits_for_more_than_a_twentieth_of_the_step():
    assert host_bound_flags([0.94], [1.0, 1.0, 5.0])
    assert not host_bound_flags([0.96, 0.97], [1.0, 0.98, 5.0])
    assert not host_bound_flags([], [1.0]), "not known"
