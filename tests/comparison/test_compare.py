"""Comparing: what is paired with what, what is refused, how often a verdict is wrong, and the gate."""

import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lmsweep import analysis
from lmsweep.analysis.comparison.claim import claim_of
from lmsweep.analysis.comparison.compare import Comparison, compare, select_sides
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import RequestError
from tests.support.command import answer_here, lmsweep_here, refused_here
from tests.support.made_up_results import H200, LAPTOP, Attempts, config, gpu, samples

A100 = replace(H200, device_name="NVIDIA A100-SXM4-80GB", device_memory=85_000_000_000)
STEADY = 1e-5
"""Half an interval, of 1, too small to matter."""


def of(attempts: Attempts, baseline: dict[str, str], contrast: dict[str, str], **options: Any) -> Comparison:
    sides = select_sides(analysis.load(attempts.store, pooled=False), baseline, contrast)
    return compare(sides[0], sides[1], between=sides[2], **options)


SIDES = {"compile": "none"}, {"compile": "block"}


def steps(tmp_path: Path, name: str, medians: dict[int, float], half_interval: float = STEADY) -> Attempts:
    attempts = Attempts(tmp_path / name)
    for context_length, median in medians.items():
        attempts.ok(gpu(context_length=context_length), {"step.time": samples(median, half_interval)})
    return attempts


def test_each_verdict(attempts: Attempts) -> None:
    cells = (
        (0.1, 0.12, "slower"),
        (0.1, 0.08, "faster"),
        (0.1, 0.1003, "same"),
        (0.1, 0.1018, "ambiguous"),
        (0.1, "oom", "failed"),
        ("oom", 0.1, "fixed"),
        ("oom", "timeout", "no result"),
    )
    for context, (*sides, _) in enumerate(cells, start=1):
        half = 0.0001 if context == 3 else 0.0005
        for compiled, median in zip(("none", "block"), sides, strict=True):
            trial = gpu(context_length=context, compile=compiled)
            if isinstance(median, str):
                attempts.failed(trial, median)
            else:
                for process in (0.999, 1, 1.001):
                    attempts.ok(trial, {"step.time": samples(process * median, half)})
    found = of(attempts, *SIDES).frame
    assert list(found["context_length"]) == [1, 2, 3, 4, 5, 6, 7]
    assert list(found["verdict"]) == [verdict for *_, verdict in cells]
    assert found["ratio"][0] == pytest.approx(1.2) and found["baseline"][0] == pytest.approx(0.1)
    assert found["ratio_low"][0] < 1.2 < found["ratio_high"][0]
    assert found["ratio"][4:7].isna().all()


def test_a_difference_counts_from_2_percent_on_a_gpu_and_5_on_a_cpu_or_from_what_is_asked(attempts: Attempts) -> None:
    for device, fingerprint in (("cuda", H200), ("cpu", LAPTOP)):
        for compiled, median in (("none", 0.1), ("block", 0.103)):
            trial = config(device=device, compile=compiled)
            for process in np.linspace(0.999, 1.001, 6):
                attempts.ok(trial, {"step.time": samples(process * median, STEADY)}, fingerprint=fingerprint)
    verdicts = of(attempts, *SIDES).frame.set_index("device_name")["verdict"].to_dict()
    assert verdicts == {"NVIDIA H200": "slower", LAPTOP.device_name: "same"}
    assert set(of(attempts, *SIDES, least=0.04).frame["verdict"]) == {"same"}
    assert set(of(attempts, *SIDES, least=0.01).frame["verdict"]) == {"slower"}


@pytest.mark.parametrize(("peaks", "verdict"), [((1000.0, 800.0), "less"), ((0.0, 0.0), "same")])
def test_bytes_that_never_vary_differ_where_they_differ(attempts: Attempts, peaks: Any, verdict: str) -> None:
    for compiled, peak in zip(("none", "block"), peaks, strict=True):
        attempts.ok(gpu(compile=compiled), {"step.peak": (peak,) * 3}, units={"step.peak": "B"})
    found = of(attempts, *SIDES, values=["step.peak"])
    assert list(found.frame["verdict"]) == [verdict] and found.unit == "B"


def test_samples_without_an_interval_decide_nothing(attempts: Attempts) -> None:
    drift = np.exp(np.linspace(0, 5, 10))
    for compiled, factor in (("none", 1.0), ("block", 0.5)):
        attempts.ok(gpu(compile=compiled), {"step.time": tuple(0.01 * factor * drift)})
    comparison = of(attempts, *SIDES)
    line = comparison.frame.iloc[0]
    assert line["ratio"] == pytest.approx(0.5) and line["verdict"] == "ambiguous"
    assert line[["baseline_low", "contrast_high", "ratio_low", "ratio_high"]].isna().all()
    shown = analysis.render(comparison.brief(), "text")
    assert "+100 % [?]" in shown and "No interval of 1 ratio: samples or processes differ too much" in shown


def test_one_cell_on_a_busy_host_does_not_widen_the_mean_over_machines_as_if_all_were() -> None:
    def low(kinds: list[str]) -> float:
        places = [frozenset({"one", "other"})] * len(kinds)
        frame = pd.DataFrame({"kind": kinds, "places": places}).assign(
            ratio=1.0, half=0.02, value="step.time", verdict="same", flags=[()] * len(kinds), itself=False, same=0.02,
        )  # fmt: skip
        return claim_of(frame, "one", "other", timed=True).interval[0]

    one, none, every = (low(kinds) for kinds in (["host", *["wall"] * 9], ["wall"] * 10, ["host"] * 10))
    assert every < 0.7 < one < none and low(["wall"] * 9 + ["host"]) == pytest.approx(one)


@pytest.mark.parametrize(
    ("fields", "environment", "option"),
    [
        ({"optimizer": "adamw_foreach", "context_length": 512}, {}, "context_length,optimizer"),
        ({"batch_size": 8}, {"driver_version": "1"}, "batch_size,driver_version"),
        ({}, {"measuring_version": 1}, "measuring_version"),
        ({}, {"torch_version": "2.12.0", "cuda_version": "13.0", "triton_version": "4"}, "torch_version"),
        ({}, {"device_name": "NVIDIA H100 PCIe", "device_memory": 80_000_000_000}, "device_name"),
    ],
)
def test_a_refusal_names_the_option_that_allows_the_difference(
    attempts: Attempts, fields: dict[str, Any], environment: dict[str, Any], option: str
) -> None:
    attempts.ok(gpu(), {"step.time": samples(0.1, STEADY)})
    other = replace(H200, **environment)
    attempts.ok(gpu(compile="block", **fields), {"step.time": samples(0.2, STEADY)}, fingerprint=other)
    with pytest.raises(RequestError, match=rf"with --across {option}\b(?!,)"):
        of(attempts, *SIDES)
    assert len(of(attempts, *SIDES, across=tuple(option.split(","))).frame) == 1


def test_sides_without_a_common_value_are_refused_with_what_each_has(attempts: Attempts) -> None:
    for compiled, value in (("none", "forward.time"), ("block", "backward.time")):
        attempts.ok(gpu(compile=compiled), {value: samples(0.1, STEADY)})
    with pytest.raises(RequestError, match=r"baseline has forward\.time, the contrast backward\.time; choose with --v"):
        of(attempts, *SIDES)


def test_a_side_of_several_results_is_refused_with_what_to_choose(attempts: Attempts) -> None:
    for precision, compiled in product(("fp32", "bf16"), ("none", "block")):
        attempts.ok(gpu(precision=precision, compile=compiled), {"step.time": samples(0.1, STEADY)})
    with pytest.raises(RequestError, match=r"the contrast has several results .* compile \(block, none\).*--contrast"):
        of(attempts, {"compile": "none", "precision": "fp32"}, {"precision": "bf16"})
    with pytest.raises(RequestError, match="the same"):
        of(attempts, {"compile": "none"}, {"compile": "none"})
    with pytest.raises(RequestError, match=r"step\.mfu: this value is derived"):
        of(attempts, *SIDES, values=["step.mfu"])


def test_two_stores_of_one_device_each_are_compared_and_what_else_differs_is_printed(tmp_path: Path) -> None:
    newer = replace(H200, torch_version="2.12.0", triton_version="4")
    for name, fingerprint in (("before", A100), ("after", newer)):
        attempts = Attempts(tmp_path / name)
        attempts.ok(gpu(), {"step.time": samples(0.1, STEADY)}, fingerprint=fingerprint)
    shown = lmsweep_here("compare", tmp_path / "before", tmp_path / "after")
    said = re.search(r"The sides differ in (.*)", " ".join(shown.split()))
    assert said and "device_name (NVIDIA A100-SXM4-80GB against NVIDIA H200)" in said[1] and "2.12.0)" in said[1]


def test_the_gate_exits_with_1_where_something_became_slower_or_no_longer_runs(tmp_path: Path) -> None:
    steps(tmp_path, "before", {256: 0.1, 512: 0.3})
    steps(tmp_path, "after", {256: 0.12, 512: 0.3, 1024: 0.3})
    before, after = tmp_path / "before", tmp_path / "after"
    done = answer_here("compare", before, after, "--fail-on", "slower", "--min-effect", "2%")
    assert done.returncode == 1
    assert done.stdout.startswith(f"{after} against {before}: speed-up of step.time, 95 % interval\n")
    assert "2 combinations: 1 slower, 1 same. Differences count from 2 %; `same` is within 2 %." in done.stdout
    assert "Unpaired combinations: 0 in the baseline, 1 in the contrast." in done.stdout
    done = answer_here("compare", after, before, "--fail-on", "slower")
    assert done.returncode == 0, "one was not measured again, which alone is not slower"
    assert "none of 3 combinations; 1 no result: not failed, --fail-on 'slower,no result' fails" in done.stderr
    assert answer_here("compare", after, before, "--fail-on", "slower,no result").returncode == 1
    assert answer_here("compare", before, after, "--fail-on", "slower", "--min-effect", "30%").returncode == 0
    Attempts(tmp_path / "fails").failed(gpu(), "oom")
    done = answer_here("compare", before, tmp_path / "fails", "--fail-on", "slower")
    assert done.returncode == 1 and "1 failed" in done.stdout, "something no longer runs"


def test_a_gate_refuses_a_store_beside_its_copy_and_judges_what_was_measured_since(tmp_path: Path) -> None:
    steps(tmp_path, "before", {256: 0.1}, 0.01).failed(gpu(context_length=1024), "oom")
    shutil.copytree(tmp_path / "before", tmp_path / "copy")
    sides = ("compare", tmp_path / "before", tmp_path / "copy")
    done = answer_here(*sides, "--fail-on", "slower")
    assert done.returncode == 2 and "2 combinations; 1 with the same measurements on both sides" in done.stdout
    assert "--fail-on: both sides are the same measurements" in done.stderr and "`lmsweep run --fresh`" in done.stderr
    for name, median in (("before", 0.3), ("copy", 0.4)):
        steps(tmp_path, name, {512: median})
    done = answer_here(*sides, "--fail-on", "slower")
    assert done.returncode == 1 and "--fail-on slower: 1 slower of 3 combinations" in done.stderr


def test_a_gate_says_what_it_judged_and_which_undecided_combinations_passed(tmp_path: Path) -> None:
    for name, median in (("before", 0.1), ("after", 0.103)):
        steps(tmp_path, name, {128: median, 256: median}, 0.02)
        steps(tmp_path, name, {512: 0.3})
    sides = ("compare", tmp_path / "before", tmp_path / "after")
    done = answer_here(*sides, "--fail-on", "slower")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "--fail-on slower: none of 3 combinations; 2 ambiguous: not failed, --fail-on 'slower,ambiguous' fails on them"
    ]
    for strict in (["slower,ambiguous"], ["slower", "--fail-on", "ambiguous"]):
        done = answer_here(*sides, "--fail-on", *strict, "--format", "csv")
        assert done.returncode == 1
        assert done.stderr.splitlines() == ["--fail-on slower,ambiguous: 2 ambiguous of 3 combinations"]
        assert "fail-on" not in done.stdout, "a table is often written to a file"
    assert "--fail-on ambigous: no such verdict" in refused_here(*sides, "--fail-on", "slower,ambigous")


def test_the_verdict_has_the_flags_of_both_sides(attempts: Attempts) -> None:
    attempts.ok(gpu(batch_size=4), {"step.time": samples(0.1, STEADY)})
    attempts.ok(gpu(batch_size=8), {"step.time": samples(0.2, STEADY)}, flags=(Flag.HOST_BOUND,))
    words = ("compare", attempts.store.location, "--baseline", "batch_size=4", "--contrast", "batch_size=8")
    said, more = (answer_here(*words, *options).stdout for options in ((), ("-v",)))
    assert "  slower" in said and "\nhost_bound (1): The CPU launched work too slowly for the GPU.\n" in said
    assert "slower (a)" in more and "(a) host_bound: " in more


def test_the_doctor_says_what_a_flag_means() -> None:
    assert Flag.HOST_BOUND.advice in " ".join(answer_here("doctor", "host_bound").stdout.split())
    assert "host_bund is not a flag; did you mean host_bound?" in refused_here("doctor", "host_bund")
    said = answer_here("doctor", "FLAG").stderr
    assert all(flag in said for flag in Flag), "what there is"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--baseline FIELD=VALUE and --contrast FIELD=VALUE, or a second store"),
        (["--baseline", "compile=none", "--contrast", "compile=model"], "--contrast compile=model: the store has no"),
        (["--baseline", "compil=none", "--contrast", "compile=block"], "--baseline compil: no such column; did you me"),
    ],
)
def test_a_wrong_comparison_is_refused(attempts: Attempts, arguments: list[str], message: str) -> None:
    attempts.ok(gpu(), {"step.time": samples(0.1, STEADY)})
    assert message in refused_here("compare", attempts.store.location, *arguments)


def test_a_store_that_ships_with_lmsweep_is_read_by_its_name_unless_there_is_another(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(analysis.load("h100-devices")["device_name"]) == {"NVIDIA H100 80GB HBM3"}
    attempts.ok(gpu(), {"step.time": samples(1, STEADY)})
    store = Path(attempts.store.location)
    shutil.copytree(store, store.parent / "here" / "h100-devices")
    monkeypatch.chdir(store.parent / "here")
    assert len(analysis.load("h100-devices")) == 1


def test_other_numbers_of_steps_are_compared_and_named_unless_too_few_warm_up_or_vary_on_a_side(
    attempts: Attempts,
) -> None:
    def two(baseline: dict[str, int], contrast: dict[str, int]) -> None:
        attempts.ok(gpu(**baseline), {"step.time": samples(0.1, STEADY)})
        attempts.ok(gpu(compile="block", **contrast), {"step.time": samples(0.05, STEADY)})

    two({"warmup_steps": 5, "measure_steps": 20}, {"warmup_steps": 2, "measure_steps": 10})
    found = of(attempts, *SIDES)
    assert list(found.frame["verdict"]) == ["faster"]
    assert found.warnings[0] == ("The sides ran other numbers of steps: warmup_steps 5 and 2, measure_steps 20 and 10.")
    two({"warmup_steps": 0, "batch_size": 8}, {"warmup_steps": 5, "batch_size": 8})
    with pytest.raises(RequestError, match="--across warmup_steps"):
        of(attempts, *({"compile": one, "batch_size": "8"} for one in ("none", "block")))
