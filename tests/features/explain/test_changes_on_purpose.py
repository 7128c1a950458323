"""Steps of an H200 with one change on purpose each: it is named first, and the same twice is not.

Measured once, one process each (docs/lab/2026-11-25-explain.md). The same twice are two runs of one sweep.
"""

import re
from functools import cache

import pytest

from lmsweep import explain
from lmsweep.orchestrator.features.explain.step_causes import IDLE, WALL, WHOLE
from tests.support.command import ROOT

STORES = ROOT / "tests" / "support" / "stores"
STORE, ONCE, AGAIN = (str(STORES / name) for name in ("changes", "cost-profiled", "cost-profiled-again"))

ATTENTION, FEED_FORWARD, NORM = r"\.attention ", r"\.feed_forward ", r"norm "

CHANGES: dict[str, str] = {
    **dict.fromkeys(
        ("written_attention", "flash_attention", "masked_attention", "three_products", "rotated"), ATTENTION
    ),
    **dict.fromkeys(("written_gelu", "wider", "dropout", "extra_copies", "layer_in_fp32"), FEED_FORWARD),
    "written_norm": NORM,
    "not_contiguous": rf"{NORM}|^blocks\.\* ",  # the block copies, and the norms copy back
    "waits_for_host": IDLE,
    "no_prefetch": rf"^{IDLE}|^forward",
}
"""Value of `model_args.change` -> what should be named first, as it was fixed before the steps were measured."""

FIELDS: dict[tuple[str, str, str], str] = {
    ("vocab_size", "50304", "50257"): r"^head|^loss",
    ("optimizer", "adamw_fused", "adamw_foreach"): r"^optimizer",
    ("optimizer", "adamw_fused", "adamw_loop"): r"^optimizer",
    ("loss", "cross_entropy", "eager"): r"^loss",
    ("checkpointing", "none", "block"): r"recomputed",
    ("precision", "bf16", "tf32"): rf"{ATTENTION}|{FEED_FORWARD}|^head",  # every product changes
}
"""(field, baseline, contrast) -> what should be named first."""

BASE = {"compile": "none", "optimizer": "adamw_fused", "loss": "cross_entropy", "checkpointing": "none",
        "precision": "bf16", "vocab_size": "50304", "model_args.change": "none"}  # fmt: skip

HOST = "waits_for_host"
"""Its wall time differs by 26 %, which one process of a step that the host decides cannot show."""

PURPOSES = {name: (("model_args.change", "none", name), expected) for name, expected in CHANGES.items()}
PURPOSES |= {f"{field[0]} {field[2]}": (field, expected) for field, expected in FIELDS.items()}
FAST = ("layer_in_fp32", "checkpointing block")


@cache
def named_first(field: str, baseline: str, contrast: str, **conditions: str) -> tuple[str, str, float]:
    """The cause that is named first, how it changed, and how much of the difference all that is named explains."""
    where = {name: value for name, value in {**BASE, **conditions}.items() if name != field}
    found = explain(STORE, baseline={field: baseline}, contrast={field: contrast}, where=where)
    rows = found.frame.set_index("cause")
    named = rows[rows["named"]]
    # Of wall time, if it is named that the device waits.
    whole = float(rows["difference"][WALL if IDLE in named.index else WHOLE])
    first = re.match(r"first: ([^:]+?)(?:: |, [+-])", found.sentences()[1])
    assert first
    return first[1], str(named["change"][first[1]]), 1 - abs(float(named["difference"].sum()) / whole - 1)


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PURPOSES if name != HOST]
)
def test_what_was_changed_is_named_first_and_explains_the_difference(name: str) -> None:
    sides, expected = PURPOSES[name]
    cause, _, explained = named_first(*sides)
    assert re.search(expected, cause)
    assert explained > 0.9


def test_another_kernel_is_one_line_and_those_that_the_compiler_wrote_are_counted() -> None:
    cause, change, explained = named_first("model_args.change", "none", "flash_attention")
    assert (cause, change) == ("blocks.*.attention backward", "cudnn -> flash") and explained > 0.9
    cause, change, _ = named_first("model_args.change", "written_gelu", "graph_breaks", compile="model")
    assert (cause, change) == ("backward", "6 Triton kernels -> 5 Triton kernels, embedding_dense_backward and 1 more")


def test_the_same_step_twice_has_no_cause() -> None:
    found = explain(ONCE, AGAIN)
    assert len(found.verdicts) == 5 and not found.frame["named"].any()
    small = found.frame[found.frame["context_length"] == 512]
    assert small.loc[small["cause"] == "step", "difference"].abs().item() < 0.005 * small["baseline"].max()
    assert small["share"].isna().all(), "of a difference too small to be one"
