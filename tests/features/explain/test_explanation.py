"""`compare --explain`: what changed is named first, the parts add up, and nothing is named where nothing changed."""

import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from lmsweep import explain
from lmsweep.analysis.reference import stores
from lmsweep.orchestrator.api import find_sweep
from lmsweep.orchestrator.features.explain.explanation import Explanation
from lmsweep.orchestrator.features.explain.kernel_changes import change_of
from lmsweep.orchestrator.features.explain.step_causes import IDLE, WALL, WHOLE, ProfiledStep, causes
from lmsweep.orchestrator.features.report.content import content_of
from lmsweep.orchestrator.plan_request import What, Where
from tests.support.command import ROOT, lmsweep_here, refused_here
from tests.support.simulated_changes import draw, process, profiled_steps
from tests.support.simulated_processes import MEASURED


@pytest.mark.slow
def test_two_processes_of_one_program_have_no_cause_even_at_three_times_the_measured_variation() -> None:
    random, steps = np.random.default_rng(2), profiled_steps()
    named = [draw(step, None, 3 * MEASURED["device"], random)[0] for step in steps * 2]
    assert np.count_nonzero(named) <= 0.05 * len(named)


def test_what_the_profiles_do_not_reproduce_is_unexplained_and_no_part_of_the_model() -> None:
    """A busy host made one profile slower by half, in some parts more than in others; the timed steps agree."""
    random, kernels = np.random.default_rng(3), profiled_steps()[0]
    before, after = process(kernels, 0.002, random), process(kernels, 0.002, random)
    slower = np.where(after.kernels["phase"] == "backward", 2.0, 1.0)
    after = replace(after, kernels=after.kernels.assign(time=after.kernels["time"] * slower))
    assert not causes(before, after)["named"].any()


def test_three_lines_say_the_verdict_the_first_cause_and_the_rest_and_add_up() -> None:
    sides = ["--baseline", "attention=naive", "--contrast", "attention=sdpa", "--where", "mode=train_step"]
    verdict, first, rest, *_ = lmsweep_here("compare", "h200-profile", *sides, "--explain").splitlines()
    assert verdict == "attention sdpa against naive: step 27.00 -> 22.85 ms (-15.3%), ambiguous"
    assert first == "first: attention backward: div, bmm and 3 more -> cudnn, -5.67 ms"
    assert rest.startswith("rest: attention forward -3.11 ms, other parts +0.01 ms, ")
    amounts = [float(part.split()[-2]) for part in [first, *rest.split(", ")] if part.endswith(" ms")]
    assert sum(amounts) == pytest.approx(22.85 - 27.0, abs=0.02)
    # Best says the same of the winner and the next combination of one job.
    one_job = ["mode=train_step", "model=small", "precision=bf16", "compile=none"]
    where = [word for condition in one_job for word in ("--where", condition)]
    said = lmsweep_here("best", "h200-profile", "--no-predict", "--explain", *where)
    assert f"\n{verdict}\nfirst: attention backward" in said
    assert "--explain is about one job" in refused_here("best", "h200-profile", "--no-predict", "--explain")
    without = refused_here("compare", "h100-devices", "h200-devices", "--across", "device_name", "--explain")
    assert "lmsweep run devices --profile --store h100-devices" in without


def step_of(**milliseconds: float) -> ProfiledStep:
    kernels = [kernels_of(one).assign(range=one, time=time / 1e3) for one, time in milliseconds.items()]
    return process(pd.concat(kernels, ignore_index=True), 0.0, np.random.default_rng(1))


def test_a_part_that_gains_in_one_step_what_it_loses_in_another_is_not_the_first_cause() -> None:
    short, long = step_of(attention=20, norm=5), step_of(attention=30, norm=8)
    other, back = step_of(attention=30, norm=5), step_of(attention=20, norm=8)
    frame = pd.concat([causes(short, long), causes(other, back)], ignore_index=True)
    found = Explanation(title="", frame=frame, verdicts=["slower", "faster"], keys=[], conditions={})
    _, first, rest = found.sentences()
    assert first == "first: norm forward: norm takes 60% longer, +6.00 ms"
    assert rest.startswith("rest: attention forward +0.00 ms, ")


def kernels_of(*operators: str, kernel: str = "") -> pd.DataFrame:
    same = {"range": "blocks.0.attention", "phase": "forward", "time": 1.0, "calls": 1}
    return pd.DataFrame([{**same, "operator": f"aten::{one}", "kernel": kernel or one} for one in operators])


def test_autotuned_numbers_in_names_are_no_change_of_kernel() -> None:
    one = kernels_of("mm", kernel="nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNT")
    other = kernels_of("mm", kernel="nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopA_TNN").assign(time=1.5)
    assert change_of(one, other) == "mm takes 50% longer"
    graphs = [kernels_of().reindex(columns=one.columns)] * 2
    for number in (3, 14):
        name = f"triton_poi_fused_add_mul_{number}"
        graphs[number > 3] = kernels_of("x", kernel=name).assign(operator=None, time=1.0 + number)
    assert change_of(*graphs) == "triton_poi_fused_add_mul takes 275% longer"


def test_an_operator_that_runs_sixty_times_as_often_is_not_new() -> None:
    once = kernels_of("mm")
    often = once.assign(time=60.0, calls=60)
    assert change_of(once, often) == "mm: 1 -> 60 calls"
    assert change_of(once.iloc[:0], once) == "mm new"


def test_a_step_that_failed_on_one_side_is_left_out(tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(stores()["h200-profile"], store)
    for path in (store / "measurements").iterdir():
        table = pq.read_table(path).to_pandas()
        failed = (table["attention"] == "sdpa") & (table["mode"] == "forward")
        table.loc[failed, "status"] = "unsupported"
        table.loc[failed, ["samples", "median", "reason"]] = [None, None, "not here"]
        table.to_parquet(path)
    found = explain(str(store), baseline={"attention": "naive"}, contrast={"attention": "sdpa"})
    assert found.verdicts == ["ambiguous"]


def test_run_profile_profiles_every_timed_step_beside_its_timing(tmp_path: Path) -> None:
    sweep = tmp_path / "two.yaml"
    sweep.write_text("name: two\ngrids:\n  - workloads: [timing]\n    fixed: {model: tiny, device: cpu}\n"
                     "  - workloads: [memory]\n    fixed: {model: tiny, device: cpu, batch_size: 2}\n")  # fmt: skip
    plain, profiled = (find_sweep(What(str(sweep), profile=on), Where())[0].trials for on in (False, True))
    assert [one.workloads for one in plain] == [("timing",), ("memory",)]
    assert [one.workloads for one in profiled] == [("timing", "profile"), ("memory",)]


@pytest.mark.slow
def test_the_page_explains_what_both_sides_profiled_and_has_no_such_section_without_profiles() -> None:
    with_profiles, without = (content_of(store).sections for store in ("h200-profile", "h200-best-2.7b"))
    (section,) = (one for one in with_profiles if one.id == "causes")
    assert [table.name for table in section.tables] == ["bf16", "bf16, sdpa", "bf16, compile block"]
    assert "\nfirst: backward: mul, div and 6 more -> 13 Triton kernels, -12.61 ms\n" in section.tables[2].caption
    assert "causes" not in [one.id for one in without]


# Steps of an H200 with one change on purpose each, and the same step twice: measured once, one process each
# (docs/lab/2026-11-25-explain.md)

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


@pytest.mark.slow
def test_another_kernel_is_one_line_and_those_that_the_compiler_wrote_are_counted() -> None:
    cause, change, explained = named_first("model_args.change", "none", "flash_attention")
    assert (cause, change) == ("blocks.*.attention backward", "cudnn -> flash") and explained > 0.9
    cause, change, _ = named_first("model_args.change", "written_gelu", "graph_breaks", compile="model")
    assert (cause, change) == ("backward", "6 Triton kernels -> 5 Triton kernels, embedding_dense_backward and 1 more")


@pytest.mark.slow
def test_the_same_step_twice_has_no_cause() -> None:
    found = explain(ONCE, AGAIN)
    assert len(found.verdicts) == 5 and not found.frame["named"].any()
    small = found.frame[found.frame["context_length"] == 512]
    assert small.loc[small["cause"] == "step", "difference"].abs().item() < 0.005 * small["baseline"].max()
    assert small["share"].isna().all(), "of a difference too small to be one"
