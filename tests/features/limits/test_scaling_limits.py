"""Limits of scaling: closed forms against a search over numbers of ranks."""

import pytest

from lmsweep.orchestrator.features.limits.communication_limits import limits_of
from lmsweep.trials.analytic.datasheets import LINKS, device_named

D, F, M = 5120.0, 13824.0, 3
FLOPS, BANDWIDTH = 4.6e14, 9.0e10  # of TPU-like devices, so that both limits are in reach
BATCH = 65_536.0
KNOWN = {"d_ff": F, "flops": FLOPS, "bandwidth": BANDWIDTH}
LIMITS = limits_of(tokens=BATCH, **KNOWN)


def ring(size: float, ranks: float) -> float:
    """Seconds of an all-gather or a reduce-scatter."""
    return size * (ranks - 1) / ranks / BANDWIDTH


def seconds(data: float, layers: float) -> tuple[float, float, float]:
    """Forward on a mesh: computation, gathers of weights, reductions of outputs."""
    computes = 2 * M * BATCH * D * F / (data * layers) / FLOPS
    return computes, M * ring(2 * D * F / layers, data), 2 * ring(2 * BATCH / data * D, layers)


def test_data_parallelism_is_bound_by_communication_above_its_limit():
    limit = LIMITS.data_parallel
    assert limit == pytest.approx(1 + BATCH * BANDWIDTH / FLOPS)
    for ranks, bound in ((limit * 0.99, False), (limit * 1.01, True)):
        backward = 4 * M * BATCH * D * F / ranks / FLOPS
        assert (2 * M * ring(2 * D * F, ranks) > backward) == bound, "all-reduce of the gradients"
        computes, gathers, _ = seconds(ranks, 1)
        assert (gathers > computes) == bound, "FSDP's forward"


def test_tensor_parallelism_is_bound_by_communication_above_its_limit():
    """Backward computes twice as much and sends as much."""
    for limit, passes in ((LIMITS.tensor_parallel, 1), (LIMITS.tensor_parallel_backward, 2)):
        for ranks, bound in ((limit * 0.99, False), (limit * 1.01, True)):
            computes, _, reductions = seconds(1, ranks)
            assert (reductions > passes * computes) == bound
    assert limits_of(tokens=64.0, **KNOWN).serial_mesh == pytest.approx(LIMITS.tensor_parallel), "no batch to divide"
    assert [name for name in LINKS if device_named(name) is None] == []


def test_no_mesh_is_larger_than_its_limit():
    meshes = {(data, layers): seconds(data, layers) for data in range(1, 60) for layers in range(1, 60)}
    fitting = [data * layers for (data, layers), (computes, *sent) in meshes.items() if max(sent) <= computes]
    serial = [data * layers for (data, layers), (computes, *sent) in meshes.items() if sum(sent) <= computes]
    assert 0.7 * LIMITS.mesh < max(fitting) <= LIMITS.mesh
    assert 0.9 * LIMITS.serial_mesh < max(serial) <= LIMITS.serial_mesh < LIMITS.mesh
