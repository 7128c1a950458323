"""What a rank holds: closed forms against the course's and ZeRO's own figures, and against a store's measurements."""

import pytest

from lmsweep.analysis import load
from lmsweep.orchestrator.features.limits.communication_limits import HELD_AT, SHARDED_PARTS, rank_bytes, sharding
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from tests.support.command import ROOT

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
