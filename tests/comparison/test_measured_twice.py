"""Verdicts on what an H100 measured: the same steps twice, and steps with a part that is 1 to 2 % slower.

docs/lab/2026-11-26-twice-and-small-changes.md has the commands. One process a side.
"""

import pytest

from lmsweep.analysis.api import compare
from tests.support.command import ROOT, lmsweep_here

STORES = ROOT / "tests" / "support" / "stores"
CHANGES = {
    "kernels": ({"model_args.change": "copies"}, {"model_args.change": "none"}, {"compile": "none"}),
    "optimizer": ({"optimizer_args.share": "1.5"}, {"optimizer_args.share": "0"}, {}),
    "compiled": ({"model_args.change": "break"}, {"model_args.change": "none"}, {"compile": "block"}),
}


def store(name: str) -> str:
    return str(STORES / name)


def test_the_same_steps_twice_are_the_same() -> None:
    found = compare(store("devices-once"), store("devices-again")).frame
    assert len(found) == 14 and set(found["verdict"]) == {"same"}
    assert found["wall_ratio"].sub(1).abs().max() > 0.3, "though the host took 12 % less time the second time"


@pytest.mark.parametrize("part", CHANGES)
def test_one_percent_of_kernels_optimizer_or_compiled_code_is_found_and_is_never_slower(part: str) -> None:
    baseline, contrast, where = CHANGES[part]
    found = compare(store("small-changes"), baseline=baseline, contrast=contrast, where=where)
    assert len(found.cells) == 6 and found.claim and found.claim.verdict == "better"
    verdicts = set(found.cells["verdict"])
    assert "faster" in verdicts and verdicts <= {"faster", "host-limited", "same"}
    large = found.cells[1 / found.cells["device_ratio"] >= 1.0125]
    assert "same" not in set(large["verdict"]), "what is host-limited is surely faster on the GPU"


def test_the_power_limit_is_named_where_it_hides_the_answer() -> None:
    text = lmsweep_here("compare", store("power-limit"), store("power-limit-again"))
    assert "36 ambiguous at the GPU's power limit: --set processes=3 decides." in text
