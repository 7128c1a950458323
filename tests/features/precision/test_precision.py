"""The workload `precision`: the published sums, norms and types, and errors against a float64 model of our own."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lmsweep.analysis import load
from lmsweep.analysis.data.results import Results
from lmsweep.orchestrator.features.precision.number_formats import number, reciprocal_rms
from lmsweep.orchestrator.features.precision.presets import accumulation_table, dtype_table
from lmsweep.orchestrator.features.precision.reference_pass import make_reference, scaled_gradients, underflow
from lmsweep.orchestrator.features.precision.tensor_dtypes import emulated_dtypes
from lmsweep.orchestrator.sweep.sweep import load_sweep, single_trial
from lmsweep.trials.model.precision_modes import MATH_MODES, set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.attention_functions import ATTENTION
from lmsweep.trials.model.transformer.transformer import Transformer
from lmsweep.trials.results.record import DetailRow, records_of
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.store.store import Store
from tests.support.needs import needs_chunked_loss
from tests.support.trial_here import run_here

pytestmark = pytest.mark.usefixtures("one_core")

SMALL = TrialConfig(
    d_model=32, d_ff=48, num_layers=2, num_heads=2, vocab_size=50, context_length=8, batch_size=2, precision="bf16"
)


def precision_of(config: TrialConfig) -> Trial:
    return Trial(config=config, workloads=("precision",), sweep="test")


def measured(trial: Trial) -> dict[str, float]:
    """`phase.metric` -> the only sample."""
    records = records_of(run_here(trial))
    assert {row.status for row in records} == {"ok"}, [row.error for row in records]
    return {f"{row.phase}.{row.metric}": row.samples[0] for row in records if row.samples}


def test_the_norm_of_float16_vanishes_unless_it_is_computed_in_float32():
    assert reciprocal_rms(1e3, torch.float16) == 0 and f"{reciprocal_rms(1e3, torch.bfloat16):.4f}" == "0.0010"
    assert reciprocal_rms(255, torch.float16) == pytest.approx(1 / 255, rel=1e-3), "255² is still below 65504"
    assert reciprocal_rms(1e3, torch.float16, upcast=True) == pytest.approx(1e-3, rel=1e-6)


# Types

WEIGHTS = ("fc1.weight", "ln.weight", "ln.bias", "fc2.weight")
WIDE = [("output", "ln"), ("loss", "loss"), *((kind, name) for kind in ("weight", "gradient") for name in WEIGHTS)]
NARROW = [*(("output", name) for name in ("fc1", "relu", "fc2")), ("logits", "logits")]
"""Of the toy model under CUDA's autocast: one report has them for float16, one for bfloat16, both without relu and
fc2."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store after the trials of the packaged sweep for the smallest model."""
    store = Store(str(tmp_path_factory.mktemp("precision") / "store"))
    refused = []
    for trial in load_sweep("precision", {"model": ["tiny"], "vocab_size": [1000]}).trials:
        rows = run_here(trial)
        store.keep(rows)
        refused += [row.error for row in records_of(rows) if row.status != "ok"]
    assert len(refused) == 1 and "tf32 needs the tensor cores" in (refused[0] or "")
    return Path(store.location)


def types(store: Path, subject: str, column: str) -> dict[tuple[str, str], str]:
    table = dtype_table(Results(str(store)).details("dtypes", "precision"), subject=subject)
    return dict(zip(zip(table["kind"], table["name"], strict=True), table[column], strict=True))


@pytest.mark.parametrize(("precision", "narrow"), [("fp16", "float16"), ("bf16", "bfloat16")])
def test_the_types_of_the_toy_model_are_the_published_ones(swept: Path, precision: str, narrow: str):
    found = types(swept, "toy", f"{precision}, cuda (emulated)")
    assert found == dict.fromkeys(WIDE, "float32") | dict.fromkeys(NARROW, narrow)


def test_the_autocast_of_the_cpu_leaves_the_layer_norm_narrow(swept: Path):
    emulated, real = (types(swept, "toy", f"bf16, {rules}") for rules in ("cuda (emulated)", "cpu"))
    assert {tensor for tensor in real if real[tensor] != emulated[tensor]} == {("output", "ln")}
    assert real["output", "ln"] == "bfloat16"


def test_in_the_transformer_products_are_narrow_and_norms_residuals_loss_and_gradients_are_not(swept: Path):
    for column in ("bf16, cpu", "bf16, cuda (emulated)"):
        found = types(swept, "transformer", column)
        narrow = {name for (kind, name), dtype in found.items() if kind == "output" and dtype == "bfloat16"}
        attention = {f"blocks.*.attention.{name}" for name in ("query", "key", "value", "rope", "output")}
        feed_forward = {f"blocks.*.feed_forward.{name}" for name in ("w1", "w2", "w3")}
        assert narrow == {*attention, *feed_forward, "blocks.*.attention", "blocks.*.feed_forward", "head"}
        wide = {kind for (kind, _), dtype in found.items() if dtype == "float32"}
        assert wide == {"weight", "output", "loss", "gradient"}
        assert found["output", "blocks.*"] == found["output", "final_norm"] == "float32"
    whole = types(swept, "transformer", "fp32, cpu")
    assert set(whole.values()) == {"float32"}
    pure = types(swept, "transformer", "bf16_pure, cpu")
    assert {tensor for tensor, dtype in pure.items() if dtype != "bfloat16"} == {("loss", "loss")}


def test_the_types_are_plain_parquet_with_the_number_of_tensors_of_all_blocks(swept: Path):
    rows = pd.read_parquet(swept / "dtypes")
    assert set(rows["precision"]) == {"fp32", "bf16", "fp16", "bf16_pure"}
    assert rows["model"].eq("tiny").all() and rows["workload"].eq("precision").all()
    weights = rows[(rows["kind"] == "weight") & (rows["subject"] == "transformer") & (rows["rules"] == "cpu")]
    # 9 in each block, the embedding, the last norm and the head.
    assert (weights.groupby("precision")["count"].sum() == 9 * SIZES["tiny"].num_layers + 3).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU to be compared with")
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_emulated_types_are_those_of_a_gpu(precision: Any):
    trial = replace(SMALL, precision=precision, device="cuda")
    real = {row.detail for row in run_here(precision_of(trial)) if isinstance(row, DetailRow)}
    emulated = set(emulated_dtypes(trial, MATH_MODES[precision]))
    assert real == emulated and len(real) > 40


# Errors


def distance(values: list[Tensor], exact: list[Tensor]) -> float:
    """The relative L2 error."""
    mine, reference = (torch.cat([one.detach().double().flatten() for one in side]) for side in (values, exact))
    return float((mine - reference).norm() / reference.norm())


@pytest.mark.parametrize("precision", ["fp16", "bf16_pure"])
def test_errors_are_distances_to_the_model_in_float64(precision: Any):
    """Which tests/model/test_model.py compares with a second one."""
    trial = replace(SMALL, precision=precision)
    found = measured(precision_of(trial))
    torch.manual_seed(0)
    step = TrainingStep(replace(trial, mode="forward_backward"), set_math_mode(precision, "cpu"))
    reference = make_reference(step)
    if precision != "bf16_pure":  # whose own weights are rounded
        exact_model = Transformer(
            trial.size, vocab_size=trial.vocab_size, context_length=trial.context_length, device="cpu",
            dtype=torch.float64, attention=ATTENTION["sdpa"],
        )  # fmt: skip
        exact_model.load_state_dict(step.model.state_dict())
        logits = exact_model(step.inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), step.targets.flatten())
        loss.backward()
        torch.testing.assert_close(reference.logits, logits.detach(), rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(reference.loss, loss.detach(), rtol=1e-12, atol=0)
        for name, weight in exact_model.named_parameters():
            torch.testing.assert_close(reference.gradients[name], weight.grad, rtol=1e-9, atol=1e-13)
    _, gradients = scaled_gradients(step)
    exact = [reference.gradients[name] for name in gradients]
    head = distance([gradients["head.weight"]], [reference.gradients["head.weight"]])
    assert found["logits.relative_error"] == pytest.approx(distance([step.logits], [reference.logits]), rel=1e-6)
    assert found["gradients.relative_error"] == pytest.approx(distance([*gradients.values()], exact), rel=1e-6)
    assert found["head_gradients.relative_error"] == pytest.approx(head, rel=1e-6)
    loss_error = abs(step.loss.item() - reference.loss.item()) / reference.loss.item()
    assert found["loss.relative_error"] == pytest.approx(loss_error, rel=1e-6)


def test_the_errors_of_each_precision_are_within_their_bounds(swept: Path):
    frame = load(str(swept))
    errors = frame[frame["metric"] == "relative_error"].set_index(["precision", "phase"])["median"]
    bounds = {"fp32": (1e-8, 1e-5), "bf16": (1e-3, 1e-1), "fp16": (1e-4, 1e-2), "bf16_pure": (1e-3, 1e-1)}
    for precision, (low, high) in bounds.items():
        for phase in ("logits", "gradients", "attention_gradients", "norm_gradients", "head_gradients"):
            assert low < errors[precision, phase] < high
    # A float32 whose products were TF32, of 10 bits, would be as far off as float16.
    assert errors["fp32", "gradients"] < errors["fp16", "gradients"] / 100
    # float16 has three bits more than bfloat16.
    assert 4 < errors["bf16", "logits"] / errors["fp16", "logits"] < 16
    assert errors["bf16_pure", "logits"] > errors["bf16", "logits"], "its weights are rounded too"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs tensor cores")
def test_tf32_is_measured_where_there_are_tensor_cores():
    trial = replace(SMALL, device="cuda", d_model=256, d_ff=512)
    wide, tf32 = (measured(precision_of(replace(trial, precision=precision))) for precision in ("fp32", "tf32"))
    assert wide["logits.relative_error"] < 1e-5 < 1e-4 < tf32["logits.relative_error"] < 1e-2


def test_the_loss_scale_is_what_keeps_float16_gradients_from_vanishing(swept: Path):
    frame = load(str(swept))
    values = frame[frame["precision"] == "fp16"].set_index(["phase", "metric"])["median"]
    assert values["gradients", "loss_scale"] == 2**16
    assert values["unscaled_gradients", "underflow"] > 0 == values["gradients", "underflow"]
    assert values["unscaled_gradients", "relative_error"] > 1.5 * values["gradients", "relative_error"]
    others = frame[frame["precision"] != "fp16"]
    assert not others["metric"].eq("loss_scale").any() and not others["phase"].eq("unscaled_gradients").any()


def test_the_loss_scale_is_turned_down_until_no_gradient_overflows():
    torch.manual_seed(0)
    trial = replace(SMALL, precision="fp16", mode="forward_backward")
    step = TrainingStep(trial, set_math_mode("fp16", "cpu"))
    reference = make_reference(step)
    step.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**28)
    scale, gradients = scaled_gradients(step)
    assert 2**10 < scale < 2**28 and math.log2(scale).is_integer()
    exact = [reference.gradients[name] for name in gradients]
    assert distance([*gradients.values()], exact) < 1e-2


LOSSES_OF_A_USER = """
from torch.nn.functional import cross_entropy

def of_logits(logits, targets):
    return cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.5)

def of_hidden(hidden, head, targets):
    return of_logits(hidden @ head.T, targets)
"""


LLAMA = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 50}


@pytest.mark.parametrize("model", [("model=tiny", "vocab_size=50"), ("model=hf:config.json",)])
@pytest.mark.parametrize(
    "loss", ["./mine.py:of_logits", "./mine.py:of_hidden", pytest.param("chunked", marks=needs_chunked_loss)]
)
@pytest.mark.usefixtures("forget_code")
def test_errors_are_those_of_the_loss_that_was_chosen(here: Path, loss: str, model: tuple[str, ...]):
    if "hf" in model[0]:
        pytest.importorskip("transformers")
    (here / "mine.py").write_text(LOSSES_OF_A_USER)
    (here / "config.json").write_text(json.dumps(LLAMA))
    found = measured(single_trial(["workloads=precision", f"loss={loss}", "context_length=8", "batch_size=2", *model]))
    assert found["gradients.relative_error"] < 1e-6 and found["loss.relative_error"] < 1e-6
    assert ("logits.relative_error" in found) == loss.endswith("of_logits"), "elsewhere the step has no logits"


def test_a_loss_that_computes_logits_by_parts_has_the_types_of_all_other_tensors():
    rows = run_here(precision_of(replace(SMALL, precision="bf16", loss="chunked")))
    found = [row.detail for row in rows if isinstance(row, DetailRow)]
    kinds = {one.kind for one in found if (one.subject, one.rules) == ("transformer", "cpu")}
    assert kinds == {"weight", "output", "loss", "gradient"}


def test_what_overflows_is_unknown_with_the_reason():
    row = number("gradients", "relative_error", math.inf)
    assert row.samples is None and row.reason == "not finite: the arithmetic overflowed"


def test_underflow_counts_what_is_zero_and_should_not_be():
    exact = [torch.tensor([1.0, 1e-9, 0.0, 2.0]), torch.tensor([3.0])]
    assert underflow([torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([3.0])], exact) == 2 / 4


HEAD_OF_ZEROS = """
import torch

class Model(torch.nn.Module):
    def __init__(self, vocab_size=20):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocab_size, 4)
        self.head = torch.nn.Linear(4, vocab_size)
        torch.nn.init.zeros_(self.head.weight)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))
"""


@pytest.mark.usefixtures("forget_code")
def test_a_part_without_a_gradient_has_no_error(here: Path):
    (here / "mine.py").write_text(HEAD_OF_ZEROS)
    words = ["workloads=precision", "model=./mine.py:Model", "vocab_size=20", "context_length=8", "batch_size=2"]
    found = measured(single_trial(words))
    assert found["embedding_gradients.relative_error"] == 0 < found["head_gradients.relative_error"] < 1e-6


def test_the_sums_are_a_table_that_names_who_found_them(swept: Path):
    frame = load(str(swept))
    table = accumulation_table(frame).drop(columns=["devices", "error"])
    assert table.to_csv(index=False, float_format="%.4f").splitlines() == [
        "accumulator,addend,cast,sum",
        "fp32,fp32,False,10.0001",
        "fp16,fp16,False,9.9531",
        "fp32,fp16,False,10.0021",
        "fp32,fp16,True,10.0021",
        "bf16,bf16,False,4.0000",
        "fp32,bf16,False,10.0098",
        "fp32,bf16,True,10.0098",
    ]
    assert accumulation_table(frame)["devices"].unique().tolist() == frame["device_name"].unique().tolist()
