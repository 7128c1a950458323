"""A Hugging Face configuration of a stranger that is no model is refused from its JSON, before anything is built."""

import json
from pathlib import Path

import pytest

from tests.support.command import answer_here

PLAIN = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 2,
}


def with_(**changes: object) -> str:
    return json.dumps(PLAIN | changes)


HOSTILE = {
    "nested": (f'{{"a": {"[" * 100_000}', "recursion"),
    "a list": ("[]", "it is no mapping"),
    "a text model that is none": (with_(text_config=[1]), "it is no mapping"),
    "many bytes": (with_(a="x" * 10_000_000), "it has 10000"),
    "many digits": (with_(hidden_size=1).replace('"hidden_size": 1', f'"hidden_size": 1{"0" * 5000}'), "4300 digits"),
    "wide": (with_(hidden_size=10**18), "hidden_size is more than"),
    "many words": (with_(vocab_size=10**18), "vocab_size is more than"),
    "deep": (with_(num_hidden_layers=10**7), "num_hidden_layers is more than 10000"),
    "many labels": (with_(num_labels=10**9), "num_labels is more than 1000000"),
    "many labels within": (with_(text_config=PLAIN | {"num_labels": 10**12}), "num_labels is more than 1000000"),
    "many labels around": (with_(num_labels=10**9, text_config=PLAIN), "num_labels is more than 1000000"),
    "many experts": (with_(num_local_experts=10**10), "num_local_experts is more than"),
}


@pytest.mark.parametrize(("text", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_configuration_that_makes_no_model_is_refused(tmp_path: Path, monkeypatch, text: str, words: str):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(text)
    done = answer_here("fits", "hf:./config.json", "--for", "4090", "--method", "full", "--context", "128")
    assert done.returncode == 2 and "config.json: " in done.stderr and words in done.stderr, done.stderr


def test_so_is_one_that_a_sweep_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(with_())
    model = "{hf: ./config.json, override: {num_labels: 1000000000}}"
    Path("s.yaml").write_text(f"name: s\ngrids: [{{workloads: [timing], fixed: {{model: {model}}}}}]")
    done = answer_here("plan", "s.yaml")
    assert done.returncode == 2 and "num_labels is more than 1000000" in done.stderr, done.stderr
