"""Models that were not written for lmsweep run unedited: measured, predicted and counted."""

import contextlib
import importlib.util
import math
import os
import socket
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.analytic.memory_prediction import memory_id
from lmsweep.trials.analytic.prediction_question import Question
from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.code.digest import code_digest, code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.code.traceback_text import CodeError
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.users.hugging_face import from_hugging_face
from lmsweep.trials.model.users.layer_kinds import layers_of, only
from lmsweep.trials.model.users.users_model import repeated_layers
from lmsweep.trials.prediction.flop_count import count_flops
from lmsweep.trials.prediction.own_code_jobs import answer_with_code
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.process_pool import Batch
from lmsweep.trials.results.measurement import Kernel
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Attempt, DetailRow, Record
from lmsweep.trials.spec.config import RequestError, Trial, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import Code
from lmsweep.trials.store.store import Store
from tests.support.clean_process import in_clean_process
from tests.support.trial_here import run_here
from tests.support.whole_steps import flops_by_phase

pytestmark = pytest.mark.usefixtures("one_core")

FOLDER = Path(__file__).parent / "folder"
CODE = code_folder(FOLDER)
ZOO = ("NanoGPT", "Encoder", "ConvModel", "ScanModel")
HUGGING_FACE = ("gpt2", "llama", "qwen3", "gemma", "mixtral")


USUAL: dict[str, Any] = {"vocab_size": 512, "context_length": 32, "batch_size": 2, "attention": "sdpa"}
USUAL |= {"warmup_steps": 1, "measure_steps": 2}


def config(name: str, **fields: Any) -> TrialConfig:
    reference = f"hf:hf/{name}.json" if name in HUGGING_FACE else f"zoo.py:{name}"
    return TrialConfig(model=name, model_code=reference, **(USUAL | fields))


@cache
def measured(workload: str, one: TrialConfig) -> list[Any]:
    rows = run_here(Trial(config=one, workloads=(workload,), sweep="s", code=CODE))
    failures = [row.error for row in rows if isinstance(row, Record) and row.status != "ok"]
    assert not failures, failures[0]
    return [row.detail if isinstance(row, DetailRow) else row for row in rows]


def sample(rows: list[Any], phase: str, metric: str) -> float:
    (row,) = [row for row in rows if isinstance(row, Record) and (row.phase, row.metric) == (phase, metric)]
    assert row.samples, row.error
    return float(row.samples[-1])


@pytest.fixture(autouse=True)
def _code(forget_code: None) -> None:
    use_code(CODE)


has_transformers = importlib.util.find_spec("transformers") is not None
needs_transformers = pytest.mark.skipif(not has_transformers, reason="transformers is not installed")
MODELS = [*ZOO, *(pytest.param(name, marks=[pytest.mark.slow, needs_transformers]) for name in HUGGING_FACE)]


PURE = {"precision": "bf16_pure", "checkpointing": "block"}
WAYS: tuple[dict[str, Any], ...] = ({"precision": "bf16"}, PURE, {"mode": "forward"})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fields", [{}, *(pytest.param(one, marks=pytest.mark.slow) for one in WAYS)], ids=str)
def test_the_peak_predicted_without_storage_is_the_measured_one_within_two_percent(
    name: str, fields: dict[str, Any]
) -> None:
    one = config(name, **fields)
    peak = sample(measured("memory", one), "step", "peak_tensors")
    assert predict(one).peak == pytest.approx(peak, rel=0.02)


@pytest.mark.parametrize("name", MODELS[:-1])  # PyTorch's counter does not know the grouped products of the last
def test_flops_are_those_that_pytorch_counts_on_real_tensors(name: str) -> None:
    one = config(name, mode="forward_backward")
    found = count_flops(one)
    assert found.forward and [found.forward, found.backward] == flops_by_phase(TrainingStep(one, MathMode()))


def test_timing_stores_the_flops_of_each_phase() -> None:
    rows = measured("timing", config("NanoGPT"))
    forward, backward = sample(rows, "forward", "flops"), sample(rows, "backward", "flops")
    assert sample(rows, "step", "flops") == forward + backward
    (unknown,) = [row for row in measured("timing", config("Looking")) if row.phase == "step" and row.metric == "flops"]
    assert unknown.samples is None and "without values" in unknown.reason


@pytest.mark.parametrize("name", ["Linear", "NanoGPT", "ScanModel"])
def test_every_precision_is_compared_with_float64(name: str) -> None:
    rows = measured("precision", config(name, precision="bf16"))
    assert 0 < sample(rows, "logits", "relative_error") < 0.1
    assert math.isfinite(sample(rows, "gradients", "relative_error"))


def test_profile_ranges_have_the_paths_of_modules_and_the_users_own_names() -> None:
    rows = measured("profile", config("NanoGPT", mode="forward_backward"))
    ranges = {row.range for row in rows if isinstance(row, Kernel)}
    assert {"transformer.h.3.attn", "backward of transformer.h.3.attn", "transformer.wte", "lm_head"} <= ranges
    assert {"my_range", "backward of my_range"} <= ranges


def test_memory_names_the_users_lines_and_the_activations_of_each_block() -> None:
    rows = measured("memory", config("Encoder"))
    saved = [sample(rows, f"block{number}", "saved") for number in range(4)]
    assert len(set(saved[1:])) == 1 and saved[0] > 0
    lines = {row.line for row in measured("memory", config("ScanModel")) if getattr(row, "line", None)}
    assert any(line.startswith("zoo.py:") for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NanoGPT", "Encoder", "ConvModel", "ScanModel"])
@pytest.mark.parametrize("compiled", ["block", "model"])
def test_models_compile_as_blocks_and_whole(name: str, compiled: str) -> None:
    measured("timing", config(name, compile=compiled, num_layers=2))


@pytest.mark.parametrize(
    ("imported", "words"),
    [
        pytest.param("while True: pass", "did not finish on fake tensors within 3 s", marks=pytest.mark.slow),
        ("import os; os._exit(3)", "ended the process that predicts (exit code 3)"),
    ],
)
def test_an_import_that_hangs_or_ends_its_process_harms_no_plan(tmp_path: Path, imported: str, words: str) -> None:
    (tmp_path / "odd.py").write_text(f"{imported}\ndef make(vocab_size): ...\n")
    one = replace(config("NanoGPT"), model_code="odd.py:make")
    answers = in_clean_process(_answers, [Question(config=one)], code_folder(tmp_path), 3)
    assert answers == [(0, f"your code {words}")]


def _answers(batch: Batch, code: Code, limit: float) -> list[tuple[int, str]]:
    return list(answer_with_code(_peaks, [batch], code, str, limit=limit))


def _peaks(questions: Batch) -> list[str]:
    return [str(predict(one.config, one.subject).peak) for one in questions]


def test_a_prediction_is_kept_for_one_state_of_the_code(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    one = replace(config("NanoGPT"), model_code="mine.py:make")
    keys = set()
    for text in ("def make(): ...", "def make(): pass"):
        file.write_text(text)
        keys.add(memory_id(one, "model", code_digest(one.references, code_folder(tmp_path))))
    assert len(keys) == 2


def block(width: int) -> nn.Module:
    experts = nn.ModuleList(nn.Sequential(nn.Linear(4, width), nn.Linear(width, 4)) for _ in range(8))
    return nn.ModuleDict({"norm": nn.LayerNorm(4), "experts": experts})


@pytest.mark.parametrize("widths", [(8, 8, 8), (16, 8, 8)], ids=["equal", "the first is wider"])
def test_the_repeated_layers_are_the_outermost_list_not_the_experts_of_one(widths: tuple[int, ...]) -> None:
    embeddings = nn.ModuleList(nn.Embedding(5, 4) for _ in range(6))
    model = nn.ModuleDict({"embeddings": embeddings, "layers": nn.ModuleList(map(block, widths))})
    assert str(repeated_layers(model, None)) == "layers (3 x ModuleDict)"
    assert str(repeated_layers(model, "layers.1.experts")) == "layers.1.experts (8 x Sequential)"


def test_what_only_the_users_model_knows_is_unknown_in_its_rows() -> None:
    unknown = ("d_model", "feed_forward", "tied_head", "qk_norm", "attention")
    given = next(row for row in measured("timing", config("NanoGPT")) if isinstance(row, Record))
    assert given.unknown == unknown[:-1], "sdpa was given, and PyTorch's kernel is chosen by it"
    plain = Attempt.begin(Trial(config=replace(config("NanoGPT"), attention="naive"), workloads=("timing",), sweep="s"))
    assert plain.failure("timing", Status.ERROR, "", fingerprint("cpu")).unknown == unknown
    assert plain.failure("attention", Status.ERROR, "", fingerprint("cpu")).unknown == ()


def trial_of(fixed: str, folder: Path) -> TrialConfig:
    path = folder / "s.yaml"
    path.write_text(f"name: s\ngrids:\n  - workloads: [timing]\n    fixed: {{{fixed}}}\n")
    (trial,) = load_sweep(str(path), code=str(FOLDER)).trials
    return trial.config


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("'hf:hf/llama.json'", (512, 4)),
        ("{hf: hf/gpt2.json, override: {n_layer: 2, vocab_size: 100}}", (100, 2)),
        ("{hf: 'hf:hf/llama.json', override: {num_hidden_layers: 3}}", (512, 3)),
        ("{call: 'hf:hf/llama.json', override: {num_hidden_layers: 3}}", (512, 3)),
        ("{call: 'hf:hf/llama.json', args: {num_hidden_layers: 3}}", (512, 3)),
        ("{call: 'zoo.py:NanoGPT', args: {vocab_size: 300, num_layers: 2}}", (300, 2)),
    ],
)
def test_dimensions_are_those_of_a_json_or_of_arguments_with_the_overrides(model, known, tmp_path: Path) -> None:
    one = trial_of(f"model: {model}", tmp_path)
    assert (one.vocab_size, one.num_layers) == known
    assert "llama" not in model or (one.d_model, one.num_heads) == (64, 4)


def test_a_dimension_beside_a_hugging_face_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="the Hugging Face configuration states vocab_size; use override"):
        trial_of("model: 'hf:hf/llama.json', vocab_size: 100", tmp_path)
    with pytest.raises(RequestError, match="there is no file"):
        trial_of("model: 'hf:hf/lama.json'", tmp_path)


def test_the_vocabulary_of_a_name_that_is_not_in_the_hubs_cache_is_null_and_the_plan_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.warns(UserWarning, match="hf:some/model: .* dimensions are unknown, and null in the results"):
        one = trial_of("model: 'hf:some/model'", tmp_path)
    attempt = Attempt.begin(Trial(config=one, workloads=("timing",), sweep="s"))
    store = Store(str(tmp_path / "store"))
    store.keep([attempt.failure("timing", Status.ERROR, "", fingerprint("cpu"))])
    assert store.read()[0]["vocab_size"].to_pylist() == [None]


def test_a_loss_is_refused_by_a_model_that_computes_its_own() -> None:
    with pytest.raises(UnsupportedError, match=r"zoo\.py:LastToken computes its own loss; loss cross_entropy"):
        TrainingStep(config("LastToken", loss="cross_entropy"), MathMode())
    TrainingStep(config("NanoGPT", loss="cross_entropy"), MathMode())


def fetched(environment: dict[str, str]) -> str:
    """What it says of a name on the hub. The address of the hub is read when huggingface_hub is imported."""
    os.environ.update(environment)
    use_code(CODE)
    with pytest.raises(ValueError) as refused:
        from_hugging_face(TrialConfig(model_code="hf:some/model", vocab_size=0), {}, dtype=torch.float32)
    return str(refused.value)


@needs_transformers
def test_a_name_on_the_hub_is_asked_for_once_and_one_sentence_says_how_to_fetch_it(tmp_path: Path) -> None:
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as hub:
        address = f"http://127.0.0.1:{hub.getsockname()[1]}"

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    hub.accept()[0].close()
                    asked.append(1)

        threading.Thread(target=hang_up, daemon=True).start()
        environment = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_TELEMETRY": "1"}
        said = in_clean_process(fetched, environment)
    assert said == (
        "hf:some/model: its config.json is not in the hub's cache, and the hub cannot be reached; fetch it where there "
        "is a network: hf download some/model config.json"
    )
    assert len(asked) == 1


@pytest.mark.parametrize("name", ["ByName", "Masked", "LastToken", "LossFirst", "InMapping"])
def test_forwards_and_outputs_are_accepted_by_name_and_a_models_own_loss_counts(name: str) -> None:
    """Keyword-only tokens; a mask and positions, or targets for all logits; (loss, logits), a dict with both."""
    step = TrainingStep(config(name), MathMode())
    step.forward()
    assert step.logits is not None and step.logits.shape == (2, 32, 512) and step.loss is not None
    usual = torch.nn.functional.cross_entropy(step.logits.flatten(0, 1), step.targets.flatten())
    torch.testing.assert_close(step.loss, usual if name in ("ByName", "Masked") else 2 * usual)


def test_a_forward_that_requires_what_lmsweep_cannot_make_is_refused_with_what_to_write() -> None:
    words = (
        r"zoo.py:\d+: Pair has a forward that requires memory; .* forward\(tokens\) gives memory and returns the logits"
    )
    with pytest.raises(CodeError, match=words):
        TrainingStep(config("Pair"), MathMode())


class Layer(nn.Module):
    def __init__(self, place: int, width: int, window: int | None = None, scale: float = 1.0) -> None:
        super().__init__()
        self.place, self.window, self.scale = place, window, scale
        self.linear = nn.Linear(width, width)


@pytest.mark.parametrize(
    ("layers", "kinds"),
    [
        ([Layer(i, 4 if i < 1 else 8) for i in range(4)], (0, 1, 1, 1)),
        ([Layer(i, 8, window=None if i % 2 else 16) for i in range(4)], (0, 1, 0, 1)),
        ([Layer(i, 8, scale=0.5**i) for i in range(3)], (0, 0, 0)),
        ([Layer(i, 8, scale=float(i > 0)) for i in range(3)], (0, 1, 1)),
    ],
    ids=["widths", "windows", "scales", "no scale"],
)
def test_layers_of_equal_modules_weights_and_settings_are_alike(layers: list[Layer], kinds: tuple[int, ...]) -> None:
    model = nn.ModuleDict({"embedding": nn.Embedding(5, 8), "layers": nn.ModuleList(layers)})
    found = layers_of(model)
    assert found is not None and (found.path, found.kinds) == ("layers", kinds)


class Other(Layer):
    """Has no __init__ of its own."""


class Both(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList((Layer, Other)[place % 2](place, 8) for place in range(4))


def test_layers_are_left_out_whatever_class_makes_them() -> None:
    found = layers_of(Both())
    assert found is not None and found.kinds == (0, 1, 0, 1)
    with only(found, [1, 2]) as finish:
        shallow = Both()
        finish(shallow)
    assert [(type(one).__name__, one.place) for one in shallow.layers] == [("Other", 1), ("Layer", 2)]
    assert layers_of(Both()) == found and "__init__" not in vars(Other)


def test_a_model_with_a_layer_outside_its_list_is_run_whole() -> None:
    assert layers_of(nn.ModuleDict({"layers": nn.ModuleList([Layer(0, 8), Layer(1, 8)]), "extra": Layer(2, 8)})) is None
    assert layers_of(nn.Linear(2, 2)) is None
