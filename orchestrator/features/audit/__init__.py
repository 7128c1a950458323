"""`audit`: can this number be true? A throughput or MFU, beside what is physical and what is predicted. Needs no GPU.

sources.py            claims from options, a table or a log; `lmsweep.audit`
claims                what is claimed, the models that claims name, FLOPs by convention
logs                  the lines of each trainer's log
asking.py             the trials that may stand for a claim
fitting.py            which of them fit: without checkpointing, or with it
operator_changes.py   a step's operators with one thing otherwise
prediction.py         how fast the step runs, as predicted
case.py               a claim beside its prediction
causes                what makes a claim wrong or a run slow, and which causes explain it best
verdict.py            possible, impossible, contradicts itself, slow, cannot tell
audit_text.py         in words, as a table and as a page
"""

from inspect import Parameter, Signature
from typing import Annotated

import typer
from typer import Argument, Option

from lmsweep.orchestrator.commands.options import JsonFormat
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import Text
from lmsweep.orchestrator.terminal import say_data


class _Name(str):
    """The name of an option that contains a /. typer asks `"/" in name` and would take it for an on/off option."""

    __slots__ = ()

    def __contains__(self, part: object) -> bool:
        return part != "/" and super().__contains__(str(part))


STATED = {
    "model": "A size, a name on the hub, a config.json; a number of parameters, 8B, gives the bound alone.",
    "gpus": "8xH100, A100-SXM4-80GB.",
    "tokens/s": "Tokens a second of all GPUs.",
    "tokens/s/gpu": "Tokens a second of one GPU.",
    "step-time": "Of a step: 1.2s, 350ms.",
    "mfu": "43%.",
    "tflops": "TFLOP/s of a GPU, as the claim counts them.",
    "batch": "Sequences of a GPU in a micro-batch.",
    "context": "Tokens of a sequence: 8192, or 8k, which is the same.",
    "precision": "bf16, fp16, fp8, tf32, fp32.",
    "samples/s": "Sequences a second of all GPUs.",
    "hfu": "43%: with what is computed again.",
    "tokens-per-step": "Of all GPUs.",
    "accumulate": "Micro-batches of a step.",
    "global-batch": "Sequences of a step on all GPUs.",
    "length": "Mean tokens of a sequence that are no padding.",
    "attention": "flash, fa3, cudnn, eager.",
    "compile": "yes or no: torch.compile.",
    "checkpointing": "none, selective or block.",
    "method": "full, lora, dora, qlora, frozen.",
    "offload": "optimizer, activations.",
    "parallel": "fsdp, ddp, zero1, zero2.",
    "nodes": "Number of nodes. Default: 8 GPUs each.",
    "tp": "Ranks of tensor parallelism.",
    "pp": "Of pipeline parallelism.",
    "cp": "Of context parallelism.",
    "ep": "Of expert parallelism.",
    "convention": "How the MFU counts attention: 6n, full, causal, hardware.",
    "peak": "TFLOP/s by which the MFU divides.",
}
"""Option -> its help; a CSV has columns of these names."""


def audit(**given: str | None) -> None:
    """Say whether a throughput or MFU can be true, and what explains it.

    Needs no GPU.

    \b
    Examples:
      lmsweep audit --model llama-3.1-8b --gpus 8xH100 --context 8k --tokens/s 58k
      lmsweep audit train.log --gpus 8xH100
      lmsweep audit claims.csv

    As a page: with --format json > audit.json, then `lmsweep report audit.json`. Exits with 1 if a claim is impossible
    or contradicts itself.
    """
    from lmsweep.orchestrator.features.audit import sources
    from lmsweep.orchestrator.features.audit.audit_text import said
    from lmsweep.orchestrator.features.audit.verdict import REJECTED, AuditOutput

    audited = sources.audit(given["file"], **{name: given[_parameter(name)] for name in STATED})
    if given["format"] == "json":
        from lmsweep.trials.results.record_json import json_of

        say_data(json_of(AuditOutput(claims=audited)))
    else:
        from lmsweep.orchestrator.commands.show_table import show_parts

        show_parts(said(audited))
    if any(one.verdict in REJECTED for one in audited):
        raise typer.Exit(1)


def _parameter(option: str) -> str:
    """Return the name of the parameter for an option of STATED."""
    return option.replace("-", "_").replace("/", "_per_")


# typer reads the options of `audit` from its signature and annotations: one for each of STATED.
audit.__annotations__ = {
    "file": Annotated[Text, Argument(help="A log of a trainer, or a CSV with a claim on each line.")],
    **{_parameter(name): Annotated[Text, Option(_Name(f"--{name}"), help=text)] for name, text in STATED.items()},
    "format": JsonFormat,
}
vars(audit)["__signature__"] = Signature(
    [
        Parameter(name, Parameter.KEYWORD_ONLY, default="text" if name == "format" else None, annotation=kind)
        for name, kind in audit.__annotations__.items()
    ]
)

feature = Feature(
    name="audit",
    place=8.5,
    verbs=(audit,),
    outputs={"audit": f"{__name__}.verdict:AuditOutput"},
    pages={"audit": f"{__name__}.audit_text:audit_page"},
    functions={
        "audit": f"{__name__}.sources:audit",
        "model_settings": f"{__name__}.claims.models:model_settings",
        "named_model": f"{__name__}.claims.models:named_model",
    },
)
