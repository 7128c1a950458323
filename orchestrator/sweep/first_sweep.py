"""Writes a first sweep file for what a folder of the user's code defines."""

import re
from dataclasses import asdict, dataclass

from lmsweep.trials.code.definitions import Parameter
from lmsweep.trials.code.discovery import Candidate, Discovery
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.spec.reference import ATTENTION_MASKS, CAUSAL
from lmsweep.trials.spec.suggestions import known_elsewhere
from lmsweep.trials.spec.words import GPU_DEVICES

OFFERED = ("vocab_size", "context_length", "d_model", "d_ff", "num_layers", "num_heads", "device", "dtype")
"""The fields that a model is called with if its signature has them."""

USUAL: dict[str, object] = {
    **dict.fromkeys(("rope_theta", "theta", "rope_base"), 10000.0),
    **dict.fromkeys(("dropout", "p_dropout", "attn_pdrop", "residual_pdrop", "resid_pdrop", "embd_pdrop"), 0.0),
    **dict.fromkeys(("eps", "norm_eps", "layer_norm_eps", "rms_norm_eps"), 1e-5),
    "bias": False,
    "bucket_size_mb": 25.0,
    "lr": 0.0001,
}
"""Values for parameters without a default whose name says enough."""

MASKED = {*CAUSAL, *ATTENTION_MASKS}
VOCABULARY = 10_000
MOST = 3
"""Most candidates of one kind that the file measures; the others are named in a comment."""
OBJECTS = ("config", "cfg", "args", "params", "hparams", "model_args", "net", "model", "module", "backbone", "encoder")
"""Parameters that take an object, which no sweep file can hold."""
PLAIN = ("", "int", "float", "str", "bool", "list", "tuple", "dict", "None")
"""Types of parameters that a sweep file can hold."""


@dataclass(frozen=True, kw_only=True)
class FirstSweep:
    """The text of the sweep file, and of a Python file that it refers to, if it needs one."""

    text: str
    adapter: str | None = None
    not_measured: tuple[str, ...] = ()
    """What was found and is not in the sweep, with its place and what to write."""


ADAPTER = "lmsweep_model.py"
"""Name of the file with a function that builds a model whose class takes an object with settings."""


def first_sweep(name: str, found: Discovery, *, device: str, gpus: int, code: str) -> FirstSweep:
    """Return the file for a folder called `name`. `device` is what to measure on, `code` the folder as written."""
    contexts = (256, 1024) if device in GPU_DEVICES else (64, 128)
    size = "small" if device in GPU_DEVICES else "tiny"
    model, adapter, measured = f"model: {size}", None, None
    left = [f"{one.reference} ({one.place}): {one.advice}" for one in found.left_out]
    for candidate in found.of("model"):
        args = _arguments(candidate, size, max(contexts), shallow=device not in GPU_DEVICES)
        if not isinstance(args, dict):
            left.append(f"{candidate.reference} ({candidate.place}): {_model_advice(candidate, args)}")
        elif measured or not candidate.is_likely:
            instead = f"in place of {measured.reference}" if measured else "as model, if it is more than a part of one"
            left.append(f"{candidate.reference} ({candidate.place}): write it {instead}")
        else:
            adapter = _adapter(candidate) if candidate.settings else None
            model, measured = _model(candidate, args, size), candidate
    notes = ["# No model of your own was found here: this is lmsweep's. Yours is named as package.module:Class."]
    if measured:
        notes = [
            f"# {measured.place}. It is called with the fields that its signature has, and with args.",
            "# args can be axes: model_args.NAME: [1, 2]. hf:NAME names a Hugging Face configuration.",
        ]
    elif found.of("model") or any(one.kind == "model" for one in found.left_out):
        notes = ["# This is lmsweep's own model: what yours needs is at the end of this file."]
    precisions = "[tf32, bf16]" if device == "cuda" else "[fp32, bf16]"
    lines = [
        f"name: {_plain(name)}",
        "description: A first look at the time and memory of a training step.",
        f"code: {_plain(code)}  # the folder with your code, relative to this file",
        "",
        "grids:",
        "  # The time of a training step: every combination of the axes is a trial.",
        "  - workloads: [timing]  # next: [timing, memory, profile]",
        "    axes:",
        f"      context_length: [{', '.join(map(str, contexts))}]  # tokens per sequence",
        f"      precision: {precisions}  # bf16 is autocast",
        "      # compile: [none, block]  # torch.compile of the repeated layers",
        "    fixed:",
        *(f"      {note}" for note in notes),
        f"      {model}",
        f"      vocab_size: {VOCABULARY}",
        f"      device: {device}",
        "      batch_size: 4",
        "      mode: train_step  # forward, backward and optimizer",
        "      measure_steps: 20",
    ]
    lines += _attention_grids(found, device, left)
    lines += _optimizer_grid(found, model, device, left)
    lines += _ddp_grid(found, model, device, gpus, left)
    if left:
        lines += ["", "# Found, and not measured:", *(f"# - {words}" for words in left)]
    return FirstSweep(text="\n".join(lines) + "\n", adapter=adapter, not_measured=tuple(left))


def _model_advice(candidate: Candidate, needed: str) -> str:
    """Return what to write for a model that needs more than its signature tells."""
    by_name = {one.name: one for one in candidate.parameters}
    names, name = needed.split(", "), candidate.reference.rpartition(":")[2]
    types = {re.split(r"[\[|. ]", by_name[one].annotation)[0] if one in by_name else "" for one in names}
    if candidate.settings or {*names} & {*OBJECTS} or not types <= {*PLAIN}:
        return (
            f"it needs {needed}, which no sweep file can hold: write "
            f'def build(vocab_size, context_length): return {name}(...), and name it: model: "./FILE.py:build"'
        )
    values = ", ".join(f"{one}: VALUE" for one in names)
    return f'it also needs {needed}: model: {{call: "{candidate.reference}", args: {{{values}}}}}'


def _measured(found: list[Candidate], field: str, left: list[str]) -> list[Candidate]:
    """Return the candidates that the sweep measures; the others go to `left`, with what to write."""
    able = [one for one in found if not _needs(one.parameters)]
    for one in found:
        where = f"{one.reference} ({one.place})"
        if _needs(one.parameters):
            needed = [p.name for p in one.parameters if p.required and p.name not in USUAL]
            values = ", ".join(f"{name}: VALUE" for name in needed)
            given = f'{{call: "{one.reference}", args: {{{values}}}}}'
            left.append(f"{where}: it also needs {', '.join(needed)}: add to {field}: {given}")
        elif one in able[MOST:]:
            left.append(f'{where}: the sweep has {MOST} of its kind: add to {field}: "{one.reference}"')
    return able[:MOST]


def _model(candidate: Candidate, args: dict[str, object], size: str) -> str:
    reference = f"{ADAPTER.removesuffix('.py')}:build" if candidate.settings else candidate.reference
    parts = [f"name: {_plain(candidate.reference.rpartition(':')[2])}", f'call: "{reference}"']
    if not candidate.settings and any(one.name in SIZES[size].__dataclass_fields__ for one in candidate.parameters):
        parts.append(f"size: {size}")
    if args:
        parts.append(f"args: {{{', '.join(f'{name}: {_value(value)}' for name, value in args.items())}}}")
    return f"model: {{{', '.join(parts)}}}"


def _arguments(candidate: Candidate, size: str, context: int, *, shallow: bool) -> dict[str, object] | str:
    """Return what the model must be given beside the fields that it is offered; or the names that nobody can guess."""
    values: dict[str, object] = {**asdict(SIZES[size]), "vocab_size": VOCABULARY, "context_length": context}
    parameters = candidate.settings.parameters if candidate.settings else candidate.parameters
    found: dict[str, object] = {}
    unknown = []
    for one in parameters:
        ours = one.name if one.name in OFFERED else known_elsewhere(one.name, OFFERED)
        is_passed = one.name in OFFERED and not candidate.settings
        must_fit = ours in ("vocab_size", "context_length") and not candidate.settings
        if is_passed or (candidate.settings and ours in ("vocab_size", "context_length")):
            continue
        if ours in values and (one.required or must_fit or (shallow and ours == "num_layers")):
            found[one.name] = values[ours]
        elif one.required and one.name in USUAL:
            found[one.name] = USUAL[one.name]
        elif one.required:
            unknown.append(one.name)
    return ", ".join(unknown) if unknown else found


def _adapter(candidate: Candidate) -> str:
    """Return a Python file with a function from lmsweep's fields to the model."""
    assert candidate.settings is not None, "the model takes an object with settings"
    ours = {
        (one.name if one.name in OFFERED else known_elsewhere(one.name, OFFERED)): one.name
        for one in reversed(candidate.settings.parameters)
    }
    given = [f"{ours[name]}={name}" for name in ("vocab_size", "context_length") if name in ours]
    named = [name for name in ("vocab_size", "context_length") if name in ours]
    places = {reference.partition(":")[0] for reference in (candidate.reference, candidate.settings.reference)}
    imports = [
        f"from {where} import "
        + ", ".join(
            sorted(
                reference.partition(":")[2]
                for reference in (candidate.reference, candidate.settings.reference)
                if reference.partition(":")[0] == where
            )
        )
        for where in sorted(places)
    ]
    model, settings = (text.partition(":")[2] for text in (candidate.reference, candidate.settings.reference))
    return "\n".join(
        [
            f'"""Builds {model} for lmsweep: from the fields that `build` names, and model_args as changes."""',
            "",
            *imports,
            "",
            "",
            f"def build({', '.join([*named, '**changes'])}):",
            f"    return {model}({settings}({', '.join([*given, '**changes'])}))",
            "",
        ]
    )


def _attention_grids(found: Discovery, device: str, left: list[str]) -> list[str]:
    lines: list[str] = []
    for causal in (True, False):
        of_kind = [one for one in found.of("attention") if bool({p.name for p in one.parameters} & MASKED) == causal]
        own = [one.reference for one in _measured(of_kind, "attention", left)]
        if not own:
            continue
        beside = "naive, sdpa_flash" if device == "cuda" else "naive, sdpa"
        lines += [
            "",
            "  # Attention alone, beside PyTorch's; yours is compared with float64 before it is timed.",
            "  - workloads: [attention]",
            "    axes:",
            f"      attention: [{beside}, {', '.join(map(_quoted, own))}]",
            f"      context_length: [{'1024, 4096' if device == 'cuda' else '128, 512'}]",
            "    fixed:",
            "      d_model: 64  # width of a head",
            f"      causal: {str(causal).lower()}" + ("" if causal else "  # it takes no is_causal"),
            f"      device: {device}",
            *(["      precision: bf16"] if device == "cuda" else []),
            "      batch_size: 8",
            "      measure_steps: 20",
        ]
    return lines


def _optimizer_grid(found: Discovery, model: str, device: str, left: list[str]) -> list[str]:
    plain = [one for one in found.of("optimizer") if not _is_sharded(one)]
    own = [one.reference for one in _measured(plain, "optimizer", left)]
    if not own:
        return []
    return [
        "",
        "  # The optimizer, beside PyTorch's AdamW. optimizer_args.NAME is an argument of yours.",
        "  - workloads: [timing]",
        "    axes:",
        f"      optimizer: [adamw_fused, {', '.join(map(_quoted, own))}]",
        "    fixed:",
        f"      {model}",
        f"      vocab_size: {VOCABULARY}",
        f"      context_length: {256 if device == 'cuda' else 64}",
        f"      device: {device}",
        "      batch_size: 4",
        "      measure_steps: 20",
    ]


def _ddp_grid(found: Discovery, model: str, device: str, gpus: int, left: list[str]) -> list[str]:
    own = _measured(found.of("ddp"), "ddp", left)
    every = [one for one in found.of("optimizer") if _is_sharded(one)]
    sharded = [one.reference for one in every[:MOST]]
    left += [f"{one.reference} ({one.place}): add it below include" for one in every[MOST:]]
    if not own and not sharded:
        return []
    lines = [
        "",
        "  # Data-parallel training: two ranks, each with a GPU or a share of the cores.",
        "  - workloads: [ddp]",
        "    axes:",
        "      ddp:",
        "        - naive",
        *(f"        - {_wrapper(one)}" for one in own),
        *(["    include:  # optimizers whose state is sharded over the ranks"] if sharded else []),
        *(f"      - {{ddp: torch, optimizer: {_quoted(reference)}}}" for reference in sharded),
        "    fixed:",
        f"      model: {'small' if device == 'cuda' else 'tiny'}",
        *([f"      # If a wrapper knows only the layers of your own: {model}"] if "call:" in model else []),
        "      context_length: 128",
        f"      device: {device}",
        "      world_size: 2",
        "      batch_size: 2",
    ]
    if device == "cuda" and gpus < 2:
        return [lines[0], "  # This machine has one GPU; with two:", *(f"  # {line[2:]}" for line in lines[1:])]
    return lines


def _is_sharded(one: Candidate) -> bool:
    """Whether an optimizer is constructed with the class of another, whose state it shards."""
    return any(p.name in ("optimizer_cls", "optimizer_class") for p in one.parameters)


def _wrapper(one: Candidate) -> str:
    required = {p.name: USUAL[p.name] for p in one.parameters if p.required}
    if not required:
        return _quoted(one.reference)
    args = ", ".join(f"{name}: {_value(value)}" for name, value in required.items())
    return f"{{call: {_quoted(one.reference)}, args: {{{args}}}}}"


def _needs(parameters: tuple[Parameter, ...]) -> bool:
    """Whether a parameter has no default and no usual value."""
    return any(one.required and one.name not in USUAL for one in parameters)


def _value(value: object) -> str:
    return (
        str(value).lower() if isinstance(value, bool) else f"{value:.5f}".rstrip("0") if value == 1e-5 else str(value)
    )


def _quoted(reference: str) -> str:
    return f'"{reference}"'


def _plain(text: str) -> str:
    """Return the text as YAML reads it back, in quotes if it needs them."""
    return (
        text
        if re.fullmatch(r"[A-Za-z.][\w./-]*", text)
        and text.lower() not in ("null", "true", "false", "yes", "no", "on", "off")
        else f'"{text}"'
    )
