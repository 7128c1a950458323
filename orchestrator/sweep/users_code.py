"""Reads the values of a sweep file that may lead to the user's code: models, attention, optimizers, wrappers.

    model: cs336_basics.model:TransformerLM
    model: {name: mine, call: "mine.model:Model", size: small, args: {theta: 10000}, blocks: layers}
    model: hf:./config.json        or {hf: Qwen/Qwen3-0.6B, override: {num_hidden_layers: 8}}
    step: mine.step:make           or {call: mine.step:make, args: {accumulate: 4}}
    attention: ./flash.py:Flash    or {call: "./flash.py:Flash", args: {block: 64}}

Nothing that they lead to runs here.
"""

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import lmsweep
from lmsweep.orchestrator.sweep.located_yaml import shown
from lmsweep.trials.code.calling import arguments_of
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.hub_configurations import NAMES, read_configuration, shipped_configuration
from lmsweep.trials.code.source import check_reference, parameters_of
from lmsweep.trials.spec.config import ARGUMENTS, WORDS, RequestError, Trial, TrialConfig
from lmsweep.trials.spec.model_sizes import PLAIN_DIMENSIONS, SIZES, VOCABULARIES
from lmsweep.trials.spec.reference import HUGGING_FACE, Code, canonical, is_reference, short_name
from lmsweep.trials.spec.suggestions import choices

GROUPS = {"model": "lmsweep.models", "attention": "lmsweep.attention", "optimizer": "lmsweep.optimizers"}
"""The entry point groups through which an installed package adds words to a field."""

_KEYS = {
    "model": ("name", "call", "args", "blocks", "size", "hf", "override", *PLAIN_DIMENSIONS),
    **dict.fromkeys(("attention", "optimizer", "ddp", "step"), ("call", "args")),
}

TO_WRITE = "VALUE"
"""What `lmsweep init` and messages write for an argument whose value only the user knows."""


@dataclass(frozen=True, kw_only=True)
class Fields:
    """A value that stands for several fields, such as a model."""

    values: dict[str, Any]


def size_fields(name: str) -> dict[str, Any]:
    """Return the dimensions of a named size and its vocabulary, if it has one; none of other names, as of a package."""
    if name in SIZES:
        return asdict(SIZES[name]) | ({"vocab_size": VOCABULARIES[name]} if name in VOCABULARIES else {})
    named_model = getattr(lmsweep, "named_model", None)  # from `Feature.functions`, if a feature is here that has it
    return dict(named_model(name)) if named_model and name not in registered("model") else {}


def argument_of(name: str) -> str | None:
    """Return `model_args` for the key `model_args.theta`, None for a key that is no argument."""
    field, dot, argument = name.partition(".")
    return field if dot and argument.isidentifier() and field in ARGUMENTS.values() else None


def read_code(field: str, value: object) -> object:
    """Return the word itself, or the Fields that a reference or mapping stands for. Raises ValueError for others."""
    if isinstance(value, dict) and {"call", "hf"} & set(value):
        return _read_mapping(field, value)
    if isinstance(value, str) and value in WORDS.get(field, ()):
        return value
    offered = registered(field)
    if isinstance(value, str):
        if value in offered:
            return Fields(values=_fields(field, canonical(offered[value]), name=value))
        if field == "model" and value.startswith(HUGGING_FACE):
            return Fields(values=_fields(field, value))
        if is_reference(value):
            return Fields(values=_fields(field, canonical(value)))
    listed = choices(value, [*(SIZES if field == "model" else WORDS.get(field, ())), *offered])
    others = f"{'or a mapping of its dimensions, ' if field == 'model' else ''}or your own as package.module:name"
    # As `; did you mean sdpa? (or your own as ...)`, or ` (one of: naive, sdpa), or your own as ...`.
    end = f" ({others})" if listed.endswith("?") else f", {others}"
    raise ValueError(f"{shown(value)} is not {'an' if field[0] in 'aeiou' else 'a'} {field}{listed}{end}")


def registered(field: str) -> dict[str, str]:
    return {one.name: one.value for one in entry_points(group=GROUPS[field])} if field in GROUPS else {}


def in_json(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a configuration with those like `model_args.theta` collected as JSON in `model_args`."""
    found = {name: value for name, value in arguments.items() if "." not in name}  # a name with a dot is an argument
    if len(found) == len(arguments):
        return found
    for field in ARGUMENTS.values():
        users = {name.partition(".")[2]: value for name, value in arguments.items() if argument_of(name) == field}
        if users:
            found[field] = json.dumps(users, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return found


def with_code(trials: Iterable[Trial], folder: str | None, trusted: Iterable[str] = ()) -> tuple[Trial, ...]:
    """Return the trials; those with references know the code folder. Raises RequestError about all wrong references."""
    listed = tuple(trials)
    if not any(trial.references for trial in listed):  # hf:NAME is one, too
        return listed
    code = code_folder(folder or ".", trusted)
    problems: dict[str, None] = {}
    for text in dict.fromkeys(text for trial in listed for text in trial.references):
        try:
            if not text.startswith(HUGGING_FACE):
                check_reference(text, code)
        except (RequestError, ValueError) as error:
            problems[str(error)] = None
    if problems:
        raise RequestError("\n".join(problems))
    return tuple(_with_code(trial, code) if trial.references else trial for trial in listed)


def _with_code(trial: Trial, code: Code) -> Trial:
    config, step = trial.config, trial.config.step
    taken = tuple(sorted(parameters_of(step, code))) if step else ()
    known = with_dimensions(config, code) if config.is_hugging_face else config
    return replace(trial, config=known, code=code, step_takes=taken)


def _fields(field: str, text: str, *, name: str | None = None) -> dict[str, Any]:
    """Return the fields that a reference decides: its own, or those of a model."""
    if field != "model":
        return {field: text}
    # Dimensions are unknown until the model is made; d_model has to be a number, and 0 is none.
    return {"model": name or short_name(text), "model_code": text, **dict.fromkeys(PLAIN_DIMENSIONS), "d_model": 0}


def _read_mapping(field: str, written: Mapping[str, Any]) -> Fields:
    legal = _KEYS.get(field)
    if legal is None:
        raise ValueError(f"{shown(dict(written))} is a mapping; write a word or a reference")
    for key in written:
        if key not in legal:
            raise ValueError(f"{shown(key)} is not a key of {field}{choices(key, legal)}")
    for key in ("name", "blocks"):
        if key in written and not isinstance(written[key], str):
            raise ValueError(f"{key} is {shown(written[key])}; write text")
    text, arguments = _called(field, written)
    if not isinstance(arguments, dict):
        raise ValueError(f"args is {shown(arguments)}; write a mapping of names to values")
    if unset := [name for name, value in arguments.items() if value == TO_WRITE]:
        them, are = ("the value", "is") if len(unset) == 1 else ("the values", "are")
        words = f"{', '.join(unset)} {are} {TO_WRITE}; write {them} that it needs"
        raise ValueError(f"{written.get('name') or short_name(text)}: {words}")
    values = _fields(field, text, name=written.get("name"))
    if "blocks" in written:
        values["blocks"] = written["blocks"]
    if "size" in written:
        if str(written["size"]) not in SIZES:  # as text, since a list has no hash
            raise ValueError(f"size {shown(written['size'])} is not a size{choices(written['size'], SIZES)}")
        values |= size_fields(written["size"])
        if "name" not in written:
            values["model"] = f"{values['model']}-{written['size']}"
    for dimension in PLAIN_DIMENSIONS:
        if dimension in written:
            if not isinstance(written[dimension], int) or written[dimension] < 1:
                raise ValueError(f"{dimension} is {shown(written[dimension])}; it must be a whole number from 1")
            values[dimension] = written[dimension]
    return Fields(values=values | {f"{ARGUMENTS[field]}.{name}": value for name, value in arguments.items()})


def _called(field: str, written: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the reference of a mapping, and its arguments as they are written. Raises ValueError for others."""
    call = written.get("call")
    if field == "model" and ("hf" in written or (isinstance(call, str) and call.startswith(HUGGING_FACE))):
        name = written.get("hf", call)
        if not isinstance(name, str) or ("hf" in written and call is not None):
            raise ValueError("hf takes the name or path of a Hugging Face configuration, without call")
        return HUGGING_FACE + name.removeprefix(HUGGING_FACE), written.get("override") or written.get("args") or {}
    if isinstance(call, str) and is_reference(call):
        return canonical(call), written.get("args") or {}
    raise ValueError(f"call is {shown(call)}; write package.module:name or ./file.py:name")


def with_dimensions(config: TrialConfig, code: Code) -> TrialConfig:
    """Return the configuration with the dimensions that its Hugging Face configuration states.

    Unknown dimensions of a model are 0 or None: its trial knows them. Warns if the configuration is not on this
    machine. Raises RequestError if there is no such file or it is not JSON.
    """
    name = str(config.model_code).removeprefix(HUGGING_FACE)
    path = configuration_file(name, code)
    if path is None:
        warnings.warn(
            f"hf:{name}: its config.json is not in the hub's cache here, so its dimensions are unknown, and null "
            "in the results. Once it is there, its trials have other identifiers and are measured again; fetch it: "
            f"hf download {name} config.json",
            stacklevel=2,
        )
        return replace(config, vocab_size=0)
    described = read_configuration(path, arguments_of(config.model_args))
    values: dict[str, Any] = {"vocab_size": 0}
    for field, names in NAMES.items():
        stated = [described[name] for name in names if isinstance(described.get(name), int)]
        if stated and stated[0] > 0:
            values[field] = stated[0]
    return replace(config, **values)


def configuration_file(name: str, code: Code) -> Path | None:
    """Return the file of a Hugging Face configuration in the code folder, the hub's cache, or lmsweep itself."""
    path = Path(code.folder, name)
    for file in (path / "config.json", path):
        if file.is_file():
            return file
    if name.startswith((".", "/")) or name.endswith(".json"):
        raise RequestError(f"hf:{name}: there is no file {path}")
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()
    kept = hub / f"models--{name.replace('/', '--')}"
    revision = kept / "refs" / "main"
    if revision.is_file():
        file = kept / "snapshots" / revision.read_text().strip() / "config.json"
        if file.is_file():
            return file
    return shipped_configuration(name)
