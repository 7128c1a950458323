"""`lmsweep accept`: its judgement, on rows of shipped sets as if they had just been measured, and on this machine."""

import json
import re
from dataclasses import replace
from pathlib import Path
from shutil import copy
from types import SimpleNamespace
from typing import cast

import jsonschema
import pytest
import torch

from lmsweep.analysis import reference
from lmsweep.analysis.data.open_store import open_store
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.render import render
from lmsweep.orchestrator.features.accept.accept_text import (
    advice,
    compared_with,
    explanations,
    listing_of,
    name_of,
    paragraphs,
    telemetry,
)
from lmsweep.orchestrator.features.accept.acceptance import Acceptance, Condition, NodeSeen, UnitVerdict, accept
from lmsweep.orchestrator.features.accept.accepting import answer_of, predicted_phase, write_page
from lmsweep.orchestrator.features.accept.parts import COLUMNS, Process, processes_in, shipped
from lmsweep.orchestrator.features.report.content import content_of
from lmsweep.orchestrator.features.schema.json_schemas import schema_of
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.analytic.datasheets import device_named
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.store.store import Store
from tests.support.browser import beyond_a_screen
from tests.support.command import lmsweep, lmsweep_here, refused_here
from tests.support.simulated_machines import BYTES, Case, public_verdicts, verdicts

SHIPPED = shipped(trial_id(trial.config) for trial in load_sweep("accept").trials)
GPU_OF = {"h200": "NVIDIA H200", "h100": "NVIDIA H100 80GB HBM3"}


def measured(
    *sources: str, node: str = "a", slower: float = 1.0, of: str = "", flag: Flag | None = None
) -> list[Process]:
    """The processes of shipped sets as one GPU of a node measured them; times of a part, or of all, are longer."""
    flags = frozenset[str]({flag} if flag else ())
    return [
        replace(
            one,
            node=node,
            gpu=f"GPU-{node}",
            machine=node if one.judged.unit == "host" else f"GPU-{node}",
            seconds=one.seconds * (slower if one.judged.part.startswith(of) else 1.0),
            flags=one.flags | flags,
        )
        for one in SHIPPED
        if one.source in sources
    ]


def again(rows: list[Process], times: int = 1) -> list[Process]:
    """A history: the same measurements in earlier attempts."""
    return [replace(one, attempt_id=f"{one.attempt_id}{i}") for one in rows for i in range(times)]


def explained(found: Acceptance) -> str:
    return " ".join(explanations(found))


def seen(node: str = "a", *conditions: Condition, name: str = "h200") -> NodeSeen:
    return NodeSeen(node=node, gpus={f"GPU-{node}": "GPU 0"}, device_name=GPU_OF[name], conditions=conditions)


def unit(found: Acceptance, name: str, node: str = "a") -> UnitVerdict:
    return next(one for of_node, one in found.units if (of_node.node, one.unit) == (node, name))


@pytest.mark.parametrize("name", ["H200 SXM", "A100 SXM 80GB"])
def test_only_gpus_and_links_are_compared_with_a_gpu_and_cores_only_with_their_own_history(name: str) -> None:
    rows = measured("h200-accept")
    assert {one.judged.part for one in rows if one.judged.kind == "cpu"} == {"product", "copy", "step"}
    for sets in (SHIPPED, ()):
        for history in ((), again(rows)):
            found = accept(rows, [seen()], device_named(name), shipped=sets, history=history)
            for part in unit(found, "host").parts:
                allowed = {None, "its own history", "hosts of the shipped sets"}
                assert part.against in (allowed if part.part == "launches" else allowed - {"hosts of the shipped sets"})
                assert part.verdict in ("pass", "not judged"), part
            for one in ("GPU 0", "links"):
                for part in unit(found, one).parts:
                    assert part.against is None or "hosts" not in part.against


@pytest.mark.parametrize("held_out", ["GPU-1", "GPU-2"])
def test_a_healthy_h200_passes_by_the_sets_without_it_the_first_time_and_again(held_out: str) -> None:
    of_another = [one for one in SHIPPED if one.judged.unit == "GPU" and one.gpu != held_out]
    others = [one for one in SHIPPED if one.source != "h200-accept" or one in of_another]
    kept = {one.attempt_id for one in SHIPPED if one.gpu in ("", held_out) or one.judged.unit == "links"}
    rows = [one for one in measured("h200-accept") if one.attempt_id in kept]
    assert len({one.judged.part for one in rows}) == 9
    for history in ((), again(rows)):
        found = accept(rows, [seen()], shipped=others, history=history)
        assert found.verdict == "pass", list(explanations(found))
        assert {one.verdict for _, one in found.units} <= {"pass"}


def test_an_h100_of_another_machine_passes_as_what_it_is_and_is_slow_as_an_h200() -> None:
    others = [one for one in SHIPPED if one.source != "h100-accept"]
    rows = measured("h100-accept")
    found = accept(rows, [seen(name="h100")], shipped=others)
    assert found.verdict == "pass" and found.expected_device == "H100 SXM"
    against = {part.part: str(part.against) for part in unit(found, "GPU 0").parts}
    assert against["product"] == "the shipped sets of H200 SXM, the same chip" and "public rates" in against["copy"]
    assert accept(rows, [seen(name="h100")], shipped=SHIPPED).verdict == "pass"
    as_h200 = unit(accept(rows, [seen(name="h100")], device_named("H200 SXM"), shipped=others), "GPU 0")
    slow = {part.part: part.ratio for part in as_h200.parts if part.verdict == "slow"}
    assert slow.keys() == {"copy", "update", "step"} and slow["copy"] == pytest.approx(1.38, abs=0.01)


def test_links_without_p2p_are_not_judged_slow_and_each_part_says_what_it_is_compared_with() -> None:
    kept = [one for one in SHIPPED if one.source == "h200-accept"]
    rows = [replace(one, node="a", machine="a" if one.judged.unit == "host" else one.machine) for one in kept]
    p2p = Condition("links", "NCCL_P2P_DISABLE=1 is set here", disturbs=True)
    gpus = {"GPU-1": "GPU 0", "GPU-2": "GPU 1"}
    warm = {"GPU 1": {"sm_clock": 1.98e9, "power": 511.0, "temperature": 54.0}}
    node = NodeSeen(node="a", gpus=gpus, device_name=GPU_OF["h200"], conditions=(p2p,), telemetry=warm)
    for slower, verdict in ((1, "pass"), (10, "cannot tell")):
        now = [replace(one, seconds=one.seconds * slower) if one.judged.unit == "links" else one for one in rows]
        found = accept(now, [node], shipped=SHIPPED)
        assert found.verdict == verdict
    assert "NCCL_P2P_DISABLE=1" in explained(found)
    assert telemetry(found) == ["During the step of large: GPU 1 1.98 GHz 511 W 54 degC"]
    assert compared_with(found) == [
        "GPU: the shipped sets of H200 SXM, n = 2 to 3",
        "links: the shipped sets of H200 SXM, n = 2",
        "host product, copy, step: not judged, no undisturbed history of this CPU yet",
        "host launches: hosts of the shipped sets, n = 4",
    ]


def test_a_tenth_longer_is_slow_and_is_named() -> None:
    found = accept(measured("h200-devices", slower=1.1), [seen()], shipped=SHIPPED)
    assert unit(found, "GPU 0").verdict == "slow"
    assert {part.part for _, one in found.units for part in one.parts if part.verdict == "slow"} == {"step", "update"}
    assert "Slow: GPU 0" in advice(found)
    assert re.search(r" takes 1[01] % \(.* also .*step of large 10 %", explained(found))
    limited = Condition("GPU 0", "its power limit is 500 W of 700 W by default")
    found = accept(measured("h200-devices", slower=1.2), [seen("a", limited)], shipped=SHIPPED)
    assert unit(found, "GPU 0").verdict == "slow" and "500 W" in explained(found), "a cause is no excuse"


def test_workloads_of_one_attempt_keep_their_own_times_of_a_phase_that_both_have() -> None:
    rows = open_store("h200-accept").rows(COLUMNS, trial_id={one.cell.trial_id for one in SHIPPED})
    attention, timing = ([one for one in rows if one["workload"] == name] for name in ("attention", "timing"))
    for of_workload in (attention, timing):
        assert ("forward", "time") in [(one["phase"], one["metric"]) for one in of_workload]
    together = [*attention, *(one | {"attempt_id": attention[0]["attempt_id"]} for one in timing)]
    store = cast(Store, SimpleNamespace(rows=lambda columns, trial_id: together))
    found = [one.seconds for one in processes_in(store, "h200-accept", ()) if one.cell.workload == "attention"]
    alone = [one for one in SHIPPED if one.source == "h200-accept" and one.cell.workload == "attention"]
    assert found == [one.seconds for one in alone]


def test_how_much_longer_a_part_takes_on_a_busy_host_is_no_figure_beyond_twice() -> None:
    condition = Condition("host", "other processes use 31.0 cores", disturbs=True)
    rows = measured("h200-devices", slower=70, of="launches")
    found = accept(rows, [seen("a", condition)], shipped=SHIPPED)
    assert unit(found, "host").verdict == "cannot tell"
    assert "launches of small takes more than twice as long as hosts of the shipped sets" in explained(found)
    assert listing_of(found).frame.set_index("part").loc["launches of small", "time"] == "> +100 %"
    assert "Cannot tell about host: other processes use 31.0 cores. Remove the cause" in advice(found)
    printed = " ".join(render(one, "text") if isinstance(one, Listing) else one for one in paragraphs(found))
    assert not re.search(r"\d{3,} %", printed.replace("+100 %", ""))
    slow = accept(rows, [seen()], shipped=SHIPPED)
    assert re.search(r"launches of small takes \d{4} % ", explained(slow)), "of an idle host it is a finding"


def test_a_gpu_that_another_process_uses_is_named_as_such_and_not_called_slow() -> None:
    used = Condition("GPU 0", "another process uses this GPU (1 processes, 5 GiB, 97 % busy)", disturbs=True)
    for flag, seen_as in ((None, seen("a", used)), (Flag.SHARED_GPU, seen())):
        rows = measured("h200-devices", slower=2, flag=flag)
        found = accept(rows, [seen_as], shipped=SHIPPED)
        assert unit(found, "GPU 0").verdict == "cannot tell"
        assert "another process" in explained(found)
        host = accept([*rows, *measured("h200-accept", slower=9)], [seen_as], shipped=SHIPPED)
        assert unit(host, "host").verdict == unit(host, "links").verdict == "cannot tell"


def test_a_pass_says_which_parts_were_not_judged() -> None:
    unknown = [one for one in SHIPPED if one.judged.part != "launches"]
    said = [advice(accept(measured("h200-devices"), [seen()], shipped=shipped)) for shipped in (SHIPPED, unknown)]
    assert said[0].startswith("Pass: as fast as H200 SXM should be. ")
    assert said[1].startswith("Pass: as fast as H200 SXM should be, by 4 of 5 parts (host launches: not judged). ")


def test_collectives_over_pcie_are_named_and_no_gpu_is_called_slow() -> None:
    rows = measured("h200-devices") + measured("h200-x2-fsdp", slower=12)
    found = accept(rows, [seen()], shipped=SHIPPED)
    assert unit(found, "GPU 0").verdict == "pass" and unit(found, "links").verdict == "slow"
    assert "over PCIe or the host's memory" in explained(found)


def test_the_answer_of_eight_nodes_with_eight_gpus_names_the_slow_gpu_in_a_screen() -> None:
    nodes, rows = [], []
    for i in range(8):
        gpus = {f"GPU-{i}{j}": f"GPU {j}" for j in range(8)}
        nodes.append(NodeSeen(node=f"node{i}", gpus=gpus, device_name=GPU_OF["h200"]))
        for j, gpu in enumerate(gpus):
            slower = 1.15 if (i, j) == (3, 5) else 1.0
            mine = [one for one in measured("h200-devices", node=f"node{i}", slower=slower) if one.judged.unit == "GPU"]
            rows += [replace(one, gpu=gpu, machine=gpu) for one in mine]
    found = accept(rows, nodes, shipped=SHIPPED)
    assert advice(found).startswith("Slow: node3 GPU 5. ")
    shown = [part if isinstance(part, str) else render(part, "text") for part in paragraphs(found)]
    lines = [line for part in shown for line in part.splitlines()]
    assert len(lines) < 40 and max(len(line) for part in shown[:2] for line in part.splitlines()) <= 80
    assert any(re.match(r"node3 +GPU 5 slow \[\+16 %\]", line) for line in lines)
    assert any(re.match(r"node4 +pass \[8 GPUs\]", line) for line in lines)


def test_other_gpus_are_judged_by_public_rates_that_say_so() -> None:
    of_unknown = [replace(one, device_name="GPU without a datasheet") for one in SHIPPED]
    found = accept(measured("h200-accept"), [seen()], device_named("B200 SXM"), shipped=[*SHIPPED, *of_unknown])
    parts = [part for part in unit(found, "GPU 0").parts if part.part in ("product", "copy")]
    assert len(parts) == 2
    assert all(part.against and part.against.startswith("public rates") and not part.machines for part in parts)
    assert unit(found, "GPU 0").verdict == "slow"
    assert listing_of(found).frame["expected"].str.endswith(" *").sum() == 4
    assert "* GPU product: public rates: published product of B200 SXM (AIConfigurator)" in compared_with(found)


def test_an_h200_takes_what_public_rates_say_of_products_copies_and_collectives() -> None:
    found = accept(measured("h200-accept"), [seen()], device_named("H200 SXM"), shipped=())
    parts = {part.part: part for _, one in found.units for part in one.parts if part.against}
    assert set(parts) == {"product", "copy", "all-reduce", "all-gather"}
    assert all(abs((part.ratio or 0) - 1) < 0.05 for part in parts.values())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "source"), [("H200 SXM", "h200-accept"), ("H100 SXM", "h100-devices")])
def test_steps_and_attention_of_a_gpu_take_what_is_predicted_of_it(name: str, source: str) -> None:
    found = accept(measured(source), [seen()], device_named(name), shipped=(), predicted=predicted_phase)
    parts = [part for part in unit(found, "GPU 0").parts if "predicted" in str(part.against)]
    assert {"step", "update"} <= {part.part for part in parts} and unit(found, "GPU 0").verdict == "pass"
    assert all(0.9 < (part.ratio or 0) < 1.1 for part in parts)


@pytest.mark.slow
def test_public_rates_find_gross_faults_only() -> None:
    runs = 100
    for together in (True, False):
        as_they_are = public_verdicts("A100 SXM 80GB", runs, common=together)
        assert as_they_are["pass"] >= 0.6 * runs and as_they_are["slow"] <= 0.05 * runs
        assert public_verdicts("A100 SXM 80GB", runs, slower=0.65, common=together)["pass"] <= 0.05 * runs
        assert public_verdicts("A100 SXM 80GB", runs, slower=1.0, common=together)["slow"] >= 0.9 * runs
        by_datasheet = public_verdicts("H100 NVL", runs, common=together)
        assert by_datasheet["pass"] == 0 and by_datasheet["slow"] <= 0.05 * runs


def test_without_a_gpu_the_history_of_the_same_cpu_decides() -> None:
    rows = [
        replace(one, judged=one.judged._replace(kind="cpu", unit="host"), gpu="") for one in measured("h200-accept")
    ]
    node = NodeSeen(node="a")
    first = accept(rows, [node], shipped=SHIPPED)
    assert first.verdict == "cannot tell" and "Nothing to compare with yet" in advice(first)
    earlier = again(rows, 3)
    assert accept(rows, [node], shipped=SHIPPED, history=earlier).verdict == "pass"
    slower = [replace(one, seconds=1.5 * one.seconds) for one in rows]
    assert accept(slower, [node], shipped=SHIPPED, history=earlier).verdict == "slow"
    elsewhere = [replace(one, machine="other", node="other") for one in earlier]
    assert accept(slower, [node], shipped=SHIPPED, history=elsewhere).verdict == "cannot tell"


def test_a_machine_on_which_the_promised_gpu_is_not_seen_does_not_pass() -> None:
    rows = [one for one in measured("h200-accept") if one.judged.kind == "cpu"]
    earlier = again(rows, 3)
    node = NodeSeen(node="a")
    found = accept(rows, [node], device_named("H200 SXM"), shipped=SHIPPED, history=earlier)
    assert found.verdict == unit(found, "GPU").verdict == "cannot tell" and unit(found, "host").verdict == "pass"
    assert advice(found) == "Cannot tell about GPU: no NVIDIA GPU is visible. Remove the cause and run it again."
    worker = accept([], [node, seen("b")], device_named("H200 SXM"), shipped=SHIPPED)
    assert all(one.unit != "GPU" for _, one in worker.units), "a head without a GPU is none that lost it"


def test_a_gpu_that_became_slower_is_slow_though_others_of_its_kind_are_as_slow() -> None:
    earlier = again(measured("h200-accept", slower=0.92), 4)
    now = measured("h200-accept", slower=1.02)
    assert unit(accept(now, [seen()], shipped=SHIPPED), "GPU 0").verdict == "pass"
    found = accept(now, [seen()], shipped=SHIPPED, history=earlier)
    assert unit(found, "GPU 0").verdict == "slow" and "own history" in explained(found)


def test_a_node_that_was_lost_and_a_unit_whose_trial_failed_are_undecided_and_the_others_are_judged() -> None:
    lost = NodeSeen(node="b", failures=(Condition("host", "the node was lost: it is dead"),))
    found = accept(measured("h200-devices"), [seen(), lost], shipped=SHIPPED)
    assert [node.verdict for node in found.nodes] == ["pass", "cannot tell"]
    assert advice(found).startswith("Cannot tell about b host: the node was lost: it is dead.")
    alone = accept([], [lost], shipped=SHIPPED)
    assert alone.verdict == "cannot tell" and "verdict" in render(listing_of(alone), "text")
    failed = replace(seen(), failures=(Condition("GPU 0", "attention ended as error: CUDA error"),))
    found = accept(measured("h200-devices"), [failed], shipped=SHIPPED)
    assert unit(found, "GPU 0").verdict == "cannot tell" and "CUDA error" in explained(found)


def test_every_line_has_what_was_measured_and_what_is_expected(tmp_path: Path) -> None:
    found = accept([one for one in measured("h200-accept") if one.judged.kind != "cpu"], [seen()], shipped=SHIPPED)
    frame = listing_of(found).frame.set_index("part")
    assert frame.loc["product", "measured"] == "689 TFLOP/s"
    assert frame.loc["copy", "measured"] == "4.15 TB/s"
    assert " to " in str(frame.loc["step of large", "expected"])
    written = json.loads(write_page(found, tmp_path / "accept.html"))
    jsonschema.Draft202012Validator(schema_of("accept")).validate(written)
    assert written["nodes"][0]["units"][0]["parts"][0]["seconds"] > 0
    assert {name_of(part) for _, one in found.units for part in one.parts} == set(frame.index)


def test_the_report_of_a_store_answers_whether_the_machine_is_as_fast_as_one_of_its_kind() -> None:
    content = content_of("h100-accept")
    assert content.question == "Is this machine as fast as one of its kind?"
    assert content.headline.startswith("Pass: as fast as H100 SXM")


def test_each_node_of_a_store_is_judged_as_its_own_kind(tmp_path: Path) -> None:
    (tmp_path / "measurements").mkdir()
    for name in ("h200-accept", "h100-accept"):
        folder = Path(reference.shipped()[name])
        copy(folder / "measurements/measurements.parquet", tmp_path / "measurements" / f"{name}.parquet")
    advised, _ = answer_of(str(tmp_path))
    assert advised.startswith("Pass: as fast as H200 SXM and H100 SXM")


@pytest.mark.slow
def test_the_page_fits_a_phone(tmp_path: Path) -> None:
    write_page(accept(measured("h200-accept"), [seen(), seen("b")], shipped=SHIPPED), tmp_path / "accept.html")
    assert beyond_a_screen(tmp_path / "accept.html", 390) == []


def test_simulated_machines_pass_and_a_tenth_slower_is_seldom_missed() -> None:
    runs = 30
    for machines in (1, 3):
        as_they_are = verdicts(Case(machines=machines), runs)
        slower = verdicts(Case(machines=machines, slower=0.1), runs)
        assert as_they_are["pass"] >= 0.85 * runs and as_they_are["slow"] <= 1
        assert slower["pass"] == 0 and slower["slow"] >= 0.75 * runs
    assert verdicts(Case(machines=3, slower=0.1, parts=BYTES), runs)["slow"] >= 0.9 * runs


def test_of_simulated_nodes_the_slow_one_is_named_and_hardly_ever_another() -> None:
    runs = 20
    for machines, nodes, least in ((0, 4, 0.9), (3, 2, 0.95)):
        found = verdicts(Case(machines=machines, nodes=nodes, slower=0.1), runs)
        assert found["slow"] >= least * runs and found["other"] <= 0.1 * runs, (machines, nodes, found)
    assert verdicts(Case(machines=3, nodes=8), runs)["other"] <= 0.1 * runs


@pytest.mark.slow
def test_a_step_and_attention_alone_are_expected_to_take_what_a_plan_predicts() -> None:
    gpu = device_named("A100 SXM 80GB")
    for trial in load_sweep("accept").grids["gpu"]:
        name = trial_id(trial.config)
        phases = ("forward", "backward") if "attention" in trial.workloads else ("step",)
        found = [predicted_phase(name, phase, gpu) for phase in phases]
        if None in found:
            continue
        planned = json.loads(lmsweep_here("plan", "accept", "--for", gpu.name, "--explain", name, "--format", "json"))
        expected = sum(one.spread.factor * one.time.computing for one in found if one)
        assert planned["measured_per_predicted"] * planned["device_seconds"] == pytest.approx(expected)


# The command on this machine: what is measured, stored and judged, and the files of the answer


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--as", "H20x"), "--as H20x: no such device; did you mean H20?"),
        (("-o", "nowhere/page.html"), "there is no folder nowhere"),
        (("--store", "h200-accept"), "h200-accept is a set that ships with lmsweep"),
        pytest.param(
            ("--as", "H200"),
            "--as H200 SXM: no NVIDIA GPU is visible here (",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="it is measured"),
        ),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_measured(words: tuple[str, ...], said: str, here: Path) -> None:
    refusal = refused_here("accept", *words)
    assert said in refusal and "measuring" not in refusal
    assert [*here.iterdir()] == []


@pytest.mark.slow
def test_the_host_alone_is_judged_by_its_own_history(tmp_path: Path) -> None:
    words = ("accept", "--store", tmp_path / "store", "-o", tmp_path / "page.html")
    first = lmsweep(*words)
    assert first.returncode == 1 and "The host alone: cannot tell" in first.stdout, first.stderr
    done = lmsweep(*words, "--format", "json")
    found = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema_of("accept")).validate(found)
    assert done.returncode == (found["verdict"] != "pass")
    assert json.loads((tmp_path / "page.json").read_text()) == found
    (host,) = found["nodes"][0]["units"]
    busy = any("CPU time" in cause or "other processes" in cause for cause in host["causes"])
    against = {part["against"] for part in host["parts"]}
    assert busy or against == {"its own history"}
    assert "own history" in (tmp_path / "page.html").read_text() or busy
