"""Writes a first sweep file for what a folder of the user's code defines."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import inf

import yaml

from lmsweep.trials.code.calling import OFFERED
from lmsweep.trials.code.discovery.definitions import Candidate, Parameter
from lmsweep.trials.code.discovery.discover import Discovery
from lmsweep.trials.spec.model_sizes import DIMENSIONS, SIZES
from lmsweep.trials.spec.reference import ATTENTION_MASKS, CAUSAL
from lmsweep.trials.spec.suggestions import known_elsewhere
from lmsweep.trials.spec.words import GPU_DEVICES

PASSED = (*OFFERED, "device", "dtype")
"""The parameters of a model that lmsweep gives."""

USUAL: dict[str, object] = {
    **dict.fromkeys(("rope_theta", "theta", "rope_base"), 10000.0),
    **dict.fromkeys(("dropout", "p_dropout", "attn_pdrop", "residual_pdrop", "resid_pdrop", "embd_pdrop"), 0.0),
    **dict.fromkeys(("eps", "norm_eps", "layer_norm_eps", "rms_norm_eps"), 1e-5),
    "bias": False,
    "bucket_size_mb": 25.0,
    "lr": 0.0001,
}
"""Values for parameters without a default whose name says enough."""

VOCABULARY = 10_000
MOST = 3
"""Most candidates of one kind that the file measures; the others are named in a comment."""
OBJECTS = ("config", "cfg", "args", "params", "hparams", "model_args", "net", "model", "module", "backbone", "encoder")
"""Parameters that take an object, which no sweep file can hold."""
PLAIN = ("", "int", "float", "str", "bool", "list", "tuple", "dict", "None")
"""Types of parameters that a sweep file can hold."""
ADAPTER = "lmsweep_model.py"
"""The file with a function that builds a model whose class takes an object with settings."""


@dataclass(frozen=True, kw_only=True)
class FirstSweep:
    """The text of the sweep file, and of the adapter if it needs one."""

    text: str
    adapter: str | None = None
    not_measured: tuple[str, ...] = ()
    """What was found and is not in the sweep, with its place and what to write."""


def first_sweep(name: str, found: Discovery, *, device: str, gpus: int, code: str | None) -> FirstSweep:
    """Return the file for a folder called `name`. `device` is what to measure on, `code` the folder relative to the
    file, None if it is elsewhere."""
    is_large = device in GPU_DEVICES
    contexts, size = ((256, 1024), "small") if is_large else ((64, 128), "tiny")
    model, adapter, measured = f"model: {size}", None, None
    left = [f"{one.reference} ({one.place}): {one.advice}" for one in found.left_out]
    for one in found.of("model"):
        args, unknown = _arguments(one, size, max(contexts), shallow=not is_large)
        if unknown:
            left.append(f"{one.reference} ({one.place}): {_model_advice(one, unknown)}")
        elif measured or not one.is_likely:
            instead = f"in place of {measured.reference}" if measured else "as model, if it is more than a part of one"
            left.append(f"{one.reference} ({one.place}): write it {instead}")
        else:
            adapter = _adapter(one) if one.settings else None
            model, measured = _model(one, args, size), one
    notes = ["# No model of your own was found here: this is lmsweep's. Yours is named as package.module:Class."]
    if measured:
        notes = [
            f"# {measured.place}. It is called with the fields that its signature has, and with args.",
            "# args can be axes: model_args.NAME: [1, 2]. hf:NAME names a Hugging Face configuration.",
        ]
    elif found.of("model") or any(one.kind == "model" for one in found.left_out):
        notes = ["# This is lmsweep's model: what yours needs is at the end of this file."]
    lines = [
        f"name: {_yaml(name)}",
        "description: A first look at the time and memory of a training step.",
        *([f"code: {_yaml(code)}  # the folder with your code, relative to this file"] if code else []),
        "",
        "grids:",
        "  # The time of a training step: every combination of the axes is a trial.",
        "  - workloads: [timing]  # next: [timing, memory, profile]",
        "    axes:",
        f"      context_length: [{', '.join(map(str, contexts))}]  # tokens per sequence",
        f"      precision: [{'tf32' if device == 'cuda' else 'fp32'}, bf16]  # bf16 is autocast",
        "      # compile: [none, block]  # torch.compile of the repeated layers",
        "    fixed:",
        *(f"      {note}" for note in notes),
        f"      {model}",
        f"      vocab_size: {VOCABULARY}",
        f"      device: {device}",
        "      batch_size: 4",
        "      mode: train_step  # forward, backward and optimizer",
        "      measure_steps: 20",
        *_attention_grids(found, device, left),
        *_optimizer_grid(found, model, device, left),
        *_ddp_grid(found, model, device, gpus, left),
    ]
    if left:
        lines += ["", "# Found, and not measured:", *(f"# - {words}" for words in left)]
    return FirstSweep(text="\n".join(lines) + "\n", adapter=adapter, not_measured=tuple(left))


def _model_advice(candidate: Candidate, unknown: list[str]) -> str:
    types = {re.split(r"[\[|. ]", one.annotation)[0] for one in candidate.parameters if one.name in unknown}
    needed, name = ", ".join(unknown), candidate.reference.rpartition(":")[2]
    if candidate.settings or {*unknown} & {*OBJECTS} or not types <= {*PLAIN}:
        return (
            f"it needs {needed}, which no sweep file can hold: write "
            f'def build(vocab_size, context_length): return {name}(...), and name it: model: "./FILE.py:build"'
        )
    return f"it also needs {needed}: model: {_call(candidate.reference, dict.fromkeys(unknown, 'VALUE'))}"


def _measured(found: list[Candidate], field: str, left: list[str]) -> list[Candidate]:
    """Return the candidates that the sweep measures; the others go to `left`, with what to write."""
    able = [one for one in found if not _unknown(one.parameters)]
    for one in found:
        where = f"{one.reference} ({one.place})"
        if unknown := _unknown(one.parameters):
            call = _call(one.reference, dict.fromkeys(unknown, "VALUE"))
            left.append(f"{where}: it also needs {', '.join(unknown)}: add to {field}: {call}")
        elif one in able[MOST:]:
            left.append(f'{where}: the sweep has {MOST} of its kind: add to {field}: "{one.reference}"')
    return able[:MOST]


def _unknown(parameters: Iterable[Parameter]) -> list[str]:
    return [one.name for one in parameters if one.required and one.name not in USUAL]


def _model(candidate: Candidate, args: dict[str, object], size: str) -> str:
    reference = f"{ADAPTER.removesuffix('.py')}:build" if candidate.settings else candidate.reference
    parts = [f"name: {_yaml(candidate.reference.rpartition(':')[2])}", f'call: "{reference}"']
    if not candidate.settings and any(one.name in DIMENSIONS for one in candidate.parameters):
        parts.append(f"size: {size}")
    if args:
        parts.append(f"args: {_yaml(args)}")
    return f"model: {{{', '.join(parts)}}}"


def _arguments(candidate: Candidate, size: str, context: int, *, shallow: bool) -> tuple[dict[str, object], list[str]]:
    """Return what a model must be given beside the fields that it is offered, and the names that nobody can guess."""
    values: dict[str, object] = {**asdict(SIZES[size]), "vocab_size": VOCABULARY, "context_length": context}
    found: dict[str, object] = {}
    unknown = []
    for one in candidate.settings.parameters if candidate.settings else candidate.parameters:
        ours = _ours(one)
        of_adapter = ours in ("vocab_size", "context_length")
        if of_adapter if candidate.settings else one.name in PASSED:
            continue
        if ours in values and (one.required or of_adapter or (shallow and ours == "num_layers")):
            found[one.name] = values[ours]
        elif one.required and one.name in USUAL:
            found[one.name] = USUAL[one.name]
        elif one.required:
            unknown.append(one.name)
    return found, unknown


def _ours(parameter: Parameter) -> str | None:
    return parameter.name if parameter.name in PASSED else known_elsewhere(parameter.name, PASSED)


def _adapter(candidate: Candidate) -> str:
    assert candidate.settings is not None, "the model takes an object with settings"
    theirs = {_ours(one): one.name for one in reversed(candidate.settings.parameters)}
    taken = [name for name in ("vocab_size", "context_length") if name in theirs]
    given = [f"{theirs[name]}={name}" for name in taken]
    imports: dict[str, list[str]] = {}
    for reference in (candidate.reference, candidate.settings.reference):
        imports.setdefault(reference.partition(":")[0], []).append(reference.partition(":")[2])
    lines = [f"from {module} import {', '.join(sorted({*names}))}" for module, names in sorted(imports.items())]
    model, settings = (text.partition(":")[2] for text in (candidate.reference, candidate.settings.reference))
    return "\n".join(
        [
            f'"""Builds {model} for lmsweep: from the fields that `build` names, and model_args as changes."""',
            "",
            *lines,
            "",
            "",
            f"def build({', '.join([*taken, '**changes'])}):",
            f"    return {model}({settings}({', '.join([*given, '**changes'])}))",
            "",
        ]
    )


def _grid(comment: str, workload: str, axes: list[str], fixed: list[str]) -> list[str]:
    head = ["", f"  # {comment}", f"  - workloads: [{workload}]", "    axes:"]
    return [*head, *(f"      {line}" for line in axes), "    fixed:", *(f"      {line}" for line in fixed)]


def _attention_grids(found: Discovery, device: str, left: list[str]) -> list[str]:
    lines: list[str] = []
    is_cuda = device == "cuda"
    for causal in (True, False):
        masked = {*CAUSAL, *ATTENTION_MASKS}
        of_kind = [one for one in found.of("attention") if bool({p.name for p in one.parameters} & masked) == causal]
        users = [_quoted(one.reference) for one in _measured(of_kind, "attention", left)]
        if users:
            lines += _grid(
                "Attention alone, beside PyTorch's; yours is compared with float64 before it is timed.",
                "attention",
                [
                    f"attention: [naive, {'sdpa_flash' if is_cuda else 'sdpa'}, {', '.join(users)}]",
                    f"context_length: [{'1024, 4096' if is_cuda else '128, 512'}]",
                ],
                [
                    "d_model: 64  # width of a head",
                    f"causal: {_yaml(causal)}" + ("" if causal else "  # it takes no is_causal"),
                    f"device: {device}",
                    *(["precision: bf16"] if is_cuda else []),
                    "batch_size: 8",
                    "measure_steps: 20",
                ],
            )
    return lines


def _optimizer_grid(found: Discovery, model: str, device: str, left: list[str]) -> list[str]:
    plain = [one for one in found.of("optimizer") if not _is_sharded(one)]
    users = [_quoted(one.reference) for one in _measured(plain, "optimizer", left)]
    context = f"context_length: {256 if device == 'cuda' else 64}"
    fixed = [model, f"vocab_size: {VOCABULARY}", context, f"device: {device}", "batch_size: 4", "measure_steps: 20"]
    comment = "The optimizer, beside PyTorch's AdamW. optimizer_args.NAME is an argument of yours."
    return _grid(comment, "timing", [f"optimizer: [adamw_fused, {', '.join(users)}]"], fixed) if users else []


def _ddp_grid(found: Discovery, model: str, device: str, gpus: int, left: list[str]) -> list[str]:
    users = _measured(found.of("ddp"), "ddp", left)
    sharded = [one for one in found.of("optimizer") if _is_sharded(one)]
    left += [f"{one.reference} ({one.place}): add it below include" for one in sharded[MOST:]]
    if not users and not sharded:
        return []
    lines = _grid(
        "Data-parallel training: two ranks, each with a GPU or a share of the cores.",
        "ddp",
        ["ddp:", "  - naive", *(f"  - {_wrapper(one)}" for one in users)],
        [
            f"model: {'small' if device == 'cuda' else 'tiny'}",
            *([f"# If a wrapper knows only the layers of your own: {model}"] if "call:" in model else []),
            "context_length: 128",
            f"device: {device}",
            "world_size: 2",
            "batch_size: 2",
        ],
    )
    if sharded:
        lines.append("    include:  # optimizers whose state is sharded over the ranks")
        lines += [f"      - {{ddp: torch, optimizer: {_quoted(one.reference)}}}" for one in sharded[:MOST]]
    if device == "cuda" and gpus < 2:
        return [lines[0], "  # This machine has one GPU; with two:", *(f"  # {line[2:]}" for line in lines[1:])]
    return lines


def _is_sharded(one: Candidate) -> bool:
    """Its state; it is constructed with the class of another."""
    return any(p.name in ("optimizer_cls", "optimizer_class") for p in one.parameters)


def _wrapper(one: Candidate) -> str:
    required = {p.name: USUAL[p.name] for p in one.parameters if p.required}
    return _call(one.reference, required) if required else _quoted(one.reference)


def _call(reference: str, args: dict[str, object]) -> str:
    return f"{{call: {_quoted(reference)}, args: {_yaml(args)}}}"


def _quoted(reference: str) -> str:
    return f'"{reference}"'


def _yaml(value: object) -> str:
    """On one line."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=inf).partition("\n")[0]
