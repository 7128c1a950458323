"""Loading: every stored row and what follows from it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import stdtrit

from lmsweep import analysis
from lmsweep.trials.results.arrow_schema import rows_to_table, schema_of
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.words import Precision
from lmsweep.trials.statistics.variation import PRIORS, Kind
from tests.support.command import answer_here
from tests.support.made_up_results import H200, LAPTOP, Attempts, config, samples


def test_every_column_of_the_store_is_loaded_with_its_value(attempts: Attempts) -> None:
    trial = config("medium", context_length=512, precision="bf16", device="cuda")
    (row,) = attempts.ok(trial, {"step.time": (1.0, 2.0, 4.0)}, flags=(Flag.HOST_BOUND,))
    frame = analysis.load(attempts.store)
    assert len(frame) == 1
    assert list(frame.columns)[: len(schema_of(Record).names)] == schema_of(Record).names
    loaded = frame.iloc[0]
    assert loaded["context_length"] == 512 and loaded["d_model"] == 1024 and loaded["device_memory"] == 150_000_000_000
    assert loaded["device_name"] == "NVIDIA H200" and loaded["precision"] == "bf16"
    assert list(loaded["samples"]) == [1.0, 2.0, 4.0] and list(loaded["flags"]) == ["host_bound"]
    assert loaded["started_at"] == row.started_at
    assert (loaded["n"], loaded["median"]) == (3, 2.0) and 0.4 < loaded["low"] < 0.5 and 9 < loaded["high"] < 10
    assert loaded["mean"] == pytest.approx(7 / 3) and loaded["std"] == pytest.approx(np.std([1, 2, 4], ddof=1))


def test_a_column_has_the_same_type_whether_or_not_it_holds_nulls(attempts: Attempts) -> None:
    attempts.ok(config(device="cuda"), {"step.time": samples(1, 0.1)})
    without = analysis.load(attempts.store).dtypes
    attempts.failed(config(context_length=512), "error", fingerprint=LAPTOP)
    with_nulls = analysis.load(attempts.store)
    assert with_nulls["device_memory"].isna().sum() == 1
    assert (with_nulls.dtypes == without).all()


def test_speed_is_the_work_of_the_phase_divided_by_the_median(attempts: Attempts) -> None:
    # Small: 12 layers, d 768, f 3072, V 10 000; T = 4 * 256 = 1024 tokens; FLOPs by the published formula.
    tokens, layers, d, f, vocabulary = 1024, 12, 768, 3072, 10_000
    forward = layers * (8 * tokens * d**2 + 4 * tokens * 256 * d + 6 * tokens * d * f) + 2 * tokens * d * vocabulary
    times = {"forward.time": (0.1,), "backward.time": (0.2,), "optimizer.time": (0.05,), "step.time": (0.4,)}
    trial = config(device="cuda", precision="bf16")
    bf16 = replace(H200, autocast_dtype="bfloat16")
    attempts.ok(trial, {**times, "step.enqueue_time": (0.3,), "trial.setup_time": (3.0,)}, fingerprint=bf16)
    frame = analysis.load(attempts.store).set_index(["phase", "metric"])
    work = {"forward": forward, "backward": 2 * forward, "step": 3 * forward}
    for phase, flops in work.items():
        row = frame.loc[(phase, "time")]
        seconds = times[f"{phase}.time"][0]
        assert row["flops"] == flops
        assert row["tokens_per_second"] == pytest.approx(1024 / seconds)
        assert row["tflops"] == pytest.approx(flops / seconds / 1e12)
        assert row["mfu"] == pytest.approx(flops / seconds / 989.4e12)
    others = frame.drop([(phase, "time") for phase in work])
    assert others[["tokens_per_second", "flops", "tflops", "mfu"]].isna().all(axis=None)


def test_mfu_uses_the_peak_of_the_arithmetic_that_ran(attempts: Attempts) -> None:
    ran: dict[Precision, tuple[dict[str, str], float]] = {
        "fp32": ({"float32_matmul": "ieee"}, 66.9e12),
        "tf32": ({"float32_matmul": "tf32"}, 494.7e12),
        "bf16": ({"float32_matmul": "ieee", "autocast_dtype": "bfloat16"}, 989.4e12),
        "fp8_rowwise": ({"float32_matmul": "ieee", "autocast_dtype": "bfloat16"}, 1978.9e12),
        "fp16": ({"float32_matmul": "ieee", "autocast_dtype": "float16"}, 989.4e12),
        "bf16_pure": ({"float32_matmul": "ieee", "parameter_dtype": "bfloat16"}, 989.4e12),
    }
    for precision, (arithmetic, _) in ran.items():
        trial = config(device="cuda", precision=precision)
        attempts.ok(trial, {"step.time": (1.0,)}, fingerprint=replace(H200, **arithmetic))
    frame = analysis.load(attempts.store).set_index("precision")
    peaks = (frame["flops"] / frame["mfu"]).to_dict()
    assert peaks == pytest.approx({precision: peak for precision, (_, peak) in ran.items()})


def test_each_successful_attempt_is_a_process_and_failures_do_not_count(attempts: Attempts) -> None:
    trial = config()
    attempts.failed(trial, "timeout")
    attempts.ok(trial, {"forward.time": (1.0, 1.1), "step.time": (1.0, 1.2)}, flags=(Flag.COLD_CACHE,))
    attempts.ok(trial, {"forward.time": (3.0,), "step.time": (2.0,), "backward.time": (2.0,)}, flags=(Flag.OUTLIERS,))
    attempts.failed(trial, "timeout")
    frame = analysis.load(attempts.store)
    assert list(frame["phase"]) == ["forward", "step", "backward"] and list(frame.index) == [0, 1, 2]
    forward, step, backward = frame.itertuples()
    assert forward.median == pytest.approx((1.05 + 3.0) / 2) and (forward.n, forward.processes) == (3, 2)
    assert step.spread == pytest.approx((2.0 - 1.1) / 1.55) and list(step.samples) == [1.0, 1.2, 2.0]
    assert list(step.process_lengths) == [2, 1] and list(step.flags) == ["cold_cache", "outliers"]
    assert (step.mean, step.std, step.min, step.max) == pytest.approx((1.4, np.std([1, 1.2, 2], ddof=1), 1, 2))
    assert backward.processes == 1 and np.isnan(backward.spread) and backward.median == 2.0
    assert len(analysis.load(attempts.store, pooled=False)) == 7


def test_the_interval_of_several_processes_includes_the_variation_between_them(attempts: Attempts) -> None:
    for median in (0.98, 1.0, 1.02):
        attempts.ok(config(), {"step.time": samples(median, 1e-4)})
    row = analysis.load(attempts.store).iloc[0]
    own = 2 * np.var(np.log([0.98, 1.0, 1.02]), ddof=1)
    known = PRIORS["cpu"].updated(own, 2)
    freedom = known.freedom + 2
    variance = (known.freedom * known.scale**2 + own) / freedom
    distance = stdtrit(freedom, 0.975) * np.sqrt(variance * 1.1 / 3)
    assert (row["low"], row["high"]) == pytest.approx((np.exp(-distance), np.exp(distance)), rel=1e-3)
    assert (row["processes"], row["spread"], row["median"]) == (3, pytest.approx(0.04), 1.0)


def test_device_time_of_ranks_varies_more_than_that_of_one_process(attempts: Attempts) -> None:
    """Two processes of 2.7b with tensor parallelism differ by 0.1 %, of `xl` with its optimizer on the host by 2 %."""
    attempts.ok(config(device="cuda", world_size=2, ddp="fsdp"), {"step.device_time": samples(0.04, 1e-6)})
    assert list(analysis.load(attempts.store)["variation_kind"]) == ["ranks"]
    assert PRIORS["ranks"].scale > PRIORS["device_capped"].scale


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("metric", "processes", "kind"),
    [
        ("device_time", ((0.97, ()), (0.97, (Flag.POWER_CAPPED,))), "device_capped"),
        ("time", ((0.96, ()), (0.94, ())), "wall_waits"),
        ("time", ((0.96, ()), (0.5, ())), "host"),
    ],
)
def test_a_value_whose_processes_differ_in_kind_is_of_the_kind_that_varies_most(
    attempts: Attempts,
    order: tuple[int, ...],
    metric: str,
    processes: tuple[tuple[float, tuple[Flag, ...]], ...],
    kind: Kind,
) -> None:
    """Whichever is the newest, and with the degrees of freedom of that kind."""
    for busy, flags in (processes[place] for place in order):
        times = {"step.time": samples(0.04 / busy, 1e-6), "step.device_time": samples(0.04, 1e-6)}
        attempts.ok(config(device="cuda"), times, flags=flags)
    frame = analysis.load(attempts.store).query("metric == @metric")
    known = frame[["variation_kind", "variation", "variation_freedom"]].to_numpy().tolist()
    assert known == [[kind, PRIORS[kind].scale, PRIORS[kind].freedom]]


def test_the_newest_failure_is_kept_and_attempts_in_other_environments_or_of_other_measurements_are_others(
    attempts: Attempts,
) -> None:
    attempts.failed(config(), "error")
    attempts.failed(config(), "oom")
    assert list(analysis.load(attempts.store)["status"]) == ["oom"]
    attempts.ok(config(), {"step.time": (1.0,)})
    attempts.ok(config(), {"step.time": (2.0,)}, fingerprint=LAPTOP)
    attempts.ok(config(mode="forward"), {"step.time": (3.0,)})
    attempts.ok(config(), {"step.time": (4.0,)}, workload="noop")
    assert sorted(analysis.load(attempts.store)["median"]) == [1.0, 2.0, 3.0, 4.0]


def test_a_field_that_an_older_store_lacks_holds_its_default_or_is_null(attempts: Attempts, tmp_path: Path) -> None:
    (row,) = attempts.ok(config(), {"step.time": samples(1.0, 0.1)})
    older = rows_to_table([row], Record).drop_columns(["optimizer", "reason", "host_load", "flags"])
    folder = tmp_path / "older" / "measurements"
    folder.mkdir(parents=True)
    pq.write_table(older, folder / "fragment.parquet")
    frame = analysis.load(str(tmp_path / "older"))
    assert frame["optimizer"][0] == "adamw_fused" and frame["host_load"].isna().all() and frame["median"][0] == 1.0
    assert "1.00 [0.8" in analysis.render(analysis.pivot(frame), "text")


@pytest.mark.parametrize(
    "words",
    [["table", "b200-devices"], ["compare", "h100-devices", "b200-devices"], ["report", "b200-devices", "--badge", "-"],
     ["report", "h100-devices", "--with", "b200-devices"], ["best", "h100-devices", "b200-devices"],
     ["best", "h100-devices", "--for", "B200", "--with", "b200-devices"]],
)  # fmt: skip
def test_a_name_of_no_store_is_answered_with_near_names_and_those_that_ship(words: list[str]) -> None:
    done = answer_here(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert "there is no store at b200-devices; did you mean h200-devices or h100-devices? " in done.stderr
    assert "these ship: h100-accept, " in done.stderr


def test_a_store_without_rows_loads_as_an_empty_table_with_all_columns(attempts: Attempts) -> None:
    Path(attempts.store.location, "measurements").mkdir(parents=True)
    frame = analysis.load(attempts.store)
    assert frame.empty and {"median", "mfu", "samples"} <= set(frame.columns)
