"""`lmsweep init` names a folder's model, or the one thing to write; its sweep never measures lmsweep's in its place."""

import sys
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest
import torch

from lmsweep.orchestrator.features.init.discover import discover
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.code.calling import arguments_of
from lmsweep.trials.code.digest import code_folder
from tests.features.init.test_init import swept, trials_of
from tests.support.command import lmsweep_here, refused_here

HEAD = "from torch import nn\nimport torch\nRouter = object\n"
LM = """
class LM(nn.Module):
    def __init__(self, {parameters}):
        super().__init__()
        self.embed, self.head = nn.Embedding({rows}, 8), nn.Linear(8, {rows})
    def forward(self, tokens{others}):
        return self.head(self.embed(tokens))
"""


def lm(parameters: str, *, rows: str = "10000", others: str = "") -> str:
    return HEAD + LM.format(parameters=parameters, rows=rows, others=others)


def test_a_first_sweep_keeps_the_defaults_of_a_models_signature(tmp_path: Path) -> None:
    """They are what its user wants measured."""
    for device, (parameters, kept) in product(("cpu", "cuda"), {
        "num_tokens=2_000, depth=4, width=8, max_len=2048": (2000, '{"num_tokens":2000}', 0, None),
        "vocab_size=2000, d_model=96, num_layers=4": (2000, None, 96, 4),
    }.items()):  # fmt: skip
        written = swept(tmp_path, device, mine=lm(parameters, rows="20"))
        assert written.model.replaced == () and "first look:" not in written.text
        (config, *_) = (one.config for one in trials_of(tmp_path, device))
        assert (config.vocab_size, config.model_args, config.d_model, config.num_layers) == kept


@pytest.mark.parametrize(
    ("parameters", "replaced"),
    [
        ("num_tokens=ROWS, depth=12", "num_tokens 10000, not your ROWS; depth 2, not your 12"),
        ("vocab_size=ROWS, num_layers=12", "vocab_size 10000, not your ROWS; num_layers 2, not your 12"),
        ("vocab_size=2000, max_len=50", "max_len 128, not your 50"),
    ],
)
def test_a_default_that_a_first_sweep_must_replace_is_named_with_both_values(
    here: Path, parameters: str, replaced: str
) -> None:
    (here / "mine.py").write_text("ROWS = 2000\n" + lm(parameters, rows="ROWS"))
    assert f"for a first look the sweep sets {replaced}: change them in lmsweep.yaml" in lmsweep_here("init")
    assert f"# For a first look: {replaced}." in Path("lmsweep.yaml").read_text()
    (config, *_) = (one.config for one in trials_of(here))
    if "ROWS" in parameters:
        assert config.vocab_size == 10000 and (config.num_layers == 2 or '"depth":2' in str(config.model_args))


def test_defaults_of_settings_stay(tmp_path: Path) -> None:
    text = HEAD + DATACLASS + shaped(*ATTRIBUTES, annotation=": Config")
    assert trials_of(tmp_path, net=text)[0].config.vocab_size == 50304


def test_a_size_is_recognised_under_the_names_that_models_give_it(tmp_path: Path) -> None:
    for parameters, args in {
        "vocab_size, context_len, d_model, n_layers, n_heads, d_ff": '"context_len":128',
        "num_tokens, segment_len, dim, depth": '"segment_len":128',
        "vocab_size, model_dim, num_blocks, nhead, max_len, drop_prob": '"max_len":128,"model_dim":128,"nhead":',
        "vocab_size, dim, hidden_dim, n_layers": '"dim":128,"hidden_dim":512',
        "vocab_size, hidden_dim, n_layers": '"hidden_dim":128',
    }.items():
        config = trials_of(tmp_path, mine=lm(parameters))[0].config
        assert config.model_code == "mine:LM" and args in str(config.model_args)


def test_an_attention_whose_mask_is_given_by_lmsweep_is_measured(tmp_path: Path) -> None:
    """As `run` calls it: a mask and is_causal are given by name, required or not."""
    for signature in ("q, k, v, mask", "q, k, v, *, mask", "q, k, v, attn_mask, dropout=0.0", "q, k, v, is_causal"):
        trials = trials_of(tmp_path, att=f"{HEAD}def attend({signature}):\n    return v\n")
        assert "att:attend" in {trial.config.attention for trial in trials}, signature
        assert all(trial.config.causal for trial in trials)


def test_copies_in_an_archive_do_not_come_before_the_code_in_use(tmp_path: Path) -> None:
    old = lm("vocab_size, old")
    trials = trials_of(
        tmp_path,
        **{"archive__model": old, "records__2024-10-01__train": old, "old__model": old, "src__net__deep__model": old},
        zoo=lm("vocab_size"),
    )
    assert trials[0].config.model_code == "zoo:LM"
    (tmp_path / "zoo.py").unlink()
    assert "model:LM" in swept(tmp_path).text, "what is only in an archive is found there"


CONFIG = """
class Config:
    def __init__(self, sizes): self.sizes = sizes
"""
SHAPED = """
class LM(nn.Module):
    def __init__(self, config{annotation}):
        super().__init__()
        self.embed, self.head = nn.Embedding({vocab}, {width}), nn.Linear({width}, {vocab})
        self.layers = nn.ModuleList(nn.Linear({width}, {width}) for _ in range({depth}))
    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
"""
ATTRIBUTES = ("config.vocab_size", "config.n_embd", "config.n_layer")
KEYS = ('config["vocab_size"]', 'config["emb_dim"]', 'config["n_layers"]')
PLACES = ("config.sizes[0]", "config.sizes[1]", "config.sizes[2]")
DATACLASS = "from dataclasses import dataclass\n@dataclass\nclass Config:\n    vocab_size: int = 50304\n"
PRESET = """
    @staticmethod
    def get_default_config():
        C = Node()
        C.model_type = "gpt"
        C.n_layer = None
        C.n_embd = None
        C.vocab_size = None
        C.drop = 0.1
        return C
"""
BUILT = """
class LMConfig:
    def __init__(self, sizes): self.sizes = sizes
    @classmethod
    def llama_like(cls, *, d_model: int, vocab_size: int, n_layers: int, **kwargs) -> "LMConfig":
        return cls((vocab_size, d_model, n_layers))
    @classmethod
    def from_file(cls, path): return cls(path)
    def build(self, *, init_device: str = "cpu") -> "LM":
        return LM(*self.sizes, None)
"""
PARTS = LM.format(parameters="rows, width, depth, router: Router", rows="rows", others="")
NAMED = """
    @classmethod
    def from_sizes(cls, vocab_size, n_layers=12): return cls(Config((vocab_size, 8, n_layers)))
"""


def shaped(vocab: str, width: str, depth: str, *, annotation: str = "") -> str:
    return SHAPED.format(vocab=vocab, width=width, depth=depth, annotation=annotation)


BUILT_BY = {
    "namespace": (shaped(*ATTRIBUTES), "return LM(SimpleNamespace(vocab_size=vocab_size, **changes))"),
    "mapping": (shaped(*KEYS), "return LM(dict(vocab_size=vocab_size, **changes))"),
    "default-config": (
        f"class Node: ...\n{shaped(*ATTRIBUTES)}{PRESET}",
        "vars(config).update(model_type=None, vocab_size=vocab_size, **changes)",
    ),
    "builder": (PARTS + BUILT, "return LMConfig.llama_like(vocab_size=vocab_size, **changes).build()"),
    "classmethod": (
        CONFIG + shaped(*PLACES, annotation=": Config") + NAMED,
        "return LM.from_sizes(vocab_size=vocab_size, **changes)",
    ),
}


@pytest.mark.parametrize(("text", "line"), BUILT_BY.values(), ids=BUILT_BY)
def test_a_model_is_built_by_the_functions_and_settings_that_its_code_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: str
) -> None:
    """The function that `init` writes builds it, with the arguments that the sweep gives."""
    (config, *_) = (one.config for one in trials_of(tmp_path, net=HEAD + text))
    assert line in (tmp_path / "lmsweep_model.py").read_text()
    monkeypatch.syspath_prepend(tmp_path)
    try:
        model = import_module("lmsweep_model").build(vocab_size=50, **arguments_of(config.model_args))
    finally:
        for name in ("lmsweep_model", "net"):
            sys.modules.pop(name, None)
    assert model(torch.zeros(2, 7, dtype=torch.int64)).shape == (2, 7, 50)


def test_a_model_in_a_folder_that_no_import_can_name_gets_its_function_beside_it(tmp_path: Path) -> None:
    text = HEAD + DATACLASS + shaped(*ATTRIBUTES, annotation=": Config")
    config = trials_of(tmp_path, **{"my-net__model": text})[0].config
    assert config.model_code == "my-net/lmsweep_model.py:build"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param(
            {"mine": lm("vocab_size, router")},
            "LM: router is VALUE; write the value that it needs",
            marks=pytest.mark.slow,
        ),
        ({"mine": lm("vocab_size, router: Router")}, "build is not written yet: mine:LM (mine.py:5): it needs router"),
        ({"mine": lm("vocab_size", others=", memory")}, "its forward also requires memory"),
        ({"mine": HEAD + "class ViT(nn.Module):\n    def forward(self, img): ...\n"}, "its forward takes img"),
        ({"tune": "def train(n):\n    return AutoModelForCausalLM.from_pretrained(n)\n"}, "write model: hf:NAME"),
    ],
    ids=["value", "object", "forward", "images", "pretrained"],
)
def test_a_sweep_of_a_model_that_cannot_be_named_says_what_to_write_and_measures_nothing(
    here: Path, files: dict[str, str], words: str
) -> None:
    optimizer = "class Lion(torch.optim.Optimizer):\n    def __init__(self, params): ...\n    def step(self): ...\n"
    for name, text in {**files, "optim": HEAD + optimizer}.items():
        (here / f"{name}.py").write_text(text)
    assert "before it runs, write" in lmsweep_here("init")
    for verb in ("check", "plan", "run"):
        assert words in refused_here(verb, "lmsweep.yaml"), verb
    assert not (here / "results").exists()


def test_each_init_says_once_what_to_write_and_what_the_user_writes_in_its_place_is_measured(here: Path) -> None:
    (here / "mine.py").write_text(lm("vocab_size, router: Router", rows="vocab_size"))
    for _ in range(2):
        (here / "lmsweep.yaml").unlink(missing_ok=True)
        assert lmsweep_here("init").count("it needs router") == 1
    written = here / "lmsweep_model.py"
    written.write_text(written.read_text().replace("raise NotImplementedError", "return mine.LM(vocab_size, None) #"))
    written.write_text(f"import mine\n{written.read_text()}")
    assert "finite logits" in lmsweep_here("check", "lmsweep.yaml")


def test_a_sweep_that_names_a_code_folder_and_nothing_of_it_is_refused(here: Path) -> None:
    grid = "grids:\n  - {workloads: [timing], fixed: {device: cpu, model: tiny}}\n"
    (here / "mine.yaml").write_text(f"name: mine\ncode: .\n{grid}")
    for verb in ("check", "plan", "run"):
        said = refused_here(verb, "mine.yaml")
        assert "no trial uses anything in it" in said and "package.module:Class" in said, verb
    (here / "ours.yaml").write_text(f"name: ours\n{grid}")
    assert load_sweep(str(here / "ours.yaml")).trials
    (here / "mine.py").write_text(lm("vocab_size"))
    both = grid + '  - {workloads: [timing], fixed: {device: cpu, model: "mine:LM", vocab_size: 9}}\n'
    (here / "mine.yaml").write_text(f"name: mine\ncode: .\n{both}")
    assert load_sweep(str(here / "mine.yaml"), {"model": ["tiny"]}).trials, "its user chose lmsweep's model"


def test_a_folder_without_anything_to_measure_gets_no_sweep_but_the_reason(here: Path) -> None:
    (here / "data.py").write_text("def load(): ...\n")
    said = refused_here("init")
    assert "no model, attention, optimizer or wrapper" in said and "--code FOLDER" in said
    assert not (here / "lmsweep.yaml").exists()


def test_a_package_that_another_projects_package_of_the_same_name_hides_is_left_out(tmp_path: Path) -> None:
    for project in ("first", "second"):
        (tmp_path / project / "net").mkdir(parents=True)
        (tmp_path / project / "pyproject.toml").touch()
        (tmp_path / project / "net" / "__init__.py").touch()
        (tmp_path / project / "net" / f"{project}.py").write_text(lm("vocab_size").replace("LM", project.title()))
    found = discover(code_folder(tmp_path))
    assert [one.reference for one in found.of("model")] == ["net.first:First"]
