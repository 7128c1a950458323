"""Training with sharded weights (fully_shard), gradient accumulation, and meshes of ranks, with gloo."""

import gzip
import json
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from lmsweep.orchestrator.features.ddp.checked.coordinator import Team
from lmsweep.orchestrator.features.ddp.checked.gradient_check import gathered, gradient_error, largest_error, largest_of
from lmsweep.orchestrator.features.ddp.checked.step_checks import RanksDisagreeError
from lmsweep.orchestrator.features.ddp.comm_trace import merge_traces, trace_step
from lmsweep.orchestrator.features.ddp.memory_stages import MemoryWatch
from lmsweep.orchestrator.features.ddp.rank_steps import lead
from lmsweep.orchestrator.features.ddp.step_pairs import DoesNotFit, local_step
from lmsweep.orchestrator.features.ddp.step_report import StepReport, report_step
from lmsweep.orchestrator.features.ddp.timed_rank import TimedRank, state_bytes
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.ranks.process_group import leave
from lmsweep.trials.distributed.ranks.ranks import Emit, Rank, parts_of, run_ranks
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.results.measurement import Artifact
from lmsweep.trials.results.metrics import STAGES
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from tests.support.clean_process import in_clean_process

SMALL = TrialConfig(
    d_model=32,
    d_ff=64,
    num_layers=2,
    num_heads=4,
    vocab_size=50,
    context_length=8,
    batch_size=2,
    warmup_steps=1,
    measure_steps=2,
    world_size=2,
    ddp="fsdp",
    timeout_seconds=100.0,
)
WITH_PEFT = ["peft"] if find_spec("peft") else []
RANK_4 = '{"rank": 4}'
FSDP: dict[str, dict[str, Any]] = {
    "fsdp": {},
    "kept": {"reshard": "false"},
    "zero2": {"ddp": "zero2"},
    "accumulated": {"accumulate": 2},
    "block inputs on the host": {"checkpointing": "block", "offload": "block_inputs"},
    "of uneven parts": {"d_model": 40, "d_ff": 54, "vocab_size": 51},
}
MORE: dict[str, dict[str, Any]] = {
    "kept and accumulated": {"reshard": "false", "accumulate": 2},
    "checkpointed": {"checkpointing": "block"},
    "tied": {"tied_head": True},
    "zeroed before backward": {"zero_grad": "before_backward"},
    "resharded over two": {"reshard": "2"},
}
ON_THE_HOST: dict[str, dict[str, Any]] = {
    "state on the host, of uneven parts": {"offload": "optimizer", **FSDP["of uneven parts"]},
    "state on the host, not reshared": {"offload": "optimizer", "ddp": "zero2", "accumulate": 2},
}
"""As on a GPU, where `offload` is measured: these ranks only have no GPU whose copies they wait for."""
HSDP: dict[str, dict[str, Any]] = {
    "replicated twice": {"ddp": "hsdp", "shards": 2},
    "replicated twice, kept": {"ddp": "hsdp", "shards": 2, "reshard": "false"},
    "replicated twice, accumulated": {"ddp": "hsdp", "shards": 2, "accumulate": 2},
}
DDP: dict[str, dict[str, Any]] = {
    kind: {"ddp": kind, "accumulate": 2} for kind in ("naive", "flat", "overlap", "bucketed", "torch", "zero1")
}
if WITH_PEFT:
    ON_THE_HOST["adapted, state on the host"] = {"offload": "optimizer", "adapter": "lora", "adapter_args": RANK_4}
STEPS = 3


def in_ranks(body: Callable[[Workbench, TrialConfig], Any], config: TrialConfig, imports: Sequence[str] = ()) -> Any:
    """What rank 0 returns from `body`, which all ranks run as ranks of the group. `imports`: made once for all."""
    return in_clean_process(_fork_ranks, partial(_run_body, body, config), config, imports)


def _fork_ranks(run: Callable[[Rank, Emit], bool], config: TrialConfig, imports: Sequence[str]) -> Any:
    for name in imports:
        import_module(name)
    return run_ranks(parts_of(config)[0], run, cores=tuple(usable_cores()[:2]), start="fork")


def led_by_rank_0(parallel: Any, rank: Rank | None, ask: Callable[[Team], Any]) -> Any:
    """What rank 0 returns from `ask`, while the others follow."""
    assert rank
    team = Team(parallel, rank)
    if rank.index:
        team.follow()
        return []
    found = ask(team)
    team.release()
    return found


def built(bench: Workbench, config: TrialConfig, **fields: Any) -> TimedRank:
    parallel = TimedRank(replace(config, **fields), bench.math_mode)
    parallel.build()
    return parallel


def complaint_about(parallel: TimedRank, bench: Workbench) -> Any:
    """What the workload says of ranks that disagree."""

    def words(team: Team) -> str:
        with pytest.raises(RanksDisagreeError) as found:
            list(lead(bench, team))
        return str(found.value)

    return led_by_rank_0(parallel, bench.rank, words)


def _run_body(body: Callable[[Workbench, TrialConfig], Any], config: TrialConfig, rank: Rank, emit: Emit) -> bool:
    result = body(Workbench(config, requested_at=0.0, rank=rank), config)
    if rank.index == 0:
        emit(result)
    leave()
    return True


def trained(bench: Workbench, config: TrialConfig, variants: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each variant: the weights before and after STEPS steps with a local one between them, and the batch."""
    found = []
    for fields in variants.values():
        torch.manual_seed(0)
        parallel = built(bench, config, **fields)
        before = copies(parallel)
        error = gradient_error(parallel)
        for _ in range(STEPS):
            parallel.step(synchronized=True)
        after = copies(parallel)
        parallel.step(synchronized=False)  # takes place, and the step after it is a whole one again
        parallel.step(synchronized=True)
        if parallel.config.fully_shards:  # otherwise the ranks have different weights after a local step
            error = max(error or 0.0, gradient_error(parallel) or 0.0)
        batches = [one.numpy() for one in parallel.batches]
        found.append({"before": before, "after": after, "error": error, "batches": batches})
    return found


def copies(parallel: TimedRank) -> list[Any]:
    return [gathered(one.detach()).numpy().copy() for one in parallel.training.model.parameters()]


def one_process(config: TrialConfig, found: dict[str, Any]) -> list[torch.Tensor]:
    """The weights after the same steps in one process on the whole batch."""
    batch_size = config.batch_size * len(found["batches"][0])
    alone = {"world_size": 1, "ddp": "none", "tp": 1, "shards": None, "reshard": "true", "accumulate": 1}
    whole = replace(config, batch_size=batch_size, gather="fp32", offload="none", **alone)
    step = TrainingStep(whole, set_math_mode(config.precision, "cpu"))
    for mine, theirs in zip(step.model.parameters(), found["before"], strict=True):
        mine.data = torch.from_numpy(theirs.copy())
    step.inputs, step.targets = (torch.from_numpy(batch).flatten(0, 1) for batch in found["batches"])
    for _ in range(STEPS):
        for phase in step.phases():
            phase.run()
        step.drop()
    return [one.detach() for one in step.model.parameters()]


def check(config: TrialConfig, variants: dict[str, dict[str, Any]]) -> None:
    """What the steps of each variant add to each weight is what they add in one process."""
    found = in_ranks(partial(trained, variants=variants), config, WITH_PEFT)
    for (name, fields), one in zip(variants.items(), found, strict=True):
        wanted = one_process(replace(config, **fields), one)
        before, after = ([torch.from_numpy(weight) for weight in one[when]] for when in ("before", "after"))
        changes = ([new - old for new, old in zip(weights, before, strict=True)] for weights in (after, wanted))
        assert all(weight.any() for weight in wanted)
        error = largest_error(*changes)
        assert error < PRECISIONS["fp32"].update_error, f"{name}: {error}"
        assert one["error"] < 1e-4, name


IN_CI = ("fsdp", "zero2", "state on the host, of uneven parts")


@pytest.mark.parametrize("in_ci", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_after_three_steps_two_ranks_with_shards_have_the_weights_of_one_process(in_ci: bool) -> None:
    check(SMALL, {name: fields for name, fields in (FSDP | ON_THE_HOST).items() if (name in IN_CI) == in_ci})


TENSOR: dict[str, dict[str, Any]] = {
    "layers on two ranks": {"tp": 2, "ddp": "naive"},
    "grouped queries": {"tp": 2, "ddp": "naive", "num_kv_heads": 2},
    "gelu": {"tp": 2, "ddp": "naive", "feed_forward": "gelu"},
    "uneven": {"tp": 2, "ddp": "naive", "d_model": 40, "d_ff": 54, "vocab_size": 51},
    "accumulated, checkpointed": {"tp": 2, "ddp": "naive", "accumulate": 2, "checkpointing": "block"},
}


if WITH_PEFT:
    TENSOR["adapted"] = {"tp": 2, "ddp": "naive", "adapter": "lora", "adapter_args": RANK_4}
    TENSOR["some layers adapted, checkpointed"] = TENSOR["accumulated, checkpointed"] | {
        "adapter": "lora",
        "adapter_args": '{"rank": 3, "targets": ["query", "output", "w3"]}',
    }


@pytest.mark.slow  # four ranks on two cores
def test_after_three_steps_meshes_of_four_ranks_have_the_weights_of_one_process():
    check(
        replace(SMALL, world_size=4),
        TENSOR
        | {f"{name}, fsdp": fields | {"ddp": "fsdp"} for name, fields in TENSOR.items()}
        | {"tied": {"tp": 2, "ddp": "naive", "tied_head": True}, "tp 4": {"tp": 4}},
    )


@pytest.mark.slow  # four ranks on two cores
def test_after_three_steps_of_every_variant_four_ranks_have_the_weights_of_one_process():
    check(replace(SMALL, world_size=4), FSDP | MORE | HSDP | DDP)


# What a step communicates and holds


ALONE = replace(SMALL, ddp="none", world_size=1)
BYTES = sum(one.nbytes for one in TrainingStep(ALONE, set_math_mode("fp32", "cpu")).model.parameters())
"""Of its weights in float32."""
REPORTED: dict[str, dict[str, Any]] = FSDP | {
    kind: {"ddp": kind} for kind in ("naive", "flat", "bucketed", "torch", "zero1")
}
REPORTED |= {"deep": {"num_layers": 6}, "deep and kept": {"num_layers": 6, "reshard": "false"}}


def reported(bench: Workbench, config: TrialConfig) -> list[StepReport]:
    found = []
    for fields in REPORTED.values():
        parallel = built(bench, config, **fields)
        gradient_error(parallel)
        parallel.step(synchronized=True)
        parallel.step(synchronized=False)
        found.append(report_step(parallel))
    return found


@pytest.fixture(scope="module")
def reports() -> dict[str, StepReport]:
    return dict(zip(REPORTED, in_ranks(reported, SMALL), strict=True))


def test_what_a_step_sends_is_counted_by_kind(reports):
    blocks, root = SMALL.num_layers or 0, 1
    traffic = {name: report.traffic for name, report in reports.items()}
    calls = {name: {kind: one.calls for kind, one in of.items()} for name, of in traffic.items()}
    assert calls["fsdp"] == {"all_gather": 2 * blocks + root, "reduce_scatter": blocks + root}
    assert calls["kept"] == {"all_gather": blocks + root, "reduce_scatter": blocks + root}
    assert calls["accumulated"] == {"all_gather": 4 * blocks + 2 * root, "reduce_scatter": blocks + root}
    assert calls["flat"] == {"all_reduce": 1}
    assert traffic["kept"]["all_gather"].size == traffic["kept"]["reduce_scatter"].size == BYTES
    assert traffic["flat"]["all_reduce"].size == traffic["naive"]["all_reduce"].size == BYTES
    assert traffic["flat"]["all_reduce"].sent == BYTES, "of two ranks each sends 2 (n - 1) / n of it"
    assert traffic["kept"]["all_gather"].sent == BYTES / 2
    assert traffic["zero1"]["broadcast"].size == BYTES
    assert traffic["torch"]["all_reduce"].size == BYTES
    for name in ("torch", "bucketed"):
        assert reports[name].memory["before_step"].parts["communication"] == BYTES, "its buckets of gradients"


def test_what_a_rank_holds_adds_up_at_every_stage(reports):
    for name, report in reports.items():
        for held in report.memory.values():
            assert held.total == sum(held.parts.values()), name
            assert min(held.parts.values()) >= 0, name
        init, before, after, peak = (report.memory[stage] for stage in STAGES)
        assert init.parts["optimizer_state"] == init.parts["gradients"] == 0, name
        assert before.parts["weights"] == after.parts["weights"] == peak.parts["weights"] == init.parts["weights"], name
        assert before.parts["optimizer_state"] == after.parts["optimizer_state"] > 0, name
        assert peak.total > max(before.total, after.total), name


def test_shards_are_half_of_what_two_ranks_hold_otherwise(reports):
    for name, share in (("fsdp", 2), ("kept", 2), ("flat", 1), ("naive", 1), ("zero1", 1)):
        assert reports[name].memory["init"].parts["weights"] == BYTES / share, name
    state = {name: report.memory["before_step"].parts["optimizer_state"] for name, report in reports.items()}
    assert state["fsdp"] == pytest.approx(state["flat"] / 2, rel=0.02)
    gathered = {name: reports[name].memory["peak"].parts["communication"] for name in ("deep", "deep and kept")}
    assert gathered["deep and kept"] > 2 * gathered["deep"] > 0, "what stays after forward is in memory at the peak"


def test_the_state_of_an_optimizer_on_the_host_is_counted_by_its_rank():
    step = TrainingStep(replace(ALONE, offload="optimizer"), set_math_mode("fp32", "cpu"))
    for phase in step.phases():
        phase.run()
    assert state_bytes(step.optimizer) == 2 * BYTES + 4 * len(list(step.model.parameters()))


def test_a_gradient_that_pytorch_writes_in_place_is_counted_once():
    scores, index = torch.zeros(64, 1000, requires_grad=True), torch.zeros(64, 1, dtype=torch.int64)
    watch = MemoryWatch("cpu")
    with watch, watch.peak_noted():
        scores.gather(1, index).sum().backward()
    assert 1 <= watch.peak().parts["other"] / scores.nbytes < 1.1


def test_memory_that_another_thread_frees_while_it_is_counted_does_no_harm():
    watch = MemoryWatch("cpu")
    with watch:
        tensors = [torch.empty(4) for _ in range(3)]
    first = next(iter(watch.pieces.values()))
    storage = first.storage

    def freed_meanwhile() -> Any:
        tensors[1:] = []  # as gloo's threads do
        return storage()

    first.storage = freed_meanwhile
    with watch, watch.peak_noted():
        torch.empty(4)
    assert watch.peak().total == 32


MESHES: dict[str, dict[str, Any]] = {
    "fsdp": {},
    "zero2": {"ddp": "zero2"},
    "hsdp": {"ddp": "hsdp", "shards": 2},
    "fsdp and tp": {"tp": 2},
    "naive and tp": {"tp": 2, "ddp": "naive"},
}


def reported_by_all(bench: Workbench, config: TrialConfig) -> list[list[StepReport]]:
    found = []
    for fields in MESHES.values():
        parallel = built(bench, config, **fields)
        parallel.step(synchronized=True)
        found.append(led_by_rank_0(parallel, bench.rank, lambda team: team.all(report_step)))
    return found


@pytest.mark.slow  # four ranks on two cores
def test_what_each_of_four_ranks_holds_adds_up_on_every_mesh():
    found = dict(zip(MESHES, in_ranks(reported_by_all, replace(SMALL, world_size=4)), strict=True))
    for name, ranks in found.items():
        assert len(ranks) == 4
        for report in ranks:
            assert all(held.total == sum(held.parts.values()) for held in report.memory.values()), name
            assert min(min(held.parts.values()) for held in report.memory.values()) >= 0, name
    weights = {name: [one.memory["init"].parts["weights"] for one in ranks] for name, ranks in found.items()}
    assert weights["fsdp"] == weights["zero2"] == pytest.approx([BYTES / 4] * 4, rel=0.01), "50 rows in parts of 13"
    assert weights["hsdp"] == [BYTES / 2] * 4
    hybrid, sharded = (found[name][0].traffic for name in ("hsdp", "fsdp"))
    assert hybrid["all_gather"].sent == pytest.approx(sharded["all_gather"].sent * (1 / 2) / (3 / 4), rel=0.01)
    assert hybrid["all_reduce"].size == BYTES / 2, "of each shard between the replicas"


def test_hsdp_shards_over_the_ranks_of_a_node():
    cluster = replace(SMALL, world_size=16, nodes=2, ddp="hsdp")
    assert [replace(cluster, **more).shard_ranks for more in ({}, {"tp": 2}, {"shards": 4})] == [8, 4, 4]


# The trace of all ranks


def traced(bench: Workbench, config: TrialConfig) -> Any:
    parallel = built(bench, config)
    parallel.step(synchronized=True)
    return led_by_rank_0(parallel, bench.rank, lambda team: [merge_traces(team.all(trace_step), one_host=True)])


@pytest.mark.slow
def test_one_file_has_the_steps_of_all_ranks_on_one_clock():
    (merged,) = in_ranks(traced, SMALL)
    events = json.loads(gzip.decompress(merged))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    assert {name.partition(":")[0] for name in names.values()} == {"rank 0", "rank 1"}
    gathers: dict[str, list[tuple[float, float]]] = {"rank 0": [], "rank 1": []}
    for event in events:
        if event.get("name") == "gloo:all_gather":
            gathers[names[event["pid"]].partition(":")[0]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(gathers["rank 0"]) == len(gathers["rank 1"]) == 5
    for mine, theirs in zip(*(sorted(intervals) for intervals in gathers.values()), strict=True):
        assert mine[0] < theirs[1] and theirs[0] < mine[1], "a collective runs on both ranks at the same time"
    assert any("FSDP::all_gather" in str(event.get("name")) for event in events)


def led(bench: Workbench, config: TrialConfig) -> Any:
    def traces(team: Team) -> list[bytes]:
        return [one.content for one in lead(bench, team) if isinstance(one, Artifact)]

    return led_by_rank_0(TimedRank(config, bench.math_mode), bench.rank, traces)


@pytest.mark.slow  # it compiles
@pytest.mark.parametrize("checkpointing", ["none", "selective"])
def test_the_step_that_is_traced_is_compiled_as_those_that_are_timed(checkpointing):
    (merged,) = in_ranks(led, replace(SMALL, compile="block", checkpointing=checkpointing))
    names = [str(event.get("name")) for event in json.loads(gzip.decompress(merged))["traceEvents"]]
    compiled = sum(name.startswith("Torch-Compiled Region") for name in names)
    assert compiled == SMALL.num_layers * SMALL.world_size


# Models that fit only divided


def rebuilt(bench: Workbench, config: TrialConfig, failure: Callable[[], Exception]) -> list[Any]:
    def refuse(*_: object) -> None:
        raise failure()

    with bench.quiet():
        parallel = built(bench, config)
        before = [weakref.ref(weight) for weight in parallel.parameters()]
        parallel.training.blocks[1].register_full_backward_pre_hook(refuse)
        reason = local_step(parallel)
        parallel.rebuild()
        alive = sum(weight() is not None for weight in before)
        parallel.step(synchronized=True)
    return [reason, alive, gradient_error(parallel)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (partial(torch.OutOfMemoryError, "CUDA out of memory.\nThe rest."), "CUDA out of memory."),
        pytest.param(MemoryError, "MemoryError", marks=pytest.mark.slow),
    ],
)
def test_ranks_that_are_built_again_have_let_go_of_everything_before(failure: Callable[[], Exception], reason: str):
    assert in_ranks(partial(rebuilt, failure=failure), SMALL) == [DoesNotFit(reason), 0, 0.0]


def test_an_error_is_infinite_where_nothing_is_expected_or_nothing_is_a_number():
    for difference, norm, error in [(0.0, 0.0, 0.0), (4.0, 16.0, 0.5), (1.0, 0.0, math.inf), (math.nan, 1.0, math.inf)]:
        assert largest_of(torch.tensor([[0.0, 1.0], [difference, norm]])) == error
