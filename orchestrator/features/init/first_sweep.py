"""Writes a first sweep file for what a folder of the user's code defines."""

from dataclasses import dataclass

from lmsweep.orchestrator.features.init.definitions import Candidate
from lmsweep.orchestrator.features.init.discover import Discovery
from lmsweep.orchestrator.features.init.first_model import (
    USUAL_VALUES,
    FirstModel,
    as_call,
    as_yaml,
    first_model,
    unknown_of,
)
from lmsweep.orchestrator.sweep.users_code import TO_WRITE
from lmsweep.trials.spec.reference import ATTENTION_MASKS, CAUSAL
from lmsweep.trials.spec.words import GPU_DEVICES

MOST_CANDIDATES = 3
"""Most candidates of one kind that the file measures; the others are named in a comment."""


@dataclass(frozen=True, kw_only=True)
class FirstSweep:
    """The text of the sweep file, and its model, which may need an adapter."""

    text: str
    """Empty if there is nothing that a sweep could name."""
    model: FirstModel
    not_measured: tuple[str, ...]
    """What was found and is not in the sweep, with its place and what to write."""


def first_sweep(name: str, discovery: Discovery, *, device: str, gpus: int, code: str | None) -> FirstSweep:
    """Return the file for a folder called `name`. `device` is what to measure on, `code` the folder relative to the
    file, None if it is elsewhere."""
    is_large = device in GPU_DEVICES
    # Small enough that a trial takes seconds.
    contexts, size = ((256, 1024), "small") if is_large else ((64, 128), "tiny")
    model = first_model(discovery, size=size, context=max(contexts), shallow=not is_large)
    not_measured = [
        *model.not_chosen,
        *(f"{one.reference} ({one.place}): {one.advice}" for one in discovery.left_out if one.kind != "model"),
    ]
    # Each function returns the lines of its grids, and adds what it leaves out to `not_measured`.
    on_one = [
        *(_timing_grid(model, contexts, device) if model.is_users or not discovery.files else []),
        *_attention_grids(discovery, device, not_measured),
        *_optimizer_grid(discovery, model, device, not_measured),
    ]
    on_two = _ddp_grid(discovery, model, device, not_measured)
    has_two = device != "cuda" or gpus >= 2
    runs_here = [*on_one, *(on_two if has_two else [])]
    if not runs_here:
        of_two = [*discovery.of("ddp"), *filter(_is_sharded, discovery.of("optimizer"))] if on_two else []
        advice = "it takes two GPUs: run lmsweep init where there are two"
        not_measured += [f"{one.reference} ({one.place}): {advice}" for one in of_two]
        return FirstSweep(text="", model=model, not_measured=tuple(not_measured))
    if on_two and not has_two:
        # A grid begins with an empty line. `  - workloads:` becomes `  # - workloads:`.
        on_two = ["", "  # This machine has one GPU; with two:", *(f"  # {line[2:]}" for line in on_two[1:])]
    grids = [*on_one, *on_two]
    lines = [f"name: {as_yaml(name)}", "description: A first look at the time and memory of a training step."]
    if code and discovery.files:
        lines.append(f"code: {as_yaml(code)}  # the folder with your code, relative to this file")
    lines += ["", "grids:", *(grids if grids[0] else grids[1:])]  # all but the first begin with an empty line
    if not_measured:
        lines += ["", "# Found, and not measured:", *(f"# - {words}" for words in not_measured)]
    return FirstSweep(text="\n".join(lines) + "\n", model=model, not_measured=tuple(not_measured))


def _timing_grid(model: FirstModel, contexts: tuple[int, int], device: str) -> list[str]:
    return [
        "  # The time of a training step: every combination of the axes is a trial.",
        "  - workloads: [timing]  # next: [timing, memory, profile]",
        "    axes:",
        f"      context_length: [{', '.join(map(str, contexts))}]  # tokens per sequence",
        f"      precision: [{'tf32' if device == 'cuda' else 'fp32'}, bf16]  # bf16 is autocast",
        "      # compile: [none, block]  # torch.compile of the repeated layers",
        "    fixed:",
        *(f"      {note}" for note in model.notes),
        f"      {model.line}",
        f"      vocab_size: {model.vocabulary}",
        f"      device: {device}",
        "      batch_size: 4",
        "      mode: train_step  # forward, backward and optimizer",
        "      measure_steps: 20",
    ]


def _measured(candidates: list[Candidate], field: str, not_measured: list[str]) -> list[Candidate]:
    """Return the candidates that the sweep measures; add the others to `not_measured`, with what to write."""
    given = (*CAUSAL, *ATTENTION_MASKS) if field == "attention" else ()
    able = [one for one in candidates if not unknown_of(one.parameters, given)]
    for candidate in candidates:
        where = f"{candidate.reference} ({candidate.place})"
        if unknown := unknown_of(candidate.parameters, given):
            call = as_call(candidate.reference, dict.fromkeys(unknown, TO_WRITE))
            not_measured.append(f"{where}: it also needs {', '.join(unknown)}: add to {field}: {call}")
        elif candidate in able[MOST_CANDIDATES:]:
            advice = f'add to {field}: "{candidate.reference}"'
            not_measured.append(f"{where}: the sweep has {MOST_CANDIDATES} of its kind: {advice}")
    return able[:MOST_CANDIDATES]


def _grid(comment: str, workload: str, axes: list[str], fixed: list[str]) -> list[str]:
    head = ["", f"  # {comment}", f"  - workloads: [{workload}]", "    axes:"]
    return [*head, *(f"      {line}" for line in axes), "    fixed:", *(f"      {line}" for line in fixed)]


def _attention_grids(discovery: Discovery, device: str, not_measured: list[str]) -> list[str]:
    """Return a grid with a causal mask, of functions that take one, and one without for the others."""
    lines: list[str] = []
    is_cuda, functions, masked = device == "cuda", discovery.of("attention"), {*CAUSAL, *ATTENTION_MASKS}
    for causal in (True, False):
        of_kind = [one for one in functions if bool({taken.name for taken in one.parameters} & masked) == causal]
        users = [_quoted(one.reference) for one in _measured(of_kind, "attention", not_measured)]
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
                    f"causal: {as_yaml(causal)}" + ("" if causal else "  # it takes no is_causal"),
                    f"device: {device}",
                    *(["precision: bf16"] if is_cuda else []),
                    "batch_size: 8",
                    "measure_steps: 20",
                ],
            )
    return lines


def _optimizer_grid(discovery: Discovery, model: FirstModel, device: str, not_measured: list[str]) -> list[str]:
    plain = [one for one in discovery.of("optimizer") if not _is_sharded(one)]
    users = [_quoted(one.reference) for one in _measured(plain, "optimizer", not_measured)]
    context = f"context_length: {256 if device == 'cuda' else 64}"
    vocabulary, rest = f"vocab_size: {model.vocabulary}", ("batch_size: 4", "measure_steps: 20")
    fixed = [model.line, vocabulary, context, f"device: {device}", *rest]
    comment = "The optimizer, beside PyTorch's AdamW. optimizer_args.NAME is an argument of yours."
    return _grid(comment, "timing", [f"optimizer: [adamw_fused, {', '.join(users)}]"], fixed) if users else []


def _ddp_grid(discovery: Discovery, model: FirstModel, device: str, not_measured: list[str]) -> list[str]:
    users = _measured(discovery.of("ddp"), "ddp", not_measured)
    sharded = [one for one in discovery.of("optimizer") if _is_sharded(one)]
    not_measured += [f"{one.reference} ({one.place}): add it below include" for one in sharded[MOST_CANDIDATES:]]
    if not users and not sharded:
        return []
    lines = _grid(
        "Data-parallel training: two ranks, each with a GPU or a share of the cores.",
        "ddp",
        ["ddp:", "  - naive", *(f"  - {_wrapper(one)}" for one in users)],
        [
            model.line,
            f"vocab_size: {model.vocabulary}",
            "context_length: 128",
            f"device: {device}",
            "world_size: 2",
            "batch_size: 2",
        ],
    )
    if sharded:
        lines.append("    include:  # optimizers whose state is sharded over the ranks")
        lines += [f"      - {{ddp: torch, optimizer: {_quoted(one.reference)}}}" for one in sharded[:MOST_CANDIDATES]]
    return lines


def _is_sharded(one: Candidate) -> bool:
    """Whether its state is sharded: its constructor takes the class of another optimizer."""
    return any(p.name in ("optimizer_cls", "optimizer_class") for p in one.parameters)


def _wrapper(one: Candidate) -> str:
    required = {p.name: USUAL_VALUES[p.name] for p in one.parameters if p.required}  # _measured leaves others out
    return as_call(one.reference, required) if required else _quoted(one.reference)


def _quoted(reference: str) -> str:
    return f'"{reference}"'
