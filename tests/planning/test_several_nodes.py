"""Plans for several nodes: how ranks lie on them, what a step exposes there, and what cannot be planned."""

from dataclasses import replace
from importlib.util import find_spec
from math import log
from pathlib import Path
from statistics import median

import pytest

from lmsweep.analysis import reference
from lmsweep.orchestrator.cluster.planned_nodes import layout_of, spread
from lmsweep.orchestrator.planning.memory_budget import counted
from lmsweep.orchestrator.predicting.predicted_step import in_precision, predicted_step
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.analytic.datasheets import device_named
from lmsweep.trials.analytic.rates import intervals
from lmsweep.trials.analytic.rates.collective_rates import CollectiveTimes, Point, from_datasheet, in_order
from lmsweep.trials.analytic.rates.hardware import CHIP
from lmsweep.trials.analytic.rates.operators import Operator, Operators
from lmsweep.trials.analytic.rates.rank_schedule import rank_time, resized
from lmsweep.trials.analytic.rates.rate_set import MeasuredRates, Network, Rates, rates_of, rates_with
from lmsweep.trials.analytic.rates.step_time import WAIT_PER_LAUNCH
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.words import NAMED_TRAINERS
from lmsweep.trials.store.store import Store
from tests.support.command import answer_here

SWEEP = """
name: nodes
grids:
  - workloads: [ddp]
    axes: {ddp: [fsdp]}
    fixed: {device: cuda, world_size: 8, model: tiny, precision: bf16, gather: bf16, mode: train_step}
"""
H100 = device_named("H100 SXM")
RANKS = ("workloads=ddp", "ddp=fsdp", "world_size=64", "nodes=8")
CONFIG = single_trial([*RANKS, "model=tiny", "device=cuda", "precision=bf16"]).config
BLOCK = 200_000_000


def sharded(config: TrialConfig, tokens: int = 4096) -> Operators:
    """A step of two blocks, each of one product, whose weights are gathered and whose gradients are scattered."""
    width = round(BLOCK**0.5)

    def one(name: str, phase: str, **fields: object) -> Operator:
        given = {"name": name, "shapes": ((tokens, width), (width, width)), "dtype": "bfloat16", "module": "blocks.*",
                 "bytes": 2 * BLOCK, "flops": 2 * tokens * BLOCK, "phase": phase, "count": 2}  # fmt: skip
        return Operator(**given | fields)  # type: ignore[arg-type]

    sent = {"stream": "communication", "ranks": config.world_size, "flops": 0}
    return (one("mm", "forward"), one("mm", "backward", count=4), one("all_gather", "forward", **sent),
            one("all_gather", "backward", **sent), one("reduce_scatter", "backward", **sent))  # fmt: skip


def network(rate: float) -> Network:
    return Network(gpus=8, bytes_per_second=rate, source="given")


def test_eight_gpus_are_one_node_unless_said() -> None:
    layout = layout_of(64, H100, nodes=None, network=None)
    assert (layout.nodes, layout.gpus) == (8, 8) and layout.network and layout.network.bytes_per_second == 50e9
    assert layout_of(8, H100, nodes=None, network=None).network is None
    given = layout_of(64, H100, nodes="4", network="200Gb")
    assert (given.nodes, given.gpus) == (4, 16) and given.network and given.network.bytes_per_second == 25e9
    trial = single_trial(["workloads=ddp", "model=tiny", "ddp=fsdp", "world_size=2", "device=cuda"])
    assert [(one.config.world_size, one.config.nodes) for one in spread([trial], layout)] == [(64, 8)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--for", "64xH100", "--nodes", "7"], "--nodes 7 does not divide the 64 GPUs of --for"),
        (["--for", "10xH100"], "10 GPUs: they do not fill nodes of 8"),
        (["--for", "64xH100", "--network", "foo"], "--network foo: no such network; give 400Gb"),
        (["--for", "16xL40S"], "--network gives it"),
        (["--for", "64xH100", "--set", "ddp=hsdp", "--set", "shards=5"], "tp 1 times shards 5 does not divide them"),
        (["--nodes", "3"], "give --for"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence_and_exit_2(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "nodes.yaml").write_text(SWEEP)
    refused = answer_here("plan", tmp_path / "nodes.yaml", *arguments)
    assert refused.returncode == 2 and said in refused.stderr and "Traceback" not in refused.stderr


def test_a_gather_is_hidden_behind_the_block_before_and_a_slow_network_is_exposed() -> None:
    fast, slow = (rank_time(sharded(CONFIG), rates_of(H100, network(rate)), CONFIG) for rate in (50e9, 0.5e9))
    sent = sum(one.seconds for one in fast.time.parts if one.kind == "collectives")
    assert 0 < sum(fast.exposed.values()) < sent
    assert slow.exposed["gathers in backward"] > 10 * fast.exposed.get("gathers in backward", 0.0)
    assert slow.seconds > 5 * fast.seconds


def test_more_ranks_change_groups_and_the_share_of_the_optimizer_alone() -> None:
    update = Operator(name="_fused_adamw_", shapes=((10,),), dtype="float32", bytes=6400, flops=0, phase="optimizer",
                      module="optimizer")  # fmt: skip
    before = (*sharded(CONFIG), update)
    after = resized(before, CONFIG, 1024)
    assert {one.ranks for one in after if one.stream == "communication"} == {1024}
    assert after[-1].bytes == 400 and after[0] == before[0]


def test_layers_that_a_node_divides_are_exposed_whole() -> None:
    config = replace(CONFIG, tp=8)
    summed = Operator(name="all_reduce", shapes=((1,),), dtype="bfloat16", bytes=2**24, flops=0, phase="forward",
                      module="blocks.*", stream="communication", ranks=8, count=4)  # fmt: skip
    rates = rates_of(H100, network(50e9))
    found = rank_time((*sharded(config), summed), rates, config)
    takes = 4 * rates.collective("all_reduce", 2**24, ranks=8)
    assert found.exposed["gathers and sums of divided layers"] == pytest.approx(takes)
    several = [replace(summed, bytes=2**24 + 4096 * each) for each in range(60)]
    in_order = sum(rates.of(replace(one, count=1)).seconds * one.count for one in several)
    found = rank_time((*sharded(config), *several), rates, config)
    assert found.exposed["gathers and sums of divided layers"] == in_order, "to the last digit, in each process"


def test_an_interval_is_learned_from_residuals_and_is_wider_where_less_is_known() -> None:
    same = [intervals.Residual("ranks", source, "H100 SXM", 0.1) for source in "ab"]
    spread = intervals.spread_from(same)
    assert spread.factor == pytest.approx(1.105, abs=1e-3) and spread.deviation == 0
    deviations = [intervals.spread_for("H200 SXM", level).deviation for level in ("measured", "public", "datasheet")]
    assert deviations == sorted(deviations)


@pytest.mark.parametrize("level", ["measured", "public", "ranks", "two ranks"])
def test_an_interval_learned_without_a_source_holds_in_nine_of_ten_cells_of_each_gpu(level: str) -> None:
    cells = [one for one in intervals.known_residuals() if one.level == level]
    for device in {one.device for one in cells}:
        wider = intervals.factor_to_cover(level, intervals.known_residuals(), device)
        found = [(one, intervals.unseen(one, intervals.known_residuals())) for one in cells if one.device == device]
        width = intervals.INTERVAL_DEVIATIONS * wider * (1 + 1e-9)
        kept = sum(not by or abs(one.log_ratio - log(by.factor)) <= width * by.deviation for one, by in found)
        assert kept / len(found) >= 0.9, device


def distances(cells: list[intervals.Residual]) -> list[tuple[str, float]]:
    """Return the GPU of each cell, and how far the cell lies from what the other sources say."""
    some = {(one.source, one.device): one for one in cells}
    middles = {key: intervals.unseen(one, cells) for key, one in some.items()}
    found = [(one, middles[one.source, one.device]) for one in cells]
    return [(one.device, abs(one.log_ratio - log(middle.factor))) for one, middle in found if middle]


def held(off: list[tuple[str, float]], spread: intervals.Spread) -> float:
    return sum(one <= log(spread.width) * (1 + 1e-9) for _, one in off) / len(off)


def test_the_intervals_of_other_trainers_hold_in_nine_of_ten_cells_of_sources_not_learned_from() -> None:
    cells = intervals.others(experts=False)
    sources = {one.source for one in cells}
    assert len(sources) >= 10 and not sources & {"h100-devices", "unseen-steps"}
    off = distances(cells)
    assert held(off, intervals.spread_of_others("RTX 5090")) >= 0.9, "a GPU without cells"
    for name in {one.device for one in cells}:
        here = [one for one in off if CHIP.get(one[0], one[0]) == CHIP.get(name, name)]
        assert held(here, intervals.spread_of_others(name)) >= 0.9, name
    peaks = [one._replace(device="") for one in intervals.known_residuals() if one.level == "memory"]
    assert len(peaks) >= 15 and len({one.source for one in peaks}) >= 4
    assert held(distances(peaks), intervals.spread_of_peaks()) >= 0.9
    middle, low, high = intervals.peak_of_others(10**9)
    assert low < 10**9 < high and low < middle < high


def test_the_interval_of_a_named_trainer_holds_in_nine_of_ten_steps_of_models_that_it_was_not_learned_from() -> None:
    kept = []
    for trainer in NAMED_TRAINERS:
        ran = intervals.ran_by(trainer)
        assert len({one.source for one in ran}) >= 3, f"{trainer} has steps of too few models"
        for source, device in {(one.source, one.device) for one in ran}:
            rest = intervals.spread_that_covers([one for one in ran if one.source != source], device)
            steps = [one for one in ran if (one.source, one.device) == (source, device)]
            kept += [abs(one.log_ratio - log(rest.factor)) <= log(rest.width) * (1 + 1e-9) for one in steps]
    assert sum(kept) / len(kept) >= 0.9 and len(kept) >= 175


@pytest.mark.parametrize("name", ["B200 SXM", "MI300X", "A100 SXM 40GB"])
def test_a_few_public_runs_of_a_gpu_make_eight_ranks_no_surer_than_one_process(name: str) -> None:
    assert intervals.spread_for(name, "public", 8).width >= intervals.spread_for(name, "public").width > 1.5


def test_a_mixture_of_experts_has_the_interval_of_mixtures_as_other_trainers_run_it() -> None:
    one = replace(sharded(CONFIG)[0], module="model.layers.*.mlp", stream="compute", ranks=1)
    alone = replace(CONFIG, world_size=1, nodes=1, ddp="none")
    of_experts = replace(one, module="model.layers.*.mlp.experts")
    dense, mixture = (predicted_step((each,), alone, rates_of(H100)).others for each in (one, of_experts))
    by_size = predicted_step((one,), replace(alone, num_experts=8), rates_of(H100)).others
    assert mixture == by_size == intervals.spread_of_others("H100 SXM", experts=True) != dense
    attention = predicted_step((one,), alone, rates_of(H100), subject="attention")
    assert attention.others == attention.spread != dense


def test_a_gpu_is_moved_by_how_it_differs_within_a_source_and_an_unknown_one_is_less_sure() -> None:
    ratios = (("one", 0.1), ("other", 0.3))
    both = [intervals.Residual("ranks", name, device, ratio) for name in "ab" for device, ratio in ratios]
    one, other, new = (intervals.learned("ranks", both, device) for device in ("one", "other", "new"))
    assert one and other and new and one.factor < new.factor < other.factor
    assert new.factor == pytest.approx(1.221, abs=1e-3) and new.deviation > one.deviation == other.deviation


SETS = Path(reference.__file__).parent


def h200(host: float | None) -> Rates:
    return rates_with(device_named("H200 SXM"), MeasuredRates(hosts={"H200 SXM": host} if host else {}))


def errors_of(
    store: str, *, host: float | None, model: str, which: slice = slice(None)
) -> list[tuple[float, bool, bool]]:
    """Return by how much each measured step of two H200 is missed, whether its interval held, and whether the host
    decides."""
    rows = [row for row in Store(str(SETS / store)).read()[0].to_pylist() if row["workload"] == "ddp"]
    rows = [row for row in rows if (row["phase"], row["metric"], row["model"]) == ("step", "time", model)]
    rates, found = h200(host), []
    for row in rows[which]:
        config, seconds = config_of(row), median(row["samples"])
        time = rank_time(in_precision(step_operators(config), config), rates, config)
        middle, low, high = intervals.spread_for("H200 SXM", rates.level(), config.world_size).of(time)
        found.append((abs(middle / seconds - 1), low < seconds < high, time.is_host_bound))
    return found


@pytest.mark.slow
def test_steps_of_two_h200_are_within_a_tenth_where_the_device_decides() -> None:
    (one,) = errors_of("h200-x2-sharded", host=1.95, model="8b-2026", which=slice(1))
    assert one[0] < 0.1 and one[1] and not one[2]


def test_a_device_that_decides_waits_for_the_launches_of_a_rank_as_of_one_process() -> None:
    config = single_trial(["workloads=ddp", "device=cuda", "world_size=2", "ddp=fsdp", "d_model=4096", "d_ff=8192",
                           "num_layers=2", "num_heads=32", "vocab_size=1000", "context_length=2048", "batch_size=8",
                           "precision=bf16", "attention=sdpa"]).config  # fmt: skip
    slow, fast = (rank_time(step_operators(config), h200(host), config) for host in (2.0, 1.0))
    assert not slow.is_host_bound and slow.busy == fast.busy
    assert slow.seconds - fast.seconds == pytest.approx(WAIT_PER_LAUNCH * fast.launching)


@pytest.mark.slow
def test_other_trainers_launch_divided_layers_without_dtensors() -> None:
    asked = ["workloads=ddp", "device=cuda", "world_size=8", "ddp=naive", "d_model=512", "d_ff=1024", "num_layers=4",
             "num_heads=8", "vocab_size=1024", "context_length=512", "batch_size=1", "precision=bf16"]  # fmt: skip
    divided, whole = (single_trial([*asked, f"tp={tp}"]).config for tp in (8, 1))
    time = rank_time(step_operators(divided), rates_of(H100), divided)
    assert time.is_host_bound and time.launching > 5 * time.elsewhere.launching
    assert time.elsewhere.busy == time.busy and time.elsewhere.seconds < time.seconds
    plain = rank_time(step_operators(whole), rates_of(H100), whole)
    assert plain.elsewhere == plain


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("peft"), reason="no PEFT")
@pytest.mark.parametrize(
    ("targets", "measured"), [("[]", 0.52), ('["query", "value"]', 0.88), ('["w1", "w2", "w3"]', 0.70)]
)
def test_layers_with_adapters_cost_the_host_less_than_those_that_dtensor_divides(targets: str, measured: float) -> None:
    """measured: seconds of a rank over those of one process, over the same without adapters, on one core of an AMD EPYC
    (2026-11-28), with PyTorch's process group that sends nothing."""
    plain = TrialConfig(d_model=32, d_ff=64, num_layers=6, num_heads=4, vocab_size=50, context_length=8, batch_size=1,
                        precision="bf16", attention="sdpa", mode="forward_backward", device="cuda")  # fmt: skip
    rates = rates_of(H100)

    def launching(config: TrialConfig) -> float:
        return predicted_step(step_operators(config), config, rates).time.launching

    def times(config: TrialConfig) -> float:
        rank = replace(config, world_size=2, ddp="naive", tp=2)
        return rank_time(step_operators(rank), rates, rank).launching / launching(config)

    adapted = replace(plain, adapter="lora", adapter_args=f'{{"targets": {targets}}}')
    assert times(adapted) / times(plain) == pytest.approx(measured, rel=0.08)


@pytest.mark.slow
def test_a_host_whose_launches_were_measured_decides_within_a_fifth_and_an_unknown_one_widens_the_interval() -> None:
    (known,) = errors_of("h200-x2-xl", host=2.4, model="xl", which=slice(1, 2))
    (unknown,) = errors_of("h200-x2-xl", host=None, model="xl", which=slice(1, 2))
    assert known[2] and unknown[2], "xl at a context of 512, whose weights are gathered"
    assert known[0] < 0.2 < unknown[0] and known[1] and unknown[1]


@pytest.mark.slow
def test_nine_of_ten_steps_of_two_h200_are_within_the_interval() -> None:
    stores = (("h200-x2-sharded", "2.7b"), ("h200-x2-fsdp", "2.7b"), ("h200-x2-fsdp", "xl"))
    found = [one for store, model in stores for one in errors_of(store, host=1.95, model=model)]  # of a slow host
    assert len(found) == 22 and sum(held for _, held, _ in found) >= 0.9 * len(found)
    assert sum(error < 0.2 for error, _, _ in found) >= 0.8 * len(found)
    by_device = [error for error, _, is_host_bound in found if not is_host_bound]
    assert median(by_device) < 0.05 and sum(error < 0.1 for error in by_device) >= 0.9 * len(by_device)


def test_a_collective_takes_as_long_as_measured_ones_of_its_size():
    points = in_order([Point(1000, 2e-5), Point(1_000_000, 4e-5), Point(100_000, 1e-5), Point(1000, 3e-5)])
    assert points == [Point(1000, 2e-5), Point(100_000, 2e-5), Point(1_000_000, 4e-5)]
    times = CollectiveTimes(bandwidth=1e11, measured={"all_gather": points}, source="measured")
    assert times.seconds("all_gather", 10, 2) == times.seconds("all_gather", 50_000, 2) == pytest.approx(2e-5)
    assert times.seconds("all_gather", 316_228, 2) == pytest.approx(2e-5 * 2**0.5, rel=1e-4)
    assert times.seconds("all_gather", 3_000_000, 2) == pytest.approx(12e-5)
    assert times.seconds("all_reduce", 1e9, 4) == pytest.approx(times.latency + 1.5e9 / 1e11)
    assert times.seconds("all_reduce", 1e9, 1) == 0
    assert "77% of the datasheet's 450 GB/s" in from_datasheet(450e9, "H100 SXM").source


@pytest.mark.parametrize(
    ("text", "meant"), [("2 x A100 80GB", (2, "A100 80GB")), ("24GB", (1, "24GB")), ("4×24GB", (4, "24GB"))]
)
def test_a_number_before_a_device_is_how_many_a_node_has(text, meant):
    assert counted(text) == meant
