"""Limits of communication: closed forms against a search over ranks, what ZeRO's own figures say, and a store."""

import pytest

from lmsweep.analysis import load
from lmsweep.orchestrator.features.limits.communication_limits import (
    HELD_AT,
    SHARDED_PARTS,
    limits_of,
    rank_bytes,
    sharding,
)
from lmsweep.trials.analytic.datasheets import LINKS, device_named
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from tests.support.command import ROOT

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


# What a rank holds
XL = 3_406_809_600.0


def test_every_way_to_share_among_all_ranks_has_its_closed_form():
    assert {*SHARDED_PARTS, "hsdp"} == set(DDP_VARIANTS)


def test_zero_1_divides_the_state_and_fsdp_everything():
    whole, zero1, fsdp = (
        rank_bytes(parameters=XL, ranks=2, ddp=ddp, moment="before_optimizer") for ddp in ("naive", "zero1", "fsdp")
    )
    assert whole == {"weights": 4 * XL, "gradients": 4 * XL, "optimizer_state": 8 * XL, "total": 16 * XL}
    assert zero1["total"] == whole["total"] - 4 * XL and fsdp["total"] == whole["total"] / 2
    assert rank_bytes(parameters=XL, ranks=2, ddp="fsdp", moment="init")["total"] == 2 * XL


def test_before_the_first_step_there_are_only_weights_and_after_a_step_no_gradients():
    held = {name: rank_bytes(parameters=1.0, ranks=1, ddp="none", moment=name) for name in HELD_AT}
    assert held["init"]["total"] == 4 and held["after_step"]["total"] == 12
    assert held["before_optimizer"] == held["after_optimizer"]


def test_a_rank_holds_what_the_closed_forms_say_and_little_more():
    rows = sharding(load(str(ROOT / "tests/support/stores/ranks"))).dropna(subset=["measured"])
    assert set(rows["ddp"]) == {"naive", "fsdp"} and set(rows["moment"]) == {"init", "after_step"}
    assert rows["measured"].to_numpy() == pytest.approx(rows["total"].to_numpy(), rel=0.02)
    assert (rows["measured"] >= rows["total"]).all()
