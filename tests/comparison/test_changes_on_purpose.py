"""Steps of an H200 with one change on purpose each (benchmarks/changes): it is named first, and the same twice is not.

Measured once, one process each; `python -m benchmarks.changes.explained STORE` prints the table. The same twice are two
runs of benchmarks/changes/cost.yaml.
"""

import pytest

from benchmarks.changes.explained import CHANGES, FIELDS, named_first
from lmsweep.analysis.api import explain
from tests.support.command import ROOT

STORES = ROOT / "tests" / "support" / "stores"
STORE, ONCE, AGAIN = (str(STORES / name) for name in ("changes", "cost-profiled", "cost-profiled-again"))

HOST = "waits_for_host"
"""Its wall time differs by 26 %, which one process of a step that the host decides cannot show."""

PURPOSES = {name: (("model_args.change", "none", name), expected) for name, expected in CHANGES.items()}
PURPOSES |= {f"{field[0]} {field[2]}": (field, expected) for field, expected in FIELDS.items()}
FAST = ("flash_attention", "layer_in_fp32", "checkpointing block")


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PURPOSES if name != HOST]
)
def test_what_was_changed_is_named_first_and_explains_the_difference(name: str) -> None:
    sides, expected = PURPOSES[name]
    found = named_first(STORE, *sides)
    assert found is not None and found.is_as(expected)
    assert found.explained > 0.9


def test_another_attention_kernel_is_one_line() -> None:
    found = named_first(STORE, "model_args.change", "none", "flash_attention")
    assert found is not None and found.words == "blocks.*.attention backward: cudnn -> flash"


def test_kernels_that_the_compiler_wrote_are_counted_because_nobody_knows_their_names() -> None:
    found = named_first(STORE, "model_args.change", "written_gelu", "graph_breaks", compile="model")
    assert (
        found is not None
        and found.words == "backward: 6 Triton kernels -> 5 Triton kernels, embedding_dense_backward and 1 more"
    )


def test_the_same_step_twice_has_no_cause() -> None:
    found = explain(ONCE, AGAIN)
    assert len(found.verdicts) == 5 and not found.frame["named"].any()


def test_parts_of_a_difference_too_small_to_be_one_have_no_share() -> None:
    rows = explain(ONCE, AGAIN, where={"context_length": "512"}).frame
    assert rows.loc[rows["cause"] == "step", "difference"].abs().item() < 0.005 * rows["baseline"].max()
    assert rows["share"].isna().all()
