"""The models that claims name: their dimensions, by name, by a config.json, or by a count of parameters alone."""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lmsweep.trials.analytic.formulas import forward_flops, parameter_count
from lmsweep.trials.code.hub_configurations import FOLDER, NAMES, read_configuration, shipped_configuration
from lmsweep.trials.spec.errors import RequestError
from lmsweep.trials.spec.model_sizes import SIZES, VOCABULARIES, ModelSize
from lmsweep.trials.spec.suggestions import choices

VOCABULARY = 10_000
"""Words of a model that states none: lmsweep's default."""
_SUFFIXES = re.compile(r"[-_](instruct|chat|base|hf|it|full|lora|qlora|q-lora|sft|pretrain|rl)\b.*$")
"""What names have beyond the dimensions: how a model was trained."""
NANOCHAT = re.compile(r"(?:nanochat[-_ ]?)?d(\d+)")
"""nanochat names a model by its depth: `d20`."""
NANOCHAT_VOCABULARY = 65_536
NAME = re.compile(r"\w[\w.-]{,80}(?:/\w[\w.-]{,80})?")
"""A name, or one on the hub; no reference, and no path that leads out of a folder."""
MOST_APART, MOST_ALIKE = 0.15, 6
"""Models that a number of parameters may mean: the share by which theirs may differ, and how many are named."""
DIMENSIONS = re.compile(
    r"d(?P<d_model>\d+)-f(?P<d_ff>\d+)-l(?P<num_layers>\d+)-h(?P<num_heads>\d+)(?:-kv(?P<num_kv_heads>\d+))?"
    r"(?:-dh(?P<d_head>\d+))?(?P<qk_norm>-qknorm)?(?P<gelu>-gelu)?(?:-e(?P<num_experts>\d+)-a(?P<active_experts>\d+))?"
    r"(?P<tied_head>-tied)?(?:-v(?P<vocabulary>\d+))?"
)
"""A name made of dimensions, as tables of lmsweep print it, and the vocabulary: `d768-f3072-l12-h12-v32000`."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model as far as it is known."""

    name: str
    parameters: int
    """Of all its weights."""
    size: ModelSize | None = None
    """None: only the number of parameters is known."""
    vocab_size: int = 0
    window: int | None = None
    """Positions that a sliding window sees; None without one."""
    windowed_layers: int = 0

    @property
    def settings(self) -> dict[str, Any]:
        """Return its fields of a trial: lmsweep's transformer of these dimensions."""
        assert self.size is not None, "asked of known dimensions"
        values = {name: value for name, value in vars(self.size).items() if value is not None}
        return values | {"vocab_size": self.vocab_size}

    def linear_flops(self) -> float:
        """Return the FLOPs of a token's forward pass in weights that multiply: a lookup of the embedding is none."""
        if self.size is None:
            return 2.0 * self.parameters
        terms = {**self.size.terms, "vocab_size": self.vocab_size, "batch_size": 1}
        return float(forward_flops(**terms, context_length=1)) - self.attention_flops(1)  # attention is in it

    def attention_flops(self, context: int) -> float:
        """Return the FLOPs of a token's forward pass in attention, over all positions of the context."""
        return 4.0 * context * self.size.num_layers * self.size.terms["query_width"] if self.size else 0.0

    def windowed_flops(self, context: int) -> float:
        """Return the same where some layers have a sliding window. Callers halve it all for a causal mask, but a window
        looks only back already, so it counts twice here."""
        if not self.window or not self.size or self.window >= context:
            return self.attention_flops(context)
        share = self.windowed_layers / self.size.num_layers
        # Position i of n sees min(i, window) positions: in the mean about window - window**2 / (2 * n).
        seen_twice = 2 * self.window - self.window**2 / context
        return self.attention_flops(context) * (1 - share) + self.attention_flops(1) * seen_twice * share

    def gate_flops(self) -> float:
        """Return the FLOPs of a token's forward pass in the gates of its experts, or of the one feed-forward layer."""
        size = self.size
        return 2.0 * size.d_model * size.d_ff * size.num_layers * (size.active_experts or 1) if size else 0.0


def model_settings(text: str) -> dict[str, Any]:
    """Return a known model's dimensions and vocabulary as fields of a trial. Public: `lmsweep.model_settings`. text: as
    `lmsweep audit --model` takes it. Raises RequestError for an unknown model, and for a number of parameters, which
    has no dimensions."""
    model = model_meant(text, "MODEL")
    if model.size is None:
        others = others_as_large(model)
        raise RequestError(f"MODEL {text}: a number of parameters has no dimensions; name a model{others}")
    return model.settings


def named_model(text: str) -> dict[str, Any]:
    """Return `model_settings` of a model that a sweep names; empty if the text names no known model. Raises
    RequestError for a name on the hub, which may mean the model of transformers."""
    if not NAME.fullmatch(text):
        return {}
    is_on_hub = "/" in text
    try:
        settings = model_settings(plain(text) if is_on_hub else text)
    except RequestError:
        return {}
    if is_on_hub:
        raise RequestError(
            f"{text!r} is not a model; did you mean {plain(text)}? (lmsweep's transformer of its dimensions; hf:{text} "
            "is that of transformers)"
        )
    return settings


def others_as_large(model: Model) -> str:
    """Return which models have about as many parameters, in words."""
    counts = {name: _of_size(name, *size).parameters for name, size in named_sizes().sizes.items()}
    alike = sorted((abs(count / model.parameters - 1), name) for name, count in counts.items())
    near = [name for apart, name in alike if apart < MOST_APART][:MOST_ALIKE]
    return f", such as {', '.join(near)}" if near else ""


def model_meant(text: str, option: str = "--model") -> Model:
    """Return the model that a name, a config.json or a number of parameters means. Raises RequestError for another."""
    path = Path(text.removeprefix("hf:")).expanduser()
    if path.suffix == ".json" or (path / "config.json").is_file():
        return _of_configuration(path if path.suffix == ".json" else path / "config.json")
    name = plain(text)
    sizes, aliases = named_sizes()
    name = aliases.get(name, name)
    if name in sizes:
        return _of_size(name, *sizes[name])
    if shipped := _shipped(text, name):
        return _of_configuration(shipped)
    if depth := NANOCHAT.fullmatch(name):
        return _of_size(name, _nanochat(int(depth[1])), NANOCHAT_VOCABULARY)
    if dimensions := DIMENSIONS.fullmatch(name):
        return _of_dimensions(name, dimensions)
    if count := re.fullmatch(r"(\d+(?:\.\d+)?)([mbt])", name):
        scale = {"m": 1e6, "b": 1e9, "t": 1e12}[count[2]]
        return Model(name=text, parameters=round(float(count[1]) * scale))
    raise RequestError(f"{option} {text}: no such model{choices(name, sizes)}; a config.json works, too")


def plain(text: str) -> str:
    """Return a name as in the tables: `meta-llama/Llama-3.1-8B-Instruct` is `llama-3.1-8b`."""
    name = text.removeprefix("hf:").removesuffix("/lit_model.pth").rpartition("/")[2].strip().lower()
    name = re.sub(r"[\s_]+", "-", name.removeprefix("meta-"))
    name = _SUFFIXES.sub("", name)
    name = re.sub(r"^(llama|qwen|mistral|gemma)-?(\d)", r"\1-\2", name)  # llama3.1-8b: llama-3.1-8b
    return re.sub(r"^qwen-(2\.5|2|3)-", r"qwen\1-", name)  # qwen-3-8b: qwen3-8b, as it is called


class NamedSizes(NamedTuple):
    sizes: dict[str, tuple[ModelSize, int]]
    """Name -> dimensions and vocabulary."""
    aliases: dict[str, str]
    """Another name -> the name in `sizes`, or of a configuration that ships."""


@cache
def named_sizes() -> NamedSizes:
    """Return the models that have names: lmsweep's sizes, and those of models.csv."""
    sizes = {name: (size, VOCABULARIES.get(name, VOCABULARY)) for name, size in SIZES.items()}
    aliases: dict[str, str] = {}
    with Path(__file__).with_name("models.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            aliases |= dict.fromkeys(row["also"].split(), row["name"])
            values: dict[str, Any] = {key: int(value) for key, value in row.items() if value.isdecimal()}
            if not values:
                continue  # the row only adds names to one of lmsweep's sizes, or to a configuration that ships
            vocabulary = values.pop("vocab_size")
            flags: dict[str, Any] = {key: bool(values.pop(key, 0)) for key in ("tied_head", "qk_norm")}
            flags["feed_forward"] = row["feed_forward"]
            sizes[row["name"]] = (ModelSize(**values, **flags), vocabulary)
    return NamedSizes(sizes, aliases)


def _shipped(text: str, name: str) -> Path | None:
    """Return the file of a configuration that ships: by its name on the hub, or by its plain name."""
    exact = shipped_configuration(text.removeprefix("hf:"))
    return exact or next((path for path in FOLDER.glob("*.json") if plain(path.stem.replace("--", "/")) == name), None)


def _of_size(name: str, size: ModelSize, vocabulary: int) -> Model:
    parameters = int(parameter_count(**size.terms, vocab_size=vocabulary))
    return Model(name=name, parameters=parameters, size=size, vocab_size=vocabulary)


def _of_dimensions(name: str, dimensions: re.Match[str]) -> Model:
    counts = {key: int(value) for key, value in dimensions.groupdict().items() if value and value.isdecimal()}
    vocabulary = counts.pop("vocabulary", VOCABULARY)
    flags = {key: bool(dimensions[key]) for key in ("qk_norm", "tied_head")}
    size = ModelSize(**counts, **flags, feed_forward="gelu" if dimensions["gelu"] else "swiglu")  # type: ignore[arg-type]
    return _of_size(name, size, vocabulary)


def _nanochat(depth: int) -> ModelSize:
    width = 64 * depth
    heads = max(1, -(-width // 128))  # as base_train.py: of 128, their number rounded up
    return ModelSize(d_model=width, d_ff=4 * width, num_layers=depth, num_heads=heads, feed_forward="gelu")


def _of_configuration(path: Path) -> Model:
    """Return the model of a Hugging Face configuration, with the dimensions that the usual keys state."""
    stated = read_configuration(path, {})
    name = stated.get("_name_or_path") or path.stem.replace("--", "/")
    fields = {field: next((stated[key] for key in keys if stated.get(key)), None) for field, keys in NAMES.items()}
    if not fields["d_model"] or not fields["num_layers"] or not fields["num_heads"]:
        raise RequestError(f"--model {path}: it states no hidden_size, num_hidden_layers or num_attention_heads")
    experts = stated.get("num_local_experts") or stated.get("num_experts") or stated.get("n_routed_experts")
    width = stated.get("moe_intermediate_size") if experts else None
    size = ModelSize(
        d_model=fields["d_model"],
        d_ff=width or fields["d_ff"] or 4 * fields["d_model"],
        num_layers=fields["num_layers"],
        num_heads=fields["num_heads"],
        num_kv_heads=stated.get("num_key_value_heads"),
        d_head=stated.get("head_dim"),
        qk_norm=str(stated.get("model_type", "")).startswith("qwen3"),
        feed_forward="gelu" if "gelu" in str(stated.get("activation_function", "")) else "swiglu",
        num_experts=experts,
        active_experts=stated.get("num_experts_per_tok") if experts else None,
        tied_head=bool(stated.get("tie_word_embeddings", False)),
    )
    window, layers = _window(stated, size.num_layers)
    return replace(_of_size(str(name), size, fields["vocab_size"] or 0), window=window, windowed_layers=layers)


def _window(stated: Mapping[str, Any], layers: int) -> tuple[int | None, int]:
    """Return the sliding window of a configuration, and how many layers have it."""
    window = stated.get("sliding_window")
    if not window or stated.get("use_sliding_window") is False:
        return None, 0
    if kinds := stated.get("layer_types"):
        return window, sum(kind == "sliding_attention" for kind in kinds[:layers])
    if every := stated.get("sliding_window_pattern"):  # one layer in so many sees all
        return window, layers - layers // every
    return window, layers
