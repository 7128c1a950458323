"""Tables by name: each as it is printed, in every format, and held against numbers that are known otherwise.

To accept a change: UPDATE_GOLDEN=1 pytest tests/presets/test_presets.py, and read the difference. The store
tests/support/stores/cpu was made by `lmsweep run tests/support/stores/cpu.yaml --store FOLDER --no-predict` and `python
benchmarks/keep.py tests/support/stores/cpu FOLDER`; another run gives other numbers, and other files in
tests/support/golden/presets.
"""

import shutil
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from lmsweep import analysis
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.presets import make_preset, presets
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.render import FORMATS
from lmsweep.orchestrator.commands.options import TABLE_FORMATS
from lmsweep.orchestrator.features.trial.trial_table import describe_samples
from lmsweep.trials.analytic.prices import parse_prices
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.workloads import workloads
from tests.support.command import ROOT, answer_here
from tests.support.golden_files import check_golden
from tests.support.made_up_results import H200, Attempts, config, gpu, samples

GOLDEN = ROOT / "tests" / "support" / "golden" / "presets"
SUFFIXES = {"text": "txt", "markdown": "md", "latex": "tex", "typst": "typ", "csv": "csv", "html": "html"}
BF16 = replace(H200, autocast_dtype="bfloat16")

STORES = ROOT / "tests" / "support" / "stores"
CPU, RANKS, RESIDUALS, UPGRADE = (STORES / name for name in ("cpu", "ranks", "residuals", "upgrade"))
END_TO_END, BEST, ATTENTION, TWO_GPUS = (
    ROOT / "analysis/reference" / name
    for name in ("h200-end-to-end", "h200-best-2.7b", "h200-attention", "h200-x2-ddp")
)
_FIRST = {"context_length": "32", "precision": "fp32"}
OF_ONE_TRIAL = {"kernels-by-range", "kernels-all", "operators", "allocations"}
SOURCES: dict[str, tuple[Path, dict[str, str]]] = {
    **{name: (CPU, _FIRST if name in OF_ONE_TRIAL else {}) for name in presets()},
    "warm-up": (CPU, {"context_length": "64", "precision": "fp32", "compile": "none"}),
    "warm-up-series": (END_TO_END, {"model": "small", "compile": "none"}),
    "compile-speed": (BEST, {}),
    "attention": (ATTENTION, {"d_model": "64"}),
    "attention-compile": (ATTENTION, {}),
    "upgrade": (UPGRADE, {}),
    "residuals": (RESIDUALS, {}),
    "ddp-stages": (RANKS, {"ddp": "fsdp"}),
    "ddp-memory": (TWO_GPUS, {"model": "small,xl", "ddp": "flat,torch,zero1"}),
    **dict.fromkeys(("parameters", "roofline", "scaling"), (END_TO_END, {})),
    **dict.fromkeys(("precision-speed", "break-even", "cost"), (END_TO_END, {"model": "small,2.7b"})),
    **dict.fromkeys(("ddp-traffic", "collectives", "scaling-limits", "sharding"), (RANKS, {})),
}
"""Preset -> the store and the conditions of its golden files."""

EVERY_FORMAT = ("compile-speed", "attention", "cost")
"""One preset of each kind of table: ratios against a baseline, a pivot with failed cells, a listing."""


@cache
def results(store: Path) -> Results:
    return Results(str(store))


def preset(name: str, **where: str) -> Table | Listing:
    store, _ = SOURCES[name]
    chosen = Results(str(store), where, parse_prices(["H200=3.5"]) if name == "cost" else ())
    chosen.everything = results(store).everything  # read once for all
    table = presets()[name].make(chosen)
    if isinstance(table, Listing):  # a step has hundreds of kernels
        return replace(table, frame=table.frame.head(30))
    return table


def test_golden_files_are_the_text_of_each_preset_and_every_format_of_each_kind_of_table() -> None:
    assert set(SOURCES) == set(presets()), "a name is misspelt"
    # JSON has what CSV has: tests/tables/test_terminal.py
    assert {*SUFFIXES, "json"} == set(FORMATS) == set(TABLE_FORMATS)
    texts = {f"{name}.txt" for name in presets()}
    formats = {f"{name}.{suffix}" for name in EVERY_FORMAT for suffix in SUFFIXES.values()}
    assert {path.name for path in GOLDEN.iterdir()} == texts | formats


@pytest.mark.parametrize("name", SOURCES)
def test_a_preset_is_printed_as_its_golden_file(name: str) -> None:
    table = preset(name, **SOURCES[name][1])
    for each in SUFFIXES if name in EVERY_FORMAT else ["text"]:
        check_golden(analysis.render(table, each), GOLDEN / f"{name}.{SUFFIXES[each]}")


@pytest.mark.slow
def test_no_preset_stumbles_over_a_trial_that_was_predicted_not_to_fit(tmp_path: Path) -> None:
    store = shutil.copytree(CPU, tmp_path / "store")
    attempts = Attempts(store)
    for name, workload in workloads().items():
        ranks = {"world_size": 2, "ddp": "naive"} if workload.has_ranks else {}
        attempts.failed(gpu("xl", **ranks), Status.PREDICTED_OOM, workload=name)
    results = Results(str(store))
    answered = set()
    for name in sorted(set(SOURCES) - {"upgrade"}):  # which compares two sides
        with suppress(RequestError):
            presets()[name].make(results)
            answered.add(name)
    assert {"warm-up", "warm-up-series", "end-to-end", "memory", "ddp", "attention", "dtypes"} <= answered


def test_a_preset_of_trials_that_all_failed_shows_how(attempts: Attempts) -> None:
    for compiled in ("none", "block"):
        attempts.failed(config("medium", device="cuda", compile=compiled), "oom", workload="attention")
    for name in ("attention", "attention-compile"):
        table = make_preset(name, attempts.store)
        assert set(table.cells["status"]) == {"oom"} and "speed_up" not in table.units


def test_parts_of_a_step_come_from_the_mode_that_measures_them_alone(attempts: Attempts) -> None:
    attempts.ok(gpu(mode="train_forward"), {"forward.time": samples(0.010, 1e-5), "step.time": samples(0.011, 1e-5)})
    pair = {"forward.time": samples(0.012, 1e-5), "backward.time": samples(0.020, 1e-5)}
    attempts.ok(gpu(mode="forward_backward"), pair | {"step.time": samples(0.032, 1e-5)})
    whole = {"forward.time": samples(0.013, 1e-5), "backward.time": samples(0.021, 1e-5)}
    whole |= {"optimizer.time": samples(0.005, 1e-5), "step.time": samples(0.039, 1e-5)}
    attempts.ok(gpu(), whole, flags=(Flag.HOST_BOUND,))
    attempts.failed(gpu("2.7b"), "oom")
    attempts.ok(gpu("2.7b", mode="train_forward"), {"forward.time": samples(0.5, 1e-4)})
    table = make_preset("end-to-end", attempts.store)
    small = table.wide("median").loc[("small", 256)].to_dict()
    wanted = {"forward": 0.010, "backward": 0.020, "forward_backward": 0.032, "optimizer": 0.005, "step": 0.039}
    assert {key[-1].removesuffix(".time"): value for key, value in small.items()} == pytest.approx(wanted)
    large = {key[-1].removesuffix(".time"): word for key, word in table.wide("status", "-").loc[("2.7b", 256)].items()}
    assert large == {"forward": "ok", "backward": "oom", "forward_backward": "-", "optimizer": "oom", "step": "oom"}


@pytest.mark.parametrize("name", ["ddp", "ddp-memory"])
def test_gloo_and_nccl_are_never_in_one_column(name: str, tmp_path: Path) -> None:
    for number, store in enumerate((CPU, TWO_GPUS)):
        for path in (store / "measurements").glob("*.parquet"):
            (tmp_path / "measurements").mkdir(exist_ok=True)
            shutil.copy(path, tmp_path / "measurements" / f"{number}-{path.name}")
    table = make_preset(name, str(tmp_path))
    assert table.wide("median").columns.names[:2] == ["device", "device_name"]
    devices = results(tmp_path).of("ddp").groupby("device")
    libraries = {device: set(part["collective_library"]) for device, part in devices}
    assert libraries == {"cpu": {"gloo"}, "cuda": {"nccl 2.28.9"}}


def test_a_speed_up_is_the_ratio_of_medians_and_backward_with_optimizer_summed_by_iteration(attempts: Attempts) -> None:
    to_and_fro = [5, 0, 10, 1, 9, 2, 8, 3, 7, 4, 6]
    up, down = tuple(np.linspace(0.02, 0.04, 11)[to_and_fro]), tuple(np.linspace(0.009, 0.003, 11)[to_and_fro])
    for compiled, factor in (("none", 1.0), ("block", 0.5)):
        times = {"backward.time": tuple(factor * x for x in up), "optimizer.time": tuple(factor * x for x in down)}
        attempts.ok(gpu(compile=compiled), times | {"step.time": samples(0.1 * factor, 1e-3)})
    table = make_preset("compile-speed", attempts.store)
    assert table.wide("median").loc[("small", 256, "step"), ("block", "speed_up")] == pytest.approx(2.0)
    # Medians are 0.03 and 0.006.
    sums = [one + other for one, other in zip(up, down, strict=True)]
    assert table.wide("median").loc[("small", 256, "backward_optimizer"), ("none", "time")] == pytest.approx(0.036)
    assert table.wide("low").loc[("small", 256, "backward_optimizer"), ("none", "time")] < describe_samples(sums)[1]
    assert "2.00 [1.8" in analysis.render(table, "text")


def test_reduced_precision_is_shown_as_a_change_in_percent(attempts: Attempts) -> None:
    """From bf16 where there is no fp32; that from fp32 is in the golden file."""
    for precision, seconds in (("bf16", 0.1), ("fp8_tensorwise", 0.074)):
        attempts.ok(gpu(precision=precision), {"step.time": samples(seconds, 1e-6)}, fingerprint=BF16)
    text = analysis.render(make_preset("precision-speed", attempts.store), "text")
    assert "-26 [-3" in text, "74 / 100 less 1; 0.74 of two processes that vary by 2 %, with 4 degrees of freedom"


def test_a_ratio_without_a_baseline_or_a_second_reading_is_refused(attempts: Attempts) -> None:
    attempts.ok(gpu(precision="bf16_pure"), {"step.time": samples(0.074, 1e-6)}, fingerprint=BF16)
    with pytest.raises(RequestError, match="the same precision, bf16_pure"):
        make_preset("precision-speed", attempts.store)
    attempts.ok(gpu(precision="fp16"), {"step.time": samples(0.074, 1e-6)}, fingerprint=BF16)
    with pytest.raises(RequestError, match="no result with precision fp32 or tf32 or bf16"):
        make_preset("precision-speed", attempts.store)


def test_the_command_names_its_presets_and_prints_one(tmp_path: Path) -> None:
    listed = answer_here("table", "--list-presets")
    lines = listed.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(presets())
    assert lines[0] == "How long does a step take?"
    done = answer_here("table", END_TO_END, "--preset", "cost", "--price", "H200=3.5", "--where", "model=small,2.7b")
    assert done.stdout.rstrip() == (GOLDEN / "cost.txt").read_text().rstrip()
    refused = answer_here("table", END_TO_END, "--preset", "csot")
    assert refused.returncode == 2 and refused.stderr.endswith("did you mean cost?\n")
    unread = answer_here("table", END_TO_END, "--price", "H200=3.5")
    assert unread.returncode == 2 and "--price is for --preset cost only" in unread.stderr
    lacking = answer_here("table", END_TO_END, "--preset", "ddp")
    assert lacking.returncode == 2 and "no such results of the workload ddp" in lacking.stderr


def test_the_series_of_trials_that_differ_in_the_optimizer_have_its_name_and_its_time() -> None:
    frame = make_preset("warm-up-series", "h100-best-grid").frame
    assert frame["optimizer"].nunique() > 1 and frame["optimizer.time"].gt(0).any()
