"""`lmsweep export`: the tables and figures of a course's problems, from stores that ship with lmsweep."""

import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from lmsweep.analysis import load
from lmsweep.analysis.tables.pivot import pivot
from lmsweep.orchestrator.features.course.chosen import found_in, rows_of_trials
from lmsweep.orchestrator.features.course.figures import lines
from lmsweep.orchestrator.features.course.formats import Request, write
from lmsweep.orchestrator.features.course.problems import PROBLEMS
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import RequestError, TrialConfig
from tests.support.command import ROOT, lmsweep_here, refused_here
from tests.support.made_up_results import Attempts, samples

SWEEP = str(Path(__file__).with_name("references.yaml"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store with the results of two reference sets."""
    store = tmp_path_factory.mktemp("references")
    for name in ("h200-end-to-end", "h200-x2-ddp"):
        for table in (ROOT / "analysis/reference" / name).iterdir():
            (store / table.name).mkdir(exist_ok=True)
            shutil.copy(table / f"{table.name}.parquet", store / table.name / f"{name}.parquet")
    return store


@pytest.fixture(scope="module")
def folder(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What export wrote of two problems that are measured and one that is not."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("writeup") / "new"
    grids = ("benchmarking_mixed_precision", "ddp_overlap_individual_parameters_benchmarking", "leaderboard")
    wanted = [word for name in grids for word in ("--grid", name)]
    said = lmsweep_here("export", SWEEP, store, "-o", folder, *wanted)
    assert "2 figures of 3 problems" in said and "not all measured: leaderboard" in said
    return folder


def test_a_problem_is_written_in_three_languages_with_its_conditions_its_flags_and_its_figures(folder: Path) -> None:
    for suffix in ("md", "tex", "typ"):
        text = (folder / f"benchmarking_mixed_precision.{suffix}").read_text("utf-8")
        plain = text.replace("\\", "")
        assert "Full vs reduced precision" in text and "NVIDIA H200" in text, suffix
        assert "device_name" in plain and "host_bound: The CPU launched work too slowly" in plain, suffix
        assert "figures/benchmarking_mixed_precision-precisions." in text, suffix
    assert len(list((folder / "figures").iterdir())) == 4
    for path in folder.glob("*_*.md"):
        for name in re.findall(r"\]\((figures/[^)]+)\)", path.read_text("utf-8")):
            assert (folder / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
            assert "<svg" in (folder / name).with_suffix(".svg").read_text("utf-8")
    for path in folder.glob("*.tex"):
        text = re.sub(r"(?<!\\)%.*", "", path.read_text("utf-8"))
        opened, closed = (re.findall(rf"\\{word}\{{(\w+)\}}", text) for word in ("begin", "end"))
        assert sorted(opened) == sorted(closed) and text.count("{") == text.count("}"), path.name
        without_paths = re.sub(r"\\(includegraphics(\[[^]]*\])?|input)\{[^}]*\}", "", text)
        assert not re.search(r"(?<!\\)[_#]", without_paths), path.name


def test_the_same_results_give_the_same_figures(store: Path, folder: Path, tmp_path: Path) -> None:
    name = "benchmarking_mixed_precision"
    grids = {name: load_sweep(SWEEP).grids[name]}
    write(Request(store=str(store), folder=tmp_path / "again", grids=grids, command=str))
    for path in (tmp_path / "again" / "figures").iterdir():
        assert path.read_bytes() == (folder / "figures" / path.name).read_bytes(), path.name


def test_the_index_names_what_is_missing_and_the_command_that_measures_it(folder: Path) -> None:
    index = (folder / "index.md").read_text("utf-8")
    assert "| [benchmarking_mixed_precision](benchmarking_mixed_precision.md) | 1 | 1 | 10 of 10 measured |" in index
    assert "| 0 | 0 | 0 of 1 measured, 1 missing |" in index
    assert re.findall(r"^    lmsweep run .*$", index, flags=re.MULTILINE)[0].endswith(" --grid leaderboard")
    assert "benchmarking_mixed_precision: no table dtypes-toy: the store has no such results" in index


def test_the_readers_own_document_is_written_once_and_includes_every_problem(folder: Path, store: Path) -> None:
    for suffix, include in (("typ", '#include "leaderboard.typ"'), ("tex", r"\input{leaderboard.tex}")):
        path = folder / f"writeup.{suffix}"
        assert include in path.read_text("utf-8")
        path.write_text("my answers", "utf-8")
    lmsweep_here("export", SWEEP, store, "-o", folder, "--grid", "leaderboard")
    assert (folder / "writeup.typ").read_text("utf-8") == "my answers"


def test_the_users_code_appears_beside_what_it_stands_in_for(attempts: Attempts) -> None:
    trials = load_sweep(SWEEP).grids["pytorch_attention"]
    ours = trials[0].config
    mine = replace(ours, attention="mine.flash:Flash", attention_args='{"tile":64}')
    for measured in (ours, mine, replace(mine, context_length=333), replace(ours, attention="sdpa")):
        attempts.ok(measured, {"forward.time": samples(0.01, 1e-4)}, workload="attention")
    frame = load(attempts.store)
    kept = rows_of_trials(frame, trials)
    assert sorted(kept["attention"]) == ["mine.flash:Flash", "naive"]
    assert set(kept["context_length"]) == {ours.context_length}
    found = found_in(frame, trials)
    assert (found.asked, found.ok, found.missing) == (20, 1, 19)
    assert len(found.lacking) == 19 and "attention: d_model 16, context_length 1024: missing" in found.lacking


def test_a_model_of_the_users_stands_in_for_any_size(attempts: Attempts) -> None:
    trials = load_sweep(SWEEP).grids["benchmarking_mixed_precision"]
    mine = replace(trials[0].config, model="GPT", model_code="mine.model:GPT", d_model=96, num_layers=3, vocab_size=50)
    for measured in (mine, replace(mine, precision="fp16")):
        attempts.ok(measured, {"step.time": samples(0.01, 1e-4)})
    assert list(rows_of_trials(load(attempts.store), trials)["precision"]) == ["tf32"]


def test_a_line_has_one_colour_in_all_panels_and_a_legend_though_it_is_not_in_the_first(attempts: Attempts) -> None:
    pytest.importorskip("matplotlib")
    for width, attention, context in product((16, 32), ("sdpa", "naive"), (64, 128)):
        if (width, attention) != (16, "naive"):
            config = TrialConfig(device="cpu", d_model=width, attention=attention, context_length=context)
            attempts.ok(config, {"step.time": samples(0.01, 1e-4)}, workload="attention")
    keys = ["d_model", "attention", "context_length"]
    table = pivot(load(attempts.store), rows=keys, cols=[], values=["step.time"])
    first, second = lines(table, over="context_length", panels="d_model").axes
    drawn = [dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True)) for axes in (first, second)]
    color = [{name: one[0].get_color() for name, one in lines.items()} for lines in drawn]
    assert color[0].items() < color[1].items() and len({*color[1].values()}) == len(color[1]) == 2
    assert {text.get_text() for text in first.get_legend().get_texts()} == {*color[1]}


@pytest.mark.slow
def test_what_no_device_supports_has_its_reason_and_is_not_missing(attempts: Attempts, tmp_path: Path) -> None:
    trials = load_sweep("cs336-2026").grids["distributed_communication_single_node"]
    six = [trial.config for trial in trials if trial.config.world_size == 6]
    attempts.ok(trials[0].config, {"collective.time": samples(0.01, 1e-4)}, workload="collectives")
    nowhere = Fingerprint(device_name="no cuda device for 6 ranks", torch_version="2.11.0", python_version="3.12")
    for config in six:
        attempts.failed(
            config, "unsupported", workload="collectives", error="world_size 6 needs 6 GPUs", fingerprint=nowhere
        )
    lmsweep_here("export", "cs336-2026", tmp_path / "results", "-o", tmp_path / "writeup")
    page = (tmp_path / "writeup" / "distributed_communication_single_node.md").read_text()
    assert "- 1 of 12 measured, 4 unsupported, 7 missing. The rest: " in page
    assert page.count(": unsupported (world_size 6 needs 6 GPUs)") == 4


def test_every_problem_has_its_grids_in_the_packaged_sweeps_and_another_sweep_is_refused_with_their_names(
    store: Path, tmp_path: Path
) -> None:
    for name in ("cs336-2026", "cs336-2026-tiny"):
        assert list(PROBLEMS) == list(load_sweep(name).grids)
    request = Request(store=str(store), folder=tmp_path / "new", grids={"mine": ()}, command=str)
    with pytest.raises(RequestError, match=r"give `name: PROBLEM` to a grid, one of: benchmarking_script"):
        write(request)
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_every_problem_of_the_tiny_sweep_is_measured_and_written_and_typst_takes_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    store, folder = tmp_path / "results", tmp_path / "writeup"
    lmsweep_here("run", "cs336-2026-tiny", "--store", store)
    lmsweep_here("export", "cs336-2026-tiny", store, "-o", folder)
    index = (folder / "index.md").read_text("utf-8")
    assert "missing" not in index and "## Not made" not in index
    for name, problem in PROBLEMS.items():
        assert f"| [{name}]({name}.md) | {len(problem.tables)} |" in index
    typst = pytest.importorskip("typst")
    assert typst.compile(str(folder / "writeup.typ")).startswith(b"%PDF")


def test_export_replaces_only_what_it_has_written_and_follows_no_link(attempts: Attempts, tmp_path: Path) -> None:
    attempts.ok(load_sweep(SWEEP).grids["leaderboard"][0].config, {"step.time": samples(0.01, 1e-4)}, workload="ddp")
    words = ("export", SWEEP, attempts.store.location, "--grid", "leaderboard", "-o")
    documents, linked, figures, late = (tmp_path / name for name in ("documents", "linked", "figures", "late"))
    for folder in (documents, linked, figures):
        folder.mkdir()
    for name in ("index.md", "leaderboard.md"):
        (documents / name).write_text("a thesis")
        (linked / name).symlink_to(documents / name)
        assert "was not written by `lmsweep export`" in refused_here(*words, documents)
    (figures / "figures").symlink_to(documents)
    for folder in (linked, figures):
        assert "is a link" in refused_here(*words, folder)
    for _ in range(2):
        lmsweep_here(*words, late)
        (late / "leaderboard.md").unlink()
        (late / "leaderboard.md").symlink_to(documents / "leaderboard.md")
    assert {path.name for path in late.iterdir()} >= {"index.md", "leaderboard.md", "writeup.tex"}
    assert {path.read_text() for path in documents.iterdir()} == {"a thesis"} and len(list(documents.iterdir())) == 2
