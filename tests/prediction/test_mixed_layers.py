"""Memory and operators of models whose layers are not all alike, from shallow models, against full depth."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from lmsweep.trials.model.users.hugging_face import layers_of_configuration
from lmsweep.trials.prediction.depth.shallow_models import pairs_of
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.step_family import step_family
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.spec.config import TrialConfig
from tests.support.whole_steps import depths_run, small, totals, whole_memory, whole_operators

WIDTHS: dict[str, Any] = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
WIDTHS |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
WIDTHS |= {"tie_word_embeddings": False}
EXPERTS: dict[str, Any] = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
ROUTED = {"n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}
SLIDING = {**WIDTHS, "model_type": "gemma3_text", "sliding_window": 32}
QWEN3_MOE = {**WIDTHS, **EXPERTS, "model_type": "qwen3_moe", "num_experts": 8}
GLM = {**WIDTHS, **EXPERTS, **ROUTED, "model_type": "glm4_moe", "num_hidden_layers": 8, "first_k_dense_replace": 2}
MIXTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "dense first": ("AABBBBBB", GLM),
    "dense first and last": ("AABBBBBBBBA", {**QWEN3_MOE, "num_hidden_layers": 11, "mlp_only_layers": [0, 1, 10]}),
    "every other sparse": ("ABABABABABAB", {**QWEN3_MOE, "num_hidden_layers": 12, "decoder_sparse_step": 2}),
    "sliding and full": (
        "AAABAAABAAABAAABAA",
        {**SLIDING, "num_hidden_layers": 18}
        | {"layer_types": [("sliding", "full")[place % 4 == 3] + "_attention" for place in range(18)]},
    ),
    "interleaved experts, chunks": (
        "ABACABACABACABAC",
        {**WIDTHS, "model_type": "llama4_text", "num_hidden_layers": 16, "intermediate_size_mlp": 128}
        | {"num_local_experts": 4, "interleave_moe_layer_step": 2, "attention_chunk_size": 32},
    ),
    "recurrent, dense and attention": (
        "ABABACBABABACBABABACBABABACB",
        {**WIDTHS, "model_type": "nemotron_h", "hybrid_override_pattern": "M-M-M*-" * 4, "mamba_num_heads": 4}
        | {"mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "chunk_size": 32},
    ),
    "of images and text": (
        "AAAAAA",
        {"model_type": "qwen3_vl", "text_config": {**WIDTHS, "model_type": "qwen3_vl_text", "num_hidden_layers": 6}},
    ),
}
FASTEST = ["dense first", *(pytest.param(name, marks=pytest.mark.slow) for name in [*MIXTURES][1:])]


@pytest.fixture(autouse=True)
def _code(mine: Any) -> None:
    pytest.importorskip("transformers")
    mine("")


def config(folder: Path, described: dict[str, Any], **fields: Any) -> TrialConfig:
    text = json.dumps(described)
    file = f"{crc32(text.encode())}.json"  # runs are kept by its name
    (folder / file).write_text(text)
    usual = {"model_code": f"hf:./{file}", "d_model": 0, "d_ff": None, "num_layers": None, "num_heads": None}
    usual |= {"vocab_size": 512, "context_length": 64, "batch_size": 2, "device": "cuda"}
    usual |= {"attention": "sdpa", "loss": "cross_entropy", "precision": "bf16_pure"}
    return small(**usual | fields)


def assert_is_that_of_the_whole_model(one: TrialConfig) -> None:
    family = step_family(one)
    assert family.predicted(2) == whole_memory(one, is_trial=False)
    assert totals(family.operators(2)) == totals(whole_operators(one)) == totals(step_operators(one))
    assert family.predicted(2) == predict(one), "fits and a plan say the same"


@pytest.mark.parametrize("name", FASTEST)
def test_memory_and_operators_of_mixed_layers_are_those_of_the_whole_to_the_byte(name: str, tmp_path: Path) -> None:
    kinds, described = MIXTURES[name]
    one = config(tmp_path, described)
    found = layers_of_configuration(one)
    assert found is not None and "".join("ABC"[kind] for kind in found.kinds) == kinds
    assert sum(depths_run(one)) <= len(kinds)
    assert len(depths_run(one)) > 1, "shallow models"
    assert_is_that_of_the_whole_model(one)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"adapter": "lora", "precision": "bf16"}, {"ddp": "fsdp", "world_size": 2}])
@pytest.mark.parametrize("checkpointing", ["none", "block"])
def test_so_are_those_with_adapters_and_of_ranks(fields: dict[str, Any], checkpointing: str, tmp_path: Path) -> None:
    if "adapter" in fields:
        pytest.importorskip("peft")
    assert_is_that_of_the_whole_model(config(tmp_path, GLM, checkpointing=checkpointing, **fields))


def test_weights_that_do_not_add_up_are_not_extrapolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = config(tmp_path, MIXTURES["every other sparse"][1])
    found = layers_of_configuration(one)
    assert found is not None and list(pairs_of(one, 1))
    wrong = replace(found, kinds=(0,) * len(found.kinds))
    monkeypatch.setattr("lmsweep.trials.prediction.depth.shallow_models.layers_of_configuration", lambda _: wrong)
    assert not list(pairs_of(one, 1))
