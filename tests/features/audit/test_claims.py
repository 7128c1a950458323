"""A claim: what is read of options, tables and logs, what is missing, and what is wrong."""

import io
import json
import re
import sys
from pathlib import Path

import pytest

import lmsweep
from lmsweep.orchestrator.features.audit.asking import why_unpredicted
from lmsweep.orchestrator.features.audit.claims.counting import conventions, least_seconds
from lmsweep.orchestrator.features.audit.claims.models import model_meant
from lmsweep.orchestrator.features.audit.claims.read_claim import claim_of
from lmsweep.orchestrator.features.audit.logs.read_log import read_log, trainers
from lmsweep.orchestrator.features.audit.sources import MOST_BYTES
from lmsweep.trials.code.hub_configurations import FOLDER
from lmsweep.trials.spec.errors import RequestError

LLAMA = {"model": "llama-3.1-8b", "gpus": "8xH100", "context": "8192", "precision": "bf16"}


def test_a_number_is_read_in_the_units_that_tables_have() -> None:
    for column, text, field, value in (
        ("tokens/s", "58,000", "tokens_per_second", 58_000),
        ("Tokens/s/GPU", "7.25k", "tokens_per_second_per_gpu", 7250),
        ("step time", "1.2s", "step_seconds", 1.2),
        ("ms/step", "350", "step_seconds", 0.35),
        ("mfu", "43.2%", "mfu", 0.432),
        ("mfu", "104", "mfu", 1.04),
        ("TFLOPS", "420", "tflops", 4.2e14),
        ("gradient_accumulation_steps", "8", "accumulate", 8),
    ):
        assert getattr(claim_of({column: text}), field) == pytest.approx(value), column


def test_gpus_are_known_by_the_names_that_people_and_drivers_have() -> None:
    for text, name, count in (
        ("8xH100", "H100 SXM", 8),
        ("NVIDIA H100 80GB HBM3", "H100 SXM", 1),
        ("4 x A100-SXM4-80GB", "A100 SXM 80GB", 4),
        ("A100 40GB", "A100 SXM 40GB", 1),
        ("MI300X", "MI300X", 1),
    ):
        claim = claim_of({"gpus": text})
        assert (claim.device.name, claim.count) == (name, count)


def test_a_model_has_the_parameters_that_its_card_says() -> None:
    billions = {
        "meta-llama/Llama-3.1-8B-Instruct": 8.03,
        "Llama2-70b": 68.98,
        "Qwen/Qwen3-0.6B": 0.596,
        "gpt2": 0.124,
        "openai/gpt-oss-20b": 20.9,
        "d20": 0.561,
        "d768-f3072-l12-h12-gelu-tied-v50257": 0.124,
        "13B": 13,
    }
    assert {name: model_meant(name).parameters / 1e9 for name in billions} == pytest.approx(billions, rel=0.01)


def test_a_configuration_of_the_hub_is_a_model() -> None:
    path = FOLDER / "meta-llama--Llama-3.1-8B.json"
    by_file, by_name = model_meant(str(path)), model_meant("llama-3.1-8b")
    assert (by_file.size, by_file.vocab_size) == (by_name.size, by_name.vocab_size)


WRONG = {
    ("model", "lama-3.1-8b"): "--model lama-3.1-8b: no such model; did you mean llama-3.1-8b?",
    ("gpus", "8"): "--gpus 8: what GPU? Write 8xH100",
    ("tokens/s", "fast"): "tokens/s fast: write a number, such as 58000 or 58k",
    ("tokens/s", "0"): "tokens per second is 0; it must be a number above 0",
    ("batch", "0"): "--batch is 0; it must be at least 1",
    ("method", "lorra"): "--method lorra: no such method; did you mean lora?",
    ("tokens/z", "1"): "no claim has a column tokens/z; did you mean tokens/s?",
    ("step time", "soon"): "step_time soon: write a time, such as 1.2s or 350ms",
}


def test_a_wrong_claim_is_one_sentence_with_what_to_write() -> None:
    for (column, text), message in WRONG.items():
        with pytest.raises(RequestError, match=f"^{re.escape(message)}"):
            getattr(claim_of({column: text}), "device" if column == "gpus" else "shape")


def test_what_is_missing_is_named() -> None:
    assert claim_of({}).missing() == ["model", "gpus", "tokens/s (or --step-time, --mfu, --tflops)", "context"]
    assert claim_of(LLAMA).missing() == ["tokens/s (or --step-time, --mfu, --tflops)"]
    assert claim_of(LLAMA | {"step time": "1s"}).missing() == ["batch (the tokens of a step)"]
    assert claim_of(LLAMA | {"step time": "1s", "batch": "1"}).missing() == []


def test_the_tokens_of_a_step_count_the_ranks_that_have_data_of_their_own() -> None:
    claim = claim_of(LLAMA | {"gpus": "64xH100", "batch": "2", "accumulate": "4", "tp": "8"})
    assert claim.step_tokens == 2 * 4 * 8 * 8192
    whole = claim_of(LLAMA | {"gpus": "64xH100", "batch": "2", "global batch": "64", "tp": "8"})
    assert (whole.micro_batches, whole.step_tokens) == (4, 64 * 8192)


def test_the_usual_ways_to_count_flops_are_those_of_their_formulas() -> None:
    claim = claim_of(LLAMA | {"tokens/s": "1"})
    counts = {one.name: one.flops for one in conventions(claim)}
    layers, width, context, embedding = 32, 4096, 8192, 128_256 * 4096
    linear = 6 * (8_030_261_248 - embedding)
    attention = 12 * layers * width * context
    assert counts["6n"] == pytest.approx(linear, rel=1e-3)
    assert counts["full"] == pytest.approx(linear + attention, rel=1e-3)
    assert counts["causal"] == pytest.approx(linear + attention / 2, rel=1e-3)
    assert counts["6p"] == pytest.approx(linear + 6 * embedding + attention, rel=1e-3)


def test_the_bound_is_the_peak_for_large_batches_and_the_bandwidth_for_small_ones() -> None:
    large = claim_of({"model": "8B", "gpus": "H100", "tokens/s": "1"})
    assert least_seconds(large) == pytest.approx(6 * 8e9 / 989.4e12)
    small = claim_of({"model": "llama-3.1-8b", "gpus": "H100", "context": "128", "batch": "1", "tokens/s": "1"})
    read = 2 * 2 * 8.03e9 + 6 * 8.03e9
    assert least_seconds(small) == pytest.approx(read / 128 / 3.35e12, rel=0.01)


def test_adapters_leave_out_the_gradients_of_weights() -> None:
    full, lora = (claim_of(LLAMA | {"tokens/s": "1", "method": method}) for method in ("full", "lora"))
    assert 1.4 < least_seconds(full) / least_seconds(lora) < 1.5


def test_what_megatron_bridge_counts_for_gpt_oss_is_a_usual_count() -> None:
    for rate, flops, convention in ((33024, 1077, "window"), (16640, 452, "no gate"), (5630, 153, "no gate")):
        claim = claim_of({"model": "openai/gpt-oss-120b", "gpus": "H100", "context": "4096", "tokens/s": str(rate)})
        counts = {one.name: one.flops for one in conventions(claim)}
        assert counts[convention] == pytest.approx(flops * 1e12 / rate, rel=0.015)


def test_a_model_stored_in_four_bits_can_be_sharded() -> None:
    claim = claim_of({"model": "llama-2-7b", "gpus": "2xRTX 4090", "context": "512", "batch": "1", "method": "qlora",
                      "tokens/s": "1000"})  # fmt: skip
    assert why_unpredicted(claim) is None


# Logs: each trainer is known by its lines, and what they say is the claim


LOGS = Path(__file__).parent / "logs"

READ: dict[str, dict[str, object]] = json.loads((LOGS / "claims.json").read_text())
"""File -> what a reader of it would write down. TRL's is of SFTTrainer of TRL 1.16 on an H100; those of a CPU are
twenty steps of a tiny model with torchtitan 0.2.2, Composer 0.32, and Lightning 2.6 with either bar.
"""


def test_a_log_says_what_its_lines_say() -> None:
    for name, values in READ.items():
        texts = read_log((LOGS / f"{name}.log").read_text(), name).texts
        claim = claim_of({"gpus": "H100"} | texts)
        for field, value in values.items():
            found = getattr(claim, field)
            assert found == value or found == pytest.approx(value, rel=1e-3), (name, field, found)


def test_every_trainer_of_the_table_has_a_log_here() -> None:
    known = {read_log(path.read_text(), path.name).trainer.name for path in LOGS.glob("*.log")}
    assert known == {one.name for one in trainers()}


def test_the_lines_that_were_read_are_shown_and_the_first_steps_do_not_count() -> None:
    log = read_log((LOGS / "torchtitan.log").read_text(), "torchtitan.log")
    assert any("tps: 6,666" in line for line in log.lines)
    assert not any("tps: 483" in line for line in log.lines)


def test_standard_input_is_read_as_a_file_is_and_refused_with_the_trainers_that_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = r"no line is known of a trainer's log \(torchtitan, nanochat"
    for content, said in ((b"a \xff day", unknown), (bytes(MOST_BYTES + 1), "it has more than 100 MB")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
        with pytest.raises(RequestError, match=f"^-: {said}"):
            lmsweep.audit("-")


def test_a_log_beside_options_is_one_claim(tmp_path: Path) -> None:
    (found,) = lmsweep.audit(LOGS / "axolotl.log", gpus="RTX 4090", model="8B")
    assert found.name and "axolotl" in found.name
    assert found.rates == {"tokens/s": 4 * 770}
    assert any("770.0" in line for line in found.read) and json.dumps(found.read)
