"""Tables: the content of each cell, and whole tables as they are printed."""

import csv
import io
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

from lmsweep import analysis
from lmsweep.analysis.comparison.compare import compare, select_sides
from lmsweep.analysis.tables.number_format import interval_texts
from lmsweep.trials.results.environment import absent
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.statistics.variation import PRIORS
from tests.support.command import answer_here, lmsweep_here
from tests.support.golden_files import check_golden, same
from tests.support.made_up_results import H200, LAPTOP, Attempts, config, gpu, samples

GOLDEN = Path(__file__).parents[1] / "support" / "golden"
BF16 = replace(H200, autocast_dtype="bfloat16")

WALL = stdtrit(PRIORS["wall_waits"].freedom, 0.975) * PRIORS["wall_waits"].scale
"""How far, of 1, other processes are taken to lie: on a logarithmic scale."""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of two sizes on a GPU and on a laptop; every kind of cell there is."""
    attempts = Attempts(tmp_path_factory.mktemp("machines") / "results")

    def both(forward: float, step: float, half: float) -> dict[str, tuple[float, ...] | None]:
        return {"forward.time": samples(forward, half / 2), "step.time": samples(step, half)}

    attempts.ok(gpu("small"), both(0.0123, 0.045678, 0.0004), flags=(Flag.HOST_BOUND,))
    attempts.ok(gpu("small", compile="block"), {**both(0.004, 0.0131, 0.00015), "trial.compile_time": (12.345,)})
    attempts.ok(gpu("small", precision="bf16"), both(0.0151, 0.05, 0.0009), flags=(Flag.HOST_BOUND,), fingerprint=BF16)
    attempts.ok(gpu("small", context_length=1024), both(0.03, 0.1, 0.02))
    attempts.ok(gpu("2.7b"), both(0.15, 0.45, 0.001))
    attempts.ok(gpu("2.7b", precision="bf16"), {"forward.time": (0.061,), "step.time": (0.208,)}, fingerprint=BF16)
    attempts.failed(gpu("2.7b", context_length=1024), "oom")
    attempts.failed(gpu("2.7b", compile="block"), "timeout")
    attempts.failed(gpu("2.7b", context_length=1024, precision="bf16"), "predicted_oom", fingerprint=BF16)
    attempts.ok(config("small"), both(0.9, 3.1, 0.2), fingerprint=LAPTOP)
    attempts.failed(config("small", precision="tf32"), "unsupported", fingerprint=LAPTOP)
    attempts.ok(config("small", precision="bf16"), {"step.time": None}, fingerprint=LAPTOP, reason="its clock stood")
    return attempts.store.location


@pytest.fixture(scope="module")
def hardware(machines: str) -> pd.DataFrame:
    return analysis.load(machines)


def test_golden_files_hold_numbers_to_ten_digits_and_text_to_the_letter() -> None:
    line = "0.0123,ok,1.0716652183740224,-2.5e-05"
    assert same(line, "0.0123,ok,1.0716652183740225,-2.5e-05")
    assert not same(line, "0.0123,ok,1.0716652193740224,-2.5e-05")
    assert not same(line, "0.0123,oom,1.0716652183740224,-2.5e-05")
    assert not same("12.3 [12.1, 12.5]", "12.3 [12.1, 12.6]") and not same("12.3", "12.30 ")


def pivot(frame: pd.DataFrame, rows: str, cols: str, values: str, **where: str) -> analysis.Table:
    return analysis.pivot(frame, rows=rows.split(), cols=cols.split(), values=values.split(), where=where)


def test_a_table_without_options_shows_every_result_of_the_store(hardware: pd.DataFrame) -> None:
    table = analysis.pivot(hardware)
    assert table.rows == ["model", "context_length", "device_name", "torch_version"]
    assert (table.cols, [*table.units]) == (["precision", "compile"], ["step.time"])
    assert len(table.cells) == 12
    check_golden(analysis.render(table, "text"), GOLDEN / "default.txt")


def test_the_default_layout_completes_what_is_given(hardware: pd.DataFrame) -> None:
    rows = ["model", "context_length", "device_name", "torch_version"]
    assert analysis.pivot(hardware, rows=rows).cols == ["precision", "compile"]
    table = analysis.pivot(hardware, cols=["model"], values=["forward.time"])
    assert table.rows == ["context_length", "device_name", "torch_version", "precision", "compile"]
    assert (table.cols, [*table.units]) == (["model"], ["forward.time"])
    table = analysis.pivot(hardware, where={"device": "cuda"})
    assert table.rows == ["model", "context_length"] and table.wide("status").shape == (4, 3)


def test_the_low_end_of_a_speed_is_the_high_end_of_its_time(hardware: pd.DataFrame) -> None:
    table = pivot(hardware, "model", "device_name", "step.tokens_per_second step.tflops", context_length="256",
                  precision="fp32", compile="none")  # fmt: skip
    cell = (("2.7b",), ("NVIDIA H200", "step.tokens_per_second"))
    assert table.wide("median").loc[cell] == pytest.approx(1024 / 0.45)
    half = np.hypot(np.log(0.451 / 0.45), WALL)
    ends = (table.wide("low").loc[cell], table.wide("high").loc[cell])
    assert ends == pytest.approx((1024 / 0.45 * np.exp(-half), 1024 / 0.45 * np.exp(half)), rel=1e-4)
    assert table.units == {"step.tokens_per_second": "tokens/s", "step.tflops": "TFLOP/s"}


def test_failures_alone_have_a_table_and_those_of_another_workload_are_none_of_a_value(attempts: Attempts) -> None:
    attempts.failed(config(), "oom")
    attempts.failed(config(), "error", workload="noop")
    table = analysis.pivot(analysis.load(attempts.store))
    assert table.rows[-1] == "workload" and [*table.units] == ["step.time"]
    text = analysis.render(table, "text")
    assert "oom" in text and "error" in text
    attempts.ok(config(), {"step.time": samples(1, 0.1)})
    table = pivot(analysis.load(attempts.store), "model", "", "step.time")
    assert table.wide("status").to_numpy().tolist() == [["ok"]], "the failure of another workload is none of this value"


def test_the_usual_table_of_ceilings_has_both_and_one_without_them_names_them(attempts: Attempts) -> None:
    rates = {"copy.bandwidth": (4e12,), "copy.time": (1.0,), "matmul.flops_rate": (4e13,), "matmul.time": (1.0,)}
    attempts.ok(config(), rates, workload="ceiling", units={"copy.bandwidth": "B/s", "matmul.flops_rate": "FLOP/s"})
    alone = lmsweep_here("table", attempts.store.location)
    assert "matmul.flops_rate (TFLOP/s)" in alone and "copy.bandwidth (TB/s)" in alone
    attempts.ok(config(), {"step.time": samples(1, 0.1)})
    done = answer_here("table", attempts.store.location)
    assert "FLOP/s" not in done.stdout and "not in this table: ceiling; --list-presets" in done.stderr


def test_a_workload_that_this_version_does_not_know_is_a_row_like_any_other(attempts: Attempts) -> None:
    attempts.ok(config(), {"step.time": samples(1, 0.1)})
    (known,) = attempts.ok(config(context_length=512), {"step.time": samples(2, 0.1)})
    attempts.store.keep([replace(known, workload="serving", attempt_id="a" * 16, measurement_id="b" * 16)])
    text = lmsweep_here("table", attempts.store.location)
    assert "serving" in text and "timing" in text and "mode train_step" in text
    assert "serving" in lmsweep_here("table", attempts.store.location, "--rows", "workload,context_length")


def test_results_without_a_model_are_distinguished_by_the_fields_that_they_read_and_nothing_else() -> None:
    table = analysis.pivot(analysis.load("h200-x2-fsdp"), where={"workload": "collectives"})
    assert (table.rows, table.cols) == (["collective", "message_bytes"], [])
    assert [*table.units] == ["collective.algorithm_bandwidth"]
    assert table.conditions["world_size"] == "2"
    assert not {"attention", "batch_size", "vocab_size"} & table.conditions.keys()


def test_rows_and_columns_that_are_given_twice_are_joined(machines: str) -> None:
    once = lmsweep_here("table", machines, "--rows", "model,context_length", "--cols", "precision,compile,device_name")
    again = lmsweep_here("table", machines, "--rows", "model", "--rows", "context_length", "--cols", "precision",
                         "--cols", "compile,device_name")  # fmt: skip
    assert once == again and "1024" in once


def test_what_asked_for_a_device_that_was_not_there_is_left_out_of_tables(attempts: Attempts) -> None:
    nowhere = replace(LAPTOP, device_name=absent("cuda"))
    for context_length in (128, 256):
        trial = config(device="cuda", context_length=context_length)
        attempts.failed(trial, "unsupported", fingerprint=nowhere)
    where = attempts.store.location
    done = answer_here("table", where)
    assert done.returncode == 2 and "2 results are for a device that was missing" in done.stderr
    assert "no others; `lmsweep doctor`" in done.stderr
    attempts.ok(config(), {"step.time": samples(1, 0.1)}, fingerprint=LAPTOP)
    attempts.failed(config(precision="tf32"), "unsupported", fingerprint=LAPTOP)
    for arguments in ([], ["--preset", "end-to-end"], ["--rows", "model,precision"]):
        done = answer_here("table", where, *arguments)
        assert "2 results are for a device that was missing (no cuda device)" in done.stderr
        assert "no cuda device" not in done.stdout and re.search("unsupported$", done.stdout, flags=re.MULTILINE)
    assert "no cuda device" in lmsweep_here("table", where, "--where", "device_name=no cuda device")


def test_an_unknown_rate_says_why(hardware: pd.DataFrame) -> None:
    text = analysis.render(pivot(hardware, "model", "precision", "step.mfu", device_name=LAPTOP.device_name), "text")
    assert "mfu: the peak of this device in this arithmetic is unknown" in text


def test_two_results_in_one_cell_are_refused_with_the_columns_in_which_they_differ(hardware: pd.DataFrame) -> None:
    with pytest.raises(RequestError) as refusal:
        pivot(hardware, "model", "precision", "step.time", device_name="NVIDIA H200")
    message = str(refusal.value)
    assert "the cell of model small, precision fp32, value step.time would hold 3 results" in message
    assert "differ in context_length (256, 1024), compile (none, block)" in message
    assert "Add context_length and compile to --rows or --cols" in message
    assert "--where 'context_length=256' --where 'compile=none'" in message
    named = r"differ in model \(small, 2.7b\), device \(cpu, cuda\), device_name(?!.*d_model).*Add model and dev"
    with pytest.raises(RequestError, match=named):
        pivot(hardware, "precision", "context_length", "step.time", compile="none")


def test_devices_environments_and_shapes_that_another_key_keeps_apart_are_named(attempts: Attempts) -> None:
    attempts.ok(config("small", device="cuda"), {"step.time": samples(1, 0.1)})
    other = replace(H200, device_name="NVIDIA L4", driver_version="560")
    attempts.ok(config("medium", device="cuda"), {"step.time": samples(2, 0.1)}, fingerprint=other)
    frame = analysis.load(attempts.store)
    assert analysis.pivot(frame).rows == ["model", "context_length", "device_name"]
    table = pivot(frame, "model", "precision", "step.time")
    assert table.differing == {"device_name": "NVIDIA H200, NVIDIA L4"}
    for output_format in ("text", "latex"):
        said = analysis.render(table, output_format)
        assert "cells differ in device" in said and "H200, NVIDIA L4)" in said
    assert "cells differ" not in analysis.render(pivot(frame, "device_name", "", "step.time", model="small"), "text")
    for context_length, num_heads in ((512, 6), (1024, 16)):
        trial = replace(gpu(context_length=context_length), num_heads=num_heads, model=None)
        attempts.ok(trial, {"step.time": samples(1, 0.1)}, fingerprint=replace(H200, driver_version="580"))
    rows = analysis.pivot(analysis.load(attempts.store).query("device_name == 'NVIDIA H200'")).rows
    assert rows == ["model", "context_length", "num_heads", "driver_version"]


def test_a_step_has_the_name_of_what_its_mode_runs(attempts: Attempts) -> None:
    attempts.ok(config(mode="forward_backward"), {"step.time": samples(1, 0.1), "forward.time": samples(0.4, 0.1)})
    frame = analysis.load(attempts.store)
    first, second = analysis.render(pivot(frame, "model", "precision", "step.time"), "text").splitlines()[:2]
    assert first == "step.time (s), mode forward_backward: median [95 % interval]" and "mode" not in second
    first = analysis.render(pivot(frame, "model", "precision", "forward.time"), "text").splitlines()[0]
    assert first == "forward.time (ms): median [95 % interval]"
    attempts.ok(config(), {"step.time": samples(2, 0.1)})
    assert analysis.pivot(analysis.load(attempts.store)).rows[-1] == "mode"


def compared(attempts: Attempts, **sides: tuple[str, str]) -> pd.DataFrame:
    """The ratios of the results with the second value of a field to those with the first."""
    values = [{name: pair[side] for name, pair in sides.items()} for side in (0, 1)]
    baseline, contrast, between = select_sides(analysis.load(attempts.store, pooled=False), *values)
    return compare(baseline, contrast, between=between).frame


def test_on_a_cpu_processes_that_other_programs_disturbed_count_only_where_no_other_did(attempts: Attempts) -> None:
    """Among 54 ms and 1.3 s a median of medians is neither, and its interval holds no time of a quiet machine."""
    for device, length in product(("cpu", "cuda"), (128, 256)):
        trial = config(device=device, context_length=length)  # type: ignore[arg-type]
        attempts.ok(trial, {"step.time": samples(1.3, 0.01)}, flags=(Flag.BUSY_HOST,))
        if length == 128:
            attempts.ok(trial, {"step.time": samples(0.054, 0.001)})
    table = pivot(analysis.load(attempts.store), "context_length", "device", "step.time")
    assert table.wide("processes").to_numpy().tolist() == [[1, 2], [1, 1]]
    assert table.wide("median").iloc[:, 0].to_list() == pytest.approx([0.054, 1.3])
    found = compared(attempts, context_length=("256", "128")).set_index("device")
    assert found.loc["cpu", "contrast"] == pytest.approx(0.054) and found.loc["cpu", "processes"] == "1, 1"


def test_a_table_says_how_many_processes_its_cells_are_of_and_how_far_they_lie_apart(attempts: Attempts) -> None:
    attempts.ok(config(), {"step.time": samples(1, 0.1)})
    alone = lmsweep_here("table", attempts.store.location)
    assert "Each number is of one process; its interval includes how far others would differ, about 3 %." in alone
    attempts.ok(config(), {"step.time": samples(1.1, 0.1)})
    attempts.ok(config(context_length=512), {"step.time": samples(1, 0.1)})
    table = pivot(analysis.load(attempts.store), "context_length", "", "step.time")
    assert table.wide("processes").iloc[:, 0].to_list() == [2, 1]
    assert table.wide("spread").iloc[0, 0] == pytest.approx(0.1 / 1.05)
    with pytest.raises(RequestError, match="holds 2 attempts of one measurement"):
        pivot(analysis.load(attempts.store, pooled=False), "context_length", "", "step.time")
    mixed = lmsweep_here("table", attempts.store.location)
    assert "Each number is of 1 or 2 processes, whose medians differ by up to 9.5 %." in mixed
    assert "Some are of one process; its interval" in mixed


def test_a_table_and_a_comparison_of_one_store_have_the_same_numbers(attempts: Attempts) -> None:
    for compiled, medians in (("none", (0.1, 0.09, 0.11)), ("block", (0.05, 0.044, 0.043))):
        for median in medians:
            attempts.ok(config(compile=compiled), {"step.time": samples(median, 1e-4)})
        attempts.failed(config(compile=compiled), "timeout")
    table = pivot(analysis.load(attempts.store), "model", "compile", "step.time")
    (row,) = compared(attempts, compile=("none", "block")).itertuples()
    for side, compiled in (("baseline", "none"), ("contrast", "block")):
        printed = [getattr(row, f"{side}{end}") for end in ("", "_low", "_high")]
        shown = [table.wide(name)[(compiled, "step.time")].item() for name in ("median", "low", "high")]
        assert printed == shown
    assert row.contrast == pytest.approx(0.04525) and row.processes == "3 (20 %), 3 (15 %)"


def test_rows_and_columns_are_in_natural_order(attempts: Attempts) -> None:
    for model in ("10b-2026", "medium", "tiny", "small"):
        for context_length, precision in ((1024, "bf16"), (128, "fp32"), (65536, "tf32")):
            attempts.ok(config(model, context_length=context_length, precision=precision), {"step.time": (1.0,)})
    for version in ("2.9.1", "2.11.0", "2.13.0+cpu"):
        attempts.ok(config(), {"forward.time": (1.0,)}, fingerprint=replace(LAPTOP, torch_version=version))
    frame = analysis.load(attempts.store)
    table = pivot(frame, "model context_length", "precision", "step.time").wide("median")
    assert list(dict.fromkeys(table.index.get_level_values("model"))) == ["tiny", "small", "medium", "10b-2026"]
    assert list(table.index.get_level_values("context_length")) == [128, 1024, 65536] * 4
    assert list(table.columns.get_level_values("precision")) == ["fp32", "tf32", "bf16"]
    versions = pivot(frame, "torch_version", "", "forward.time").wide("median").index.get_level_values(0)
    assert list(versions) == ["2.9.1", "2.11.0", "2.13.0+cpu"]


def test_where_takes_several_values_with_commas_and_nulls_as_a_dash(hardware: pd.DataFrame) -> None:
    table = pivot(hardware, "model context_length", "precision", "step.time", device="cuda", compile="none",
                  precision="bf16,fp32", context_length="256")  # fmt: skip
    assert table.wide("status").to_numpy().tolist() == [["ok", "ok"], ["ok", "ok"]]
    table = pivot(hardware, "model", "precision", "step.time", driver_version="-")
    assert table.wide("status").to_numpy().tolist() == [["ok", "unsupported", "ok"]]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"rows": "modell"}, r"--rows modell: no such column; did you mean model\?$"),
        ({"cols": "metric"}, r"--cols metric: the cells show this column; choose values with --value"),
        ({"values": "step.tiem"}, r"--value step.tiem: the store has no such value; did you mean step.time\?"),
        ({"model": "smal"}, r"--where model=smal: the store has no such result; did you mean small\? \(one of: "),
        ({"rows": ""}, r"at least one key in --rows"),
        ({"model": "2.7b", "device": "cpu"}, r"no result matches these values"),
    ],
)
def test_a_wrong_request_names_what_is_right(hardware: pd.DataFrame, request_: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        pivot(hardware, **{"rows": "model", "cols": "precision", "values": "step.time", **request_})


def test_what_a_device_is_called_cannot_break_the_markup(attempts: Attempts) -> None:
    name = "A & B_<C> 50% #1 $x$ *y* [z] ~^\\{}|`"
    attempts.ok(config(), {"step.time": (1.0,)}, fingerprint=replace(LAPTOP, device_name=name))
    table = pivot(analysis.load(attempts.store), "device_name", "", "step.time")
    assert "<C>" not in analysis.render(table, "html")
    latex = analysis.render(table, "latex")
    assert r"A \& B\_\textless{}C\textgreater{} 50\% \#1 \$x\$ *y* [z] \textasciitilde{}" in latex
    assert r"\textasciicircum{}\textbackslash{}\{\}|`" in latex
    assert r"A & B\_\<C\> 50% \#1 \$x\$ \*y\* \[z\] \~^\\{}|\`" in analysis.render(table, "typst")
    assert r"A & B_\<C\> 50% #1 $x$ \*y\* [z] ~^\\{}\|\`" in analysis.render(table, "markdown")
    assert next(csv.DictReader(io.StringIO(analysis.render(table, "csv"))))["device_name"] == name


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ((12.3412, 12.2912, 12.3812), ("12.34", "[12.29, 12.38]")),
        ((12.3412, 12.1, 12.35), ("12.34", "[12.10, 12.35]")),
        ((0.2, -4.8, 5.0), ("0.20", "[-4.80, 5.00]")),
        ((12.3412, 12.3412, 12.3412), ("12.34", None)),
        ((123456.0, 121700.0, 125100.0), ("123500", "[121700, 125100]")),
        ((0.0012345, 0.0012344, 0.0012346), ("0.00123450", "[0.00123440, 0.00123460]")),
        ((0.5712, 1e-22, 3.178e22), ("0.57", "[1e-22, 3e+22]")),
        ((1.0, -3e5, 3e5), ("1", "[-3e+05, 3e+05]")),
    ],
)
def test_digits_follow_the_interval(numbers: tuple[float, float, float], texts: tuple[str, str | None]) -> None:
    assert interval_texts(*numbers) == texts


def test_device_time_comes_first_where_every_step_has_one_and_wall_time_is_printed(attempts: Attempts) -> None:
    for context_length, host in ((128, 2.0), (256, 3.0)):
        found = {"step.time": samples(0.01 * host, 1e-5), "step.device_time": samples(0.01, 1e-5)}
        attempts.ok(config(device="cuda", context_length=context_length), found)
    table = analysis.pivot(analysis.load(attempts.store))
    assert [*table.units] == ["step.device_time"]
    text = analysis.render(table, "text")
    assert "The whole step takes 2 to 3 (median 2.5) times as long" in text and "`--value step.time`." in text
    attempts.ok(config(context_length=512), {"step.time": samples(0.1, 1e-3)})
    assert [*analysis.pivot(analysis.load(attempts.store)).units] == ["step.time"], "none is left out"


def test_a_table_says_why_numbers_have_no_interval(attempts: Attempts) -> None:
    attempts.ok(config(), {"step.time": (1.0, 1.1)})
    attempts.ok(config(context_length=512), {"step.time": tuple(np.exp(np.linspace(0, 5, 10)))})
    attempts.ok(config(context_length=1024), {"step.time": (-1.0,)})
    for median in (1.0, 50.0):
        attempts.ok(config(batch_size=8), {"step.time": samples(median, 0.01)}, flags=(Flag.BUSY_HOST,))
    table = pivot(analysis.load(attempts.store), "context_length batch_size", "", "step.time")
    assert list(table.cells["low"].isna()) == [False, True, True, True]
    notes = [note for note in table.notes if "1 number without an interval" in note]
    reasons = ("their processes differ too much for so few", "their samples", "how values of 0 or less vary is not")
    assert [note.partition(": ")[2].startswith(why) for note, why in zip(notes, reasons, strict=True)] == [True] * 3
