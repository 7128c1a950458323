"""A deep model's allocations, put together from two small models', against those of the deep model itself."""

from lmsweep.trials.prediction.depth.layer_extrapolation import deepen
from lmsweep.trials.prediction.without_device.allocation_trace import Event, Stretch, Trace, leaves_only


def trace(**phases: list[Event]) -> Trace:
    return [Stretch(phase=phase, events=events) for phase, events in phases.items()]


def test_models_that_differ_by_more_than_a_layer_put_in_between_say_nothing_of_deep_ones() -> None:
    assert deepen(trace(forward=[(0, 100), (1, 10)]), trace(forward=[(0, 200), (1, 10), (2, 20)]), 2) is None
    # The third layer would free again what the second has freed.
    one, two = trace(forward=[(0, 5), (1, 10)]), trace(forward=[(0, 5), (1, 10), (2, 10), (0, -5)])
    assert deepen(one, two, 1) is not None
    assert deepen(one, two, 2) is None


def test_an_iteration_leaves_only_what_it_allocates_in_one_phase_or_nothing() -> None:
    nothing = trace(forward=[(0, 10)], backward=[(1, 7), (0, -10), (1, -7)])
    state = trace(forward=[(0, 10)], backward=[(0, -10)], optimizer=[(1, 8)])
    cache = trace(forward=[(0, 10), (1, 4)], backward=[(0, -10)], optimizer=[(2, 8)])
    older = trace(forward=[(1, 10), (0, -10)], optimizer=[(1, -10), (2, 8)])
    assert [leaves_only("optimizer", one) for one in (nothing, state, cache, older)] == [True, True, False, False]
    assert [leaves_only(None, one) for one in (nothing, state, cache, older)] == [True, False, False, False]
