"""References to code that a user wrote: `package.module:attribute` or `./file.py:attribute`."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

HUGGING_FACE = "hf:"
"""Begins a reference to a Hugging Face configuration, a name on the hub or a path, which is not parsed here."""

REFERENCES = ("model_code", "step", "attention", "optimizer", "loss", "ddp")
"""Fields that may hold a reference to the user's code."""

# By these names of its parameters, a model's forward says what it takes.
TOKENS = ("input_ids", "idx", "tokens", "token_ids", "x", "inputs", "input")
"""Names of a parameter of `forward` that takes the tokens. If it has none of these, its first parameter does."""
TARGETS = ("targets", "labels")
"""Names of a parameter of `forward` that takes the targets; an optional `target` does, too. A required `target` is an
input: the sentence in the other language, of a model that translates."""
MASKS = ("attention_mask",)
"""Names of a parameter that takes 1 for each token that counts, as in transformers: (batch, tokens)."""
POSITIONS = ("position_ids", "positions", "input_pos")
"""Names of a parameter that takes the position of each token: (batch, tokens)."""

# The same for an attention function.
CAUSAL = ("is_causal", "causal")
ATTENTION_MASKS = ("mask", "attn_mask", "attention_mask")
"""A mask (tokens, tokens), true where a query attends to a key, as in PyTorch."""

FINISH = "finish_gradient_synchronization"
"""A method that ranks call between backward and the optimizer, if the wrapper of the model has it."""

_NAME = r"[^\W\d]\w*"
_MODULE = re.compile(rf"(?P<module>{_NAME}(\.{_NAME})*):(?P<attribute>{_NAME}(\.{_NAME})*)")
_FILE = re.compile(rf"(\./)?(?P<file>[^:\0]+\.py):(?P<attribute>{_NAME}(\.{_NAME})*)")


@dataclass(frozen=True, kw_only=True)
class Reference:
    module: str | None = None
    """None if a file is named instead."""
    file: str | None = None
    """Relative to the code folder."""
    attribute: str
    """Dotted for a nested class."""

    @property
    def where(self) -> str:
        return self.module or self.file or ""

    @property
    def name(self) -> str:
        return self.attribute.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.where}:{self.attribute}"


@dataclass(frozen=True, kw_only=True)
class Code:
    """The folder with the user's code, and the installed packages that references may name."""

    folder: str
    """Absolute path."""
    trusted: tuple[str, ...] = ()
    """Installed packages, by import name, that references may name."""
    revision: str | None = None
    """Git commit of the folder."""
    dirty: bool | None = None
    """Whether it has uncommitted changes; None without git."""


def is_reference(value: object) -> bool:
    """Return whether a value is written as a reference. A word such as `sdpa` is not."""
    return isinstance(value, str) and ":" in value


def parse_reference(text: str) -> Reference:
    """Return the parts of a reference. Raises ValueError if the text is not one."""
    if found := _FILE.fullmatch(text):
        return Reference(file=found["file"], attribute=found["attribute"])
    if found := _MODULE.fullmatch(text):
        return Reference(module=found["module"], attribute=found["attribute"])
    raise ValueError(f"{text!r} is not a reference; write package.module:name or ./file.py:name")


def canonical(text: str) -> str:
    """Return the normal form of a reference, without `./`, which identifiers hash. Raises ValueError if malformed."""
    return str(parse_reference(text))


def short_name(text: str) -> str:
    """Return what tables show for a value that may be a reference: the attribute's name, or the text itself."""
    if text.startswith(HUGGING_FACE):
        return text.removeprefix(HUGGING_FACE).rpartition("/")[2].removesuffix(".json")
    try:
        return parse_reference(text).name
    except ValueError:  # a word, or the value of a foreign row
        return text


def short_names(values: Iterable[object]) -> dict[object, str]:
    """Return the short name of each reference among the values that are shown together, if no other has the same."""
    texts = {value for value in values if isinstance(value, str)}
    shorts = {text: short_name(text) for text in texts}
    counts = Counter(shorts.values())
    return {text: short for text, short in shorts.items() if short != text and counts[short] == 1}
