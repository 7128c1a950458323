"""Configurations of Hugging Face: which are answered, for which model, and which are refused from their JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.code.calling import arguments_of
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.hub_configurations import model_types, why_not_built
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.installing import install_command

pytest.importorskip("transformers")

TEXT: dict[str, Any] = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6}
TEXT |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
LINEAR |= {"linear_key_head_dim": 16, "linear_value_head_dim": 16}
TYPES = ["linear_attention", "full_attention"] * 3
QWEN = {
    "model_type": "qwen3_5",
    "text_config": {**TEXT, **LINEAR, "model_type": "qwen3_5_text", "layer_types": TYPES},
    "vision_config": {"depth": 1, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 64},
}
LLAMA = {**TEXT, "model_type": "llama", "auto_map": {"AutoModelForCausalLM": "modeling_mine.LlamaForCausalLM"}}
COMPOSITES = {
    "qwen3_5": QWEN,
    "llama4": {"model_type": "llama4", "text_config": {**TEXT, "model_type": "llama4_text", "num_local_experts": 2}},
    "mistral3": {"model_type": "mistral3", "text_config": {**TEXT, "model_type": "mistral"}},
    **{
        name: {"model_type": name, "text_config": {**TEXT, "model_type": f"{name}_text"}} | more
        for name, more in (("gemma3", {}), ("gemma4", {}), ("qwen3_vl", {"tie_word_embeddings": True}))
    },
}


@pytest.fixture(autouse=True)
def _code(tmp_path: Path, forget_code: None) -> None:
    use_code(code_folder(tmp_path))


def built(folder: Path, described: dict[str, Any], **changes: Any) -> torch.nn.Module:
    from lmsweep.trials.model.users.hugging_face import from_hugging_face

    (folder / "config.json").write_text(json.dumps(described))
    with torch.device("meta"):
        config = TrialConfig(model_code="hf:./config.json", attention="sdpa")
        return from_hugging_face(config, changes, dtype=torch.float32)


def layers(model: torch.nn.Module) -> set[str]:
    return {name.split(".layers.")[1].split(".")[0] for name, _ in model.named_parameters() if ".layers." in name}


def test_the_code_that_a_configuration_names_is_not_needed_where_transformers_has_the_class(tmp_path: Path) -> None:
    (tmp_path / "modeling_mine.py").write_text("raise SystemExit('foreign code ran')")
    model = built(tmp_path, LLAMA)
    assert type(model).__module__.startswith("transformers.") and layers(model) == set("012345")
    quantized = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    assert layers(built(tmp_path, {**LLAMA, "quantization_config": quantized})) == set("012345")


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_model_of_images_and_text_is_its_text_model(name: str, tmp_path: Path) -> None:
    model = built(tmp_path, COMPOSITES[name])
    assert layers(model) == set("012345")
    assert not [one for one, _ in model.named_parameters() if "vision" in one or "visual" in one]
    tables = 1 if name in ("qwen3_vl", "gemma3", "gemma4") else 2
    assert sum(one.shape == (512, 64) for one in model.parameters()) == tables
    assert layers(built(tmp_path, COMPOSITES[name], num_hidden_layers=4)) == set("0123")


def test_fewer_layers_are_the_first_ones_of_each_kind_that_is_listed(tmp_path: Path) -> None:
    few = built(tmp_path, QWEN, num_hidden_layers=3)
    assert [name for name, _ in few.named_modules() if name.endswith((".linear_attn", ".self_attn"))] == [
        "model.layers.0.linear_attn",
        "model.layers.1.self_attn",
        "model.layers.2.linear_attn",
    ]


def test_a_depth_that_follows_from_a_pattern_is_not_overridden_in_silence(tmp_path: Path) -> None:
    nemotron = {**TEXT, "model_type": "nemotron_h", "hybrid_override_pattern": "M-M-M*", "mamba_num_heads": 4}
    with pytest.raises(RequestError, match="its num_hidden_layers stays 6, because it follows from the list"):
        built(tmp_path, nemotron, num_hidden_layers=3)


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({**TEXT, "model_type": "kimi_k9", "auto_map": {"AutoConfig": "a.B"}}, "needs code of its own (auto_map)"),
        (
            {**TEXT, "model_type": "kimi_k9"},
            f"knows no model_type kimi_k9; {install_command('--upgrade', 'transformers')}",
        ),
        ({**TEXT, "model_type": "vit"}, "has no causal language model of the model_type vit"),
        (TEXT, "states no model_type"),
        ([], "it is not a JSON object"),
    ],
    ids=["foreign code", "unknown", "no language", "no type", "a list"],
)
def test_what_cannot_be_built_is_refused_from_its_json(described: Any, words: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(RequestError, match="hf:") as refused:
        single_trial(["model=hf:./config.json", "context_length=16", "batch_size=1"], code=str(tmp_path))
    assert words in str(refused.value)


def test_the_tables_of_transformers_are_read_as_it_reads_them() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

    found = model_types()
    assert set(CONFIG_MAPPING_NAMES) <= found.known
    assert (set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES), set(MODEL_MAPPING_NAMES)) == (found.causal, found.headless)
    assert [why_not_built(one) for one in COMPOSITES.values()] == [None] * len(COMPOSITES)


def test_overrides_are_those_of_the_text_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    words = ["model=hf:./config.json", "context_length=16", "batch_size=1", "model_args.num_hidden_layers=4"]
    trial = single_trial(words, code=str(tmp_path))
    assert (trial.config.num_layers, arguments_of(trial.config.model_args)) == (4, {"num_hidden_layers": 4})
    with pytest.raises(RequestError, match="has no num_layer to override"):
        built(tmp_path, QWEN, num_layer=4)
