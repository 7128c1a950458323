"""The predicted step in a plan: of any model on a GPU that is not there, and where it goes."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmsweep.orchestrator.api import make_planned
from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.plan_request import How, What, Where
from lmsweep.orchestrator.planning.plan_estimate import estimate_planned
from lmsweep.orchestrator.planning.step_estimate import StepEstimate
from lmsweep.orchestrator.predicting.device_rates import measured_rates
from lmsweep.orchestrator.running.run_plan import prepare
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.analytic.rates.collective_rates import Point
from lmsweep.trials.analytic.rates.rate_data import DATA
from lmsweep.trials.analytic.rates.rate_set import LAUNCHES
from lmsweep.trials.code.digest import code_digest
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.record import Attempt
from lmsweep.trials.store.store import Store
from tests.support.command import answer_here, lmsweep_here, write_sweep
from tests.support.made_up_results import H200

SWEEP = """
name: steps
grids:
  - workloads: [timing]
    zip: {compile: [none, block], loss: [eager, liger]}
    fixed: {model: tiny, device: cuda, num_layers: 2, context_length: 32, batch_size: 4, accumulate: 2, precision: bf16}
"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("steps") / "steps.yaml"
    path.write_text(SWEEP)
    return path


def test_a_plan_predicts_each_step_with_its_interval_and_what_it_rests_on(sweep: Path) -> None:
    trials = json.loads(lmsweep_here("plan", sweep, "--for", "H200", "--format", "json"))["trials"]
    assert len(trials) == 2
    for one in trials:
        low, high = one["expected_step_seconds_between"]
        assert 0 < low < one["expected_step_seconds"] < high
        middle, least, most = one["expected_step_seconds_of_others"]
        assert least < middle < most and most / least > high / low
        assert "H200" in one["expected_step_source"] and one["expected_step_reason"] is None
    first = next(one for one in trials if one["config"]["compile"] == "none")
    chosen, everyone = first["trial_id"], first["expected_step_seconds_of_others"]
    asked = ["plan", sweep, "--for", "H200", "--explain", chosen[:8], "--trainer", "LLM-Foundry"]
    found = json.loads(lmsweep_here(*asked, "--format", "json"))
    assert found["trial_id"] == chosen
    middle, low, high = found["expected_step_seconds_of_others"]
    assert middle > everyone[0] and high / low < everyone[2] / everyone[1]
    assert "as LLM-Foundry runs it: " in lmsweep_here(*asked)
    assert "by LLM-Foundry" in lmsweep_here("plan", sweep, "--for", "H200", "--trainer", "LLM-Foundry")
    wrong = answer_here("plan", sweep, "--trainer", "TRL")
    assert wrong.returncode == 2 and "--trainer TRL: too few public steps of it are known (one of: " in wrong.stderr
    lost = answer_here("plan", sweep, "--for", "H200", "--no-predict", "--explain", "nothing")
    assert lost.returncode == 2 and "--explain nothing: no trial of steps has this identifier" in lost.stderr
    assert {"blocks.*.attention", "head", "loss", "optimizer"} <= found["parts"].keys()
    parts = sum(sum(by_class.values()) for by_class in found["parts"].values())
    assert parts == pytest.approx(found["device_seconds"])
    assert all(one["source"] for one in found["classes"].values())


@pytest.mark.slow
def test_a_trial_that_nothing_runs_has_no_expected_time(tmp_path: Path) -> None:
    path = tmp_path / "ranks.yaml"
    alone = SWEEP.replace("zip: {compile: [none, block], loss: [eager, liger]}", "axes: {world_size: [2]}")
    path.write_text(alone.replace("[timing]", "[timing, ddp]").replace("accumulate: 2", "ddp: torch"))
    trials = json.loads(lmsweep_here("plan", path, "--for", "2xRTX 4090", "--format", "json"))["trials"]
    by_action = {one["action"]: {name for name in one if one[name] is not None} for one in trials}
    known = {"expected_seconds", "expected_step_seconds", "expected_step_seconds_between", "expected_step_source"}
    assert "unsupported" in by_action and not by_action["unsupported"] & {*known, "expected_exposed_seconds"}
    assert by_action["run"] >= {"expected_step_seconds", "expected_step_source", "expected_tokens_per_second"}
    shown = lmsweep_here("plan", path, "--for", "2xRTX 4090")
    assert "as published for four other cards" in shown and "neither a datasheet" not in shown


TINY = {"device": "cuda", "model": "tiny", "num_layers": 2, "context_length": 32, "precision": "bf16"}


def few_grids() -> list[dict[str, Any]]:
    known = {"accumulate": 2, "loss": "eager"}, {"accumulate": 2, "loss": "liger", "compile": "block"}  # in SWEEP
    several = ((["timing"], known[0]), (["timing"], known[1]), (["timing"], {"batch_size": 2}),
               (["memory"], {"batch_size": 8}), (["timing", "memory"], {"batch_size": 3}))  # fmt: skip
    protocol = {"measure_steps": [5, 20], "warmup_steps": [0, 5]}
    return [{"workloads": names, "axes": protocol, "fixed": TINY | fields} for names, fields in several]


def hundred_random_trials() -> list[dict[str, Any]]:
    drawn = random.Random(51)
    axes: dict[str, list[Any]] = {"batch_size": [2, 4, 8], "attention": ["naive", "sdpa"], "compile": ["none", "block"]}
    axes |= {"measure_steps": [5, 20, 40], "warmup_steps": [0, 5]}
    names = (["timing"], ["memory"], ["timing", "memory"])
    return [
        {"workloads": drawn.choice(names), "fixed": TINY | {name: drawn.choice(axes[name]) for name in axes}}
        for _ in range(100)
    ]


@pytest.mark.parametrize("grids", [few_grids, pytest.param(hundred_random_trials, marks=pytest.mark.slow)])
def test_in_a_plan_the_time_of_each_trial_is_its_set_up_and_its_steps(
    tmp_path: Path, grids: Callable[[], list[dict[str, Any]]]
) -> None:
    (tmp_path / "grids.yaml").write_text(json.dumps({"name": "grids", "grids": grids()}))
    words = ["plan", tmp_path / "grids.yaml", "--for", "H100", "--store", tmp_path / "none", "--format", "json"]
    protocols: dict[tuple[Any, ...], set[float]] = {}
    for one in json.loads(lmsweep_here(*words))["trials"]:
        steps = one["expected_steps"] * one["expected_step_seconds"]
        assert one["expected_seconds"] == pytest.approx(one["expected_setup_seconds"] + steps), one["config"]
        if one["workloads"] == ["timing"]:  # others have a least duration, however short a step is
            asked = tuple(one["config"][name] for name in ("warmup_steps", "measure_steps", "compile"))
            protocols.setdefault(asked, set()).add(round(one["expected_steps"], 4))
    # The number of steps is that of the protocol, however long one takes: else `time` has another model of a step.
    assert {asked: counts for asked, counts in protocols.items() if len(counts) > 1} == {}
    assert len(protocols) >= 8


def test_launches_and_collectives_that_a_store_has_are_known_by_their_gpu(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for slowness in (3, 2):
        rows = [Measurement(phase=name, metric="time", unit="s", samples=(slowness * seconds,))
                for name, seconds in LAUNCHES.items()]  # fmt: skip
        trial = single_trial(["workloads=operators", "device=cuda", f"d_model={64 * slowness}"])
        store.keep(Attempt.begin(trial).rows("operators", rows, H200))
    message = single_trial(["workloads=collectives", "device=cuda", "world_size=2", "message_bytes=4096"])
    row = Measurement(phase="collective", metric="time", unit="s", samples=(1e-3,))
    store.keep(Attempt.begin(message).rows("collectives", [row], H200))
    found = measured_rates(store)
    assert found.hosts == {"H200 SXM": pytest.approx(2)}, "a trial beside it slows launches, so the fastest count"
    assert found.collectives == {("H200 SXM", 2): {"all_reduce": [Point(4096, 1e-3)]}}


OWN = """
import torch

def attend(q, k, v, is_causal):
    scores = q @ k.transpose(-1, -2)
    return torch.softmax(scores, -1) @ v

def that_needs_values(q, k, v, is_causal):
    return attend(q / q.abs().max().item(), k, v, is_causal)
"""


@pytest.mark.slow
def test_operators_of_the_store_move_the_steps_of_their_gpu_and_of_no_other(sweep: Path, tmp_path: Path) -> None:
    shipped = pq.read_table(DATA / "measured_operators.parquet").to_pylist()
    trial = dict.fromkeys(("trial_id", "measurement_id", "environment_id", "attempt_id"), "1" * 16)
    trial |= {"workload": "operators", "started_at": datetime(2026, 11, 24, tzinfo=UTC)}
    rows = [trial | row | {"seconds": [4 * row["seconds"]]} for row in shipped if row["kind"] == "product"]
    (tmp_path / "out" / "operator_times").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "out" / "operator_times" / "measured.parquet")

    def planned(device: str, *out: object) -> float:
        sizes = ("compile=none", "loss=eager", "context_length=1024", "d_model=1024", "batch_size=64")
        given = (part for size in sizes for part in ("--set", size))
        asked = ("plan", sweep, *given, "--for", device, *out, "--format", "json")
        (trial,) = json.loads(lmsweep_here(*asked))["trials"]
        return float(trial["expected_step_seconds"])

    mine = ("--store", tmp_path / "out")
    assert planned("H200", *mine) > 1.15 * planned("H200")
    assert planned("A100", *mine) == planned("A100")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attend", "that_needs_values"])
def test_the_own_attention_takes_the_time_that_the_store_has_of_it_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "own.py").write_text(OWN)
    reference, store = f"own.py:{name}", Store(str(tmp_path / "out"))
    sizes = {"d_model": 128, "num_heads": 2, "context_length": 64, "precision": "bf16", "device": "cuda"}
    sweep = write_sweep(tmp_path, attention=[reference], d_ff=256, num_layers=3, vocab_size=512, **sizes)

    def planned(batch: int = 4) -> dict[str, Any]:
        asked = ("plan", sweep, "--set", f"batch_size={batch}", "--code", tmp_path, "--for", "H200", "--format", "json")
        asked += ("--store", store.location)
        (trial,) = json.loads(lmsweep_here(*asked))["trials"]
        return trial

    before = planned()
    if name == "attend":
        assert before["expected_step_source"].endswith("own.py:attend by PyTorch's operators in it, not measured")
    else:
        assert before["expected_step_seconds"] is None and before["expected_step_reason"]
    settings = [f"{field}={value}" for field, value in sizes.items()]
    asked = [*settings, "workloads=attention", "batch_size=4", f"attention={reference}"]
    alone = single_trial(asked, code=str(tmp_path))
    machine = replace(H200, code_digest=code_digest(alone.config.references, alone.code))
    rows = [Measurement(phase=phase, metric="time", unit="s", samples=(seconds,))
            for phase, seconds in (("forward", 1.0), ("backward", 2.0))]  # fmt: skip
    store.keep(Attempt.begin(alone).rows("attention", rows, machine))
    after = planned()
    assert after["expected_step_seconds"] == pytest.approx(9, rel=0.1), "three layers, each a second and two"
    assert f"attention from {reference} measured alone in the store" in after["expected_step_source"]
    other = planned(batch=8)["expected_step_seconds"]
    assert other is None if name == "that_needs_values" else other < 1, "of other shapes nothing is measured"
    (tmp_path / "own.py").write_text(OWN + "\n\nCHANGED = True\n")
    assert planned()["expected_step_seconds"] == before["expected_step_seconds"], "of other code nothing is measured"


MIXTRAL = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 512,
           "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 4,
           "num_key_value_heads": 2, "max_position_embeddings": 512}  # fmt: skip
OUTSIDE_AUTOCAST = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10_000, 512)
        self.wide = nn.Linear(512, 4096)
        self.narrow = nn.Linear(4096, 10_000)

    def forward(self, tokens):
        x = self.embedding(tokens)
        with torch.autocast(x.device.type, enabled=False):
            hidden = self.wide(x)
        return self.narrow(hidden)
"""


def sweep_outside_autocast(folder: Path, model: str, precisions: list[str]) -> Path:
    (folder / "mixtral.json").write_text(json.dumps(MIXTRAL))
    (folder / "mine.py").write_text(OUTSIDE_AUTOCAST)
    fixed = {"model": model, "device": "cuda", "batch_size": 8, "context_length": 512, "loss": "cross_entropy"}
    grid = {"workloads": ["timing"], "axes": {"precision": precisions}, "fixed": fixed}
    (folder / "mine.yaml").write_text(json.dumps({"name": "mine", "grids": [grid]}))
    return folder / "mine.yaml"


def planned_for_h100(sweep: Path, *words: str) -> Any:
    return lmsweep_here("plan", sweep, "--code", sweep.parent, "--for", "H100", *words)


@pytest.mark.parametrize(
    ("model", "part"),
    [("mine.py:Model", "wide"), pytest.param("hf:mixtral.json", "model.layers.*.mlp.experts", marks=pytest.mark.slow)],
)
def test_a_plan_names_what_stays_in_float32_and_what_16_bits_would_save(model: str, part: str, tmp_path: Path) -> None:
    if model.startswith("hf:"):
        pytest.importorskip("transformers")
    sweep = sweep_outside_autocast(tmp_path, model, ["bf16", "bf16_pure"])
    trials = json.loads(planned_for_h100(sweep, "--format", "json"))["trials"]
    ordered = sorted(trials, key=lambda one: str(one["config"]["precision"]))
    asked = (("--explain", one["trial_id"], "--format", "json") for one in ordered)
    wide, narrow = (json.loads(planned_for_h100(sweep, *words)) for words in asked)
    saved = wide["beyond_autocast"][part]
    assert wide["beyond_autocast"].keys() == {part} and not narrow["beyond_autocast"]
    products = [one["measured_per_predicted"] * one["parts"][part]["products"] for one in (wide, narrow)]
    assert saved == pytest.approx(products[0] - products[1], rel=0.1) and saved > 0.1 * products[0]
    words = f"{part} computes in float32, which autocast does not reach; precision: bf16_pure would save"
    sentence = f"{words} {1e3 * saved:.3g} of {1e3 * wide['expected_step_seconds']:.3g} ms"
    assert sentence in planned_for_h100(sweep, "--explain", wide["trial_id"])
    assert planned_for_h100(sweep).count(sentence) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_a_run_says_it_before_its_first_trial_and_knows_the_time_of_own_code(tmp_path: Path) -> None:
    sweep = sweep_outside_autocast(tmp_path, "mine.py:Model", ["bf16"])
    where = Where(store=str(tmp_path / "store"), device="H100")
    what = What(sweep=str(sweep), code=str(tmp_path))
    planned = make_planned(what, where, How(budget="5s"), will_run=True)  # so little that nothing starts ahead
    found = prepare(planned, began=0.0, address=None)
    assert len(found.advice) == 1 and found.advice[0].startswith("wide computes in float32")
    assert found.estimate.without == 0


def test_the_step_of_attention_alone_is_not_that_of_the_whole_model_it_is_in(sweep: Path) -> None:
    planned = make_planned(What(sweep=str(sweep)), Where(device="H100"), How())
    _, steps = estimate_planned(planned)
    whole = planned.plan.trials[0]
    alone, noop = (replace(whole, trial=replace(whole.trial, workloads=(name,))) for name in ("attention", "noop"))
    assert isinstance(steps.of(whole), StepEstimate)
    assert isinstance(steps.of(alone), Refusal) and steps.of(noop) is None
