"""Chooses the model of a first sweep: one of the folder's, built as its code allows, or what to write for it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import yaml

from lmsweep.orchestrator.features.init.definitions import Candidate, LeftOut, Parameter, Settings
from lmsweep.orchestrator.features.init.discover import Discovery
from lmsweep.orchestrator.sweep.users_code import TO_WRITE
from lmsweep.trials.code.calling import OFFERED
from lmsweep.trials.spec.model_sizes import PLAIN_DIMENSIONS, SIZES
from lmsweep.trials.spec.suggestions import known_elsewhere

PASSED = (*OFFERED, "device", "dtype")
"""The parameters of a model that lmsweep gives."""
PASSED_BY_ADAPTER = ("vocab_size", "context_length")
"""What an adapter takes and passes on, as a sweep varies it."""

USUAL_VALUES: dict[str, object] = {
    **dict.fromkeys(("rope_theta", "theta", "rope_base"), 10000.0),
    **dict.fromkeys(("dropout", "p_dropout", "attn_pdrop", "residual_pdrop", "resid_pdrop", "embd_pdrop"), 0.0),
    **dict.fromkeys(("drop_prob", "drop_rate", "dropout_rate", "dropout_prob", "p_drop", "attn_dropout"), 0.0),
    **dict.fromkeys(("eps", "norm_eps", "layer_norm_eps", "rms_norm_eps"), 1e-5),
    **dict.fromkeys(("bias", "qkv_bias", "use_bias"), False),
    "bucket_size_mb": 25.0,
    "lr": 0.0001,
}
"""Values for parameters without a default whose name says enough."""

VOCABULARY = 10_000  # the default of TrialConfig, for models whose signature names no other
MOST_LAYERS = 8
"""Deepest default that a first look on a CPU keeps: more take minutes a trial."""
OBJECTS = ("config", "cfg", "args", "params", "hparams", "model_args", "net", "model", "module", "backbone", "encoder")
"""Parameters that take an object, which no sweep file can hold."""
PLAIN = ("", "int", "float", "str", "bool", "list", "tuple", "dict", "None")
"""Types of parameters that a sweep file can hold."""
ADAPTER = "lmsweep_model.py"
"""The file with a function that builds a model whose class takes more than a sweep file holds."""
BUILD = f"{ADAPTER.removesuffix('.py')}:build"
TO_COMPLETE = '''"""Builds the model that lmsweep measures. Its forward takes tokens and returns logits."""


def build(vocab_size, context_length):
    raise NotImplementedError({advice!r})
'''
"""ADAPTER, if the user must write what builds the model."""
COMPLETE = '''"""Builds {model} for lmsweep: from the fields that `build` names, and model_args as changes."""

{imports}


def build({taken}):
    {body}
'''
"""ADAPTER, if it builds the model from its settings."""


@dataclass(frozen=True, kw_only=True)
class FirstModel:
    line: str
    """Line of the sweep file: `model: ...`."""
    notes: tuple[str, ...] = ()
    """Comments above the line."""
    vocabulary: int = VOCABULARY
    replaced: tuple[str, ...] = ()
    """The values that the sweep sets in place of defaults in the user's code: `depth 2, not your 12`."""
    is_users: bool = True
    adapter: str | None = None
    """The text of ADAPTER, if the model needs a function that builds it."""
    adapter_file: str = ADAPTER
    """Relative to the code folder."""
    to_write: str | None = None
    """What the user must write before the sweep runs; None if it runs as it is."""
    not_chosen: tuple[str, ...] = ()
    """The other models that were found, each with what to write."""


@dataclass(frozen=True, kw_only=True)
class _Way:
    """How a model is built: by its class, or by `settings` with an adapter, a function in a file that init writes."""

    model: Candidate
    settings: Settings | None
    vocabulary: int
    args: dict[str, object]
    """Arguments that the sweep file gives."""
    dimensions: dict[str, int]
    """Parameter that lmsweep passes from the sweep file's fields -> the user's default, or what replaces it."""
    replaced: list[str]
    """As in FirstModel."""
    unknown: list[str]
    """Parameters whose values cannot be guessed."""

    @property
    def is_likely(self) -> bool:
        return self.model.is_likely

    @property
    def taken(self) -> tuple[Parameter, ...]:
        return self.settings.parameters if self.settings else self.model.parameters

    @property
    def is_held(self) -> bool:
        """Whether a sweep file can hold the values of the unknown parameters."""
        # The outermost type: list of `list[int]`, int of `int | None`; of `np.ndarray` it is np, which is not plain.
        types = {re.split(r"[\[|. ]", one.annotation)[0] for one in self.taken if one.name in self.unknown}
        return types <= {*PLAIN} and not {*self.unknown} & {*OBJECTS}


def first_model(discovery: Discovery, *, size: str, context: int, shallow: bool) -> FirstModel:
    """Return the folder's likeliest model that can be built; else the likeliest, with what to write; else lmsweep's.

    size, context: of the sweep's trials. shallow: whether deep defaults are replaced (see MOST_LAYERS).
    """
    ways = [_way(one, size, context, shallow=shallow) for one in discovery.of("model")]
    found: list[_Way | LeftOut] = [*ways, *(one for one in discovery.left_out if one.kind == "model")]
    if not found:
        return FirstModel(
            line=f"model: {size}",
            notes=("# There is no code here: this is lmsweep's model. Yours is named as package.module:Class.",),
            is_users=False,
        )
    by_likelihood = sorted(found, key=lambda one: not one.is_likely)  # a part only where nothing looks like a whole
    complete = [way for way in ways if way.is_likely and not way.unknown]
    chosen = complete[0] if complete else by_likelihood[0]  # the latter may be left out, lack values or be a part
    measured = chosen if isinstance(chosen, _Way) and not chosen.unknown else None
    not_chosen = tuple(_advice_on(one, measured) for one in by_likelihood if one is not chosen)
    if isinstance(chosen, LeftOut) or (chosen.unknown and not chosen.is_held):
        return _to_write(chosen, not_chosen)
    model, settings = chosen.model, chosen.settings
    instead = f"# For a first look: {'; '.join(chosen.replaced)}."
    needs = f"{model.reference} ({model.place}) needs {', '.join(chosen.unknown)}: give values in place of {TO_WRITE}"
    return FirstModel(
        line=_line(chosen, size),
        notes=(
            f"# {model.place}. It is called with the fields that its signature has, and with args.",
            "# args can be axes: model_args.NAME: [1, 2]. hf:NAME names a Hugging Face configuration.",
            *([instead] if chosen.replaced else []),
        ),
        vocabulary=chosen.vocabulary,
        replaced=tuple(chosen.replaced),
        adapter=_adapter(model, settings) if settings else None,
        adapter_file=_adapter_file(settings),
        to_write=needs if chosen.unknown else None,
        not_chosen=not_chosen,
    )


def unknown_of(parameters: Iterable[Parameter], given: Iterable[str] = ()) -> list[str]:
    return [one.name for one in parameters if one.required and one.name not in USUAL_VALUES and one.name not in given]


def as_call(reference: str, args: dict[str, object]) -> str:
    return f'{{call: "{reference}", args: {as_yaml(args)}}}'


def as_yaml(value: object) -> str:
    """Return the value as YAML on one line."""
    dumped: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=inf)
    return dumped.partition("\n")[0]  # after a scalar comes a line `...`


def _advice_on(one: _Way | LeftOut, measured: _Way | None) -> str:
    """Return a model that is not measured, its place and what to write."""
    if isinstance(one, LeftOut):
        return f"{one.reference} ({one.place}): {one.advice}"
    reference, unknown = one.model.reference, ", ".join(one.unknown)
    if not unknown and measured:
        advice = f"write it in place of {measured.model.reference}"
    elif not unknown:
        advice = "write it as model, if it is more than a part of one"
    elif one.is_held:
        advice = f"it also needs {unknown}: model: {as_call(reference, dict.fromkeys(one.unknown, TO_WRITE))}"
    else:
        advice = (
            f"it needs {unknown}, which no sweep file can hold: write def build(vocab_size, context_length): "
            f'return {reference.rpartition(":")[2]}(...), and name it: model: "./FILE.py:build"'
        )
    return f"{reference} ({one.model.place}): {advice}"


def _to_write(one: _Way | LeftOut, not_chosen: tuple[str, ...]) -> FirstModel:
    """Return a function that the user completes; until then, reading the sweep file says what to write."""
    words = _advice_on(one, None)
    named = one if isinstance(one, LeftOut) else one.model
    name = named.reference.rpartition(":")[2].partition(".")[0]  # Net of mine.model:Net.small
    return FirstModel(
        line=f'model: {{name: {as_yaml(name)}, call: "{BUILD}"}}',
        notes=(f"# {named.place}. Write build in {ADAPTER}, which says what it needs, or another model here.",),
        adapter=TO_COMPLETE.format(advice=words),
        to_write=f"build in {ADAPTER}: {words}",
        not_chosen=not_chosen,
    )


def _line(way: _Way, size: str) -> str:
    reference, file = way.model.reference, _adapter_file(way.settings)
    if way.settings:
        reference = BUILD if file == ADAPTER else f"./{file}:build"
    parts = [f"name: {as_yaml(way.model.reference.rpartition(':')[2])}", f'call: "{reference}"']
    if not way.settings and any(one.required and one.name in PLAIN_DIMENSIONS for one in way.taken):
        parts.append(f"size: {size}")  # which has a value for each of PLAIN_DIMENSIONS
    parts += [f"{name}: {number}" for name, number in way.dimensions.items()]
    if args := way.args | dict.fromkeys(way.unknown, TO_WRITE):
        parts.append(f"args: {as_yaml(args)}")
    return f"model: {{{', '.join(parts)}}}"


def _way(model: Candidate, size: str, context: int, *, shallow: bool) -> _Way:
    """Return the first way to build a model that needs nothing unknown, else its first."""
    ways = [_way_with(settings, model, size, context, shallow=shallow) for settings in model.ways or (None,)]
    return min(ways, key=lambda way: bool(way.unknown))


def _way_with(settings: Settings | None, model: Candidate, size: str, context: int, *, shallow: bool) -> _Way:
    """Return a way to build a model. The user's defaults stay, except where a first look cannot have them.

    the parameter                   without a default     with a default
    is passed: a context length     -                     -, as it is an axis of the sweep
    is passed: another dimension    -                     dimensions: the default, as lmsweep would pass its own
    is passed: device, ...          -                     -
    any other                       args, else unknown    args, if the default is replaced
    """
    taken = settings.parameters if settings else model.parameters
    ours_of = {one.name: _ours(one, taken) or "" for one in taken}
    vocabulary = next((one.number for one in taken if ours_of[one.name] == "vocab_size" and one.number), VOCABULARY)
    sizes: dict[str, Any] = {**asdict(SIZES[size]), "vocab_size": vocabulary, "context_length": context}
    if settings:  # the adapter passes its two on by the user's names
        passed = {name for name, ours in ours_of.items() if ours in PASSED_BY_ADAPTER}
    else:  # lmsweep calls the class itself, by the names that it knows
        passed = {*ours_of} & {*PASSED}
    args: dict[str, object] = {}
    dimensions: dict[str, int] = {}
    replaced, unknown = [], []
    for one in taken:
        name, ours = one.name, ours_of[one.name]
        if name in passed and (one.required or ours == "context_length"):
            continue
        if one.required:
            if ours in sizes:
                args[name] = sizes[ours]
            elif name in USUAL_VALUES:
                args[name] = USUAL_VALUES[name]
            else:
                unknown.append(name)
            continue
        replacement = _replacement(one, ours, sizes, shallow=shallow)
        if name in passed:
            number = replacement or one.number
            if number and ours in PLAIN_DIMENSIONS:
                dimensions[name] = number
        elif replacement:
            args[name] = replacement
        if replacement and replacement != one.number:
            replaced.append(f"{name} {replacement}, not your {one.default or 'own'}")
    return _Way(
        model=model, settings=settings, vocabulary=vocabulary,
        args=args, dimensions=dimensions, replaced=replaced, unknown=unknown,
    )  # fmt: skip


def _replacement(one: Parameter, ours: str, sizes: Mapping[str, Any], *, shallow: bool) -> int | None:
    """Return what a first look has in place of a default that is too small, too deep or not a number; None keeps it."""
    # The batches have tokens up to this vocabulary (the default itself if it is a number), sequences up to this length.
    is_vocabulary = ours == "vocab_size"
    is_short = ours == "context_length" and (one.number or 0) < sizes[ours]
    # A depth that is not written as a number may be any.
    is_deep = ours == "num_layers" and shallow and (not one.number or one.number > MOST_LAYERS)
    return int(sizes[ours]) if is_vocabulary or is_short or is_deep else None


def _ours(parameter: Parameter, among: Iterable[Parameter]) -> str | None:
    """Return lmsweep's name for a size: d_model for n_embd. If there are two widths, `hidden_dim` is d_ff."""
    ours = parameter.name if parameter.name in PASSED else known_elsewhere(parameter.name, PASSED)
    if ours == "d_model" and parameter.name.startswith("hidden"):
        names = [one.name for one in among if one.name != parameter.name]
        if any(name == "d_model" or known_elsewhere(name, PASSED) == "d_model" for name in names):
            return "d_ff"
    return ours


def _adapter_file(settings: Settings | None) -> str:
    return ADAPTER if settings is None or settings.beside in (None, ".") else f"{settings.beside}/{ADAPTER}"


def _adapter(candidate: Candidate, settings: Settings) -> str:
    """Return the text of the file with `build`, which builds the model from its settings."""
    theirs: dict[str | None, str] = {}  # lmsweep's name -> the user's; of two with one meaning, the first
    for one in settings.parameters:
        theirs.setdefault(_ours(one, settings.parameters), one.name)
    taken = [name for name in PASSED_BY_ADAPTER if name in theirs]
    given = ", ".join([*(f"{theirs[name]}={name}" for name in taken), "**changes"])
    imports: dict[str, list[str]] = {}
    for reference in settings.imports:
        imports.setdefault(reference.partition(":")[0], []).append(reference.partition(":")[2])
    lines = [f"from {module} import {', '.join(sorted({*names}))}" for module, names in sorted(imports.items())]
    return COMPLETE.format(
        model=candidate.reference.partition(":")[2],
        imports="\n".join(lines),
        taken=", ".join([*taken, "**changes"]),
        body=settings.body.format(given=given),
    )
