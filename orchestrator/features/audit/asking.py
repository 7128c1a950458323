"""The trials that stand for a claim, and the process that predicts their operators."""

from collections.abc import Sequence
from dataclasses import replace

from lmsweep.orchestrator.cluster.planned_nodes import USUAL_GPUS, Layout, layout_of
from lmsweep.orchestrator.features.audit.claims.counting import attention_of, precision_of, recomputes
from lmsweep.orchestrator.features.audit.claims.models import others_as_large
from lmsweep.orchestrator.features.audit.claims.stated_claim import Claim
from lmsweep.orchestrator.features.audit.fitting import memory_question
from lmsweep.orchestrator.planning.prediction_process import Answers
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.analytic.datasheets import NETWORKS
from lmsweep.trials.analytic.prediction_question import Answer, Question
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.errors import RequestError
from lmsweep.trials.spec.rules.combination_rules import why_not
from lmsweep.trials.spec.ways.checkpointings import TRIED_CHECKPOINTINGS

BATCHES = (1, 4, 16)
"""Sequences of a micro-batch that are tried if the claim states none."""
WITH_WHOLE_WEIGHTS = {"ddp": "torch", "zero1": "zero1", "zero2": "zero1", "replicate": "torch"}
"""Claim's word for how GPUs share a model -> value of the field `ddp`. Any other word shards the weights: fsdp."""
_ON = ("yes", "true", "on", "1", "block", "model", "regional")
"""What claims write where torch.compile was used."""


def configs_of(claim: Claim) -> list[TrialConfig]:
    """Return the trials that may stand for a claim: one, or several where it does not state what matters. Raises
    RequestError if none can."""
    batches = (claim.batch,) if claim.batch else _batches_of(claim)
    ways = (claim.checkpointing,) if claim.checkpointing else TRIED_CHECKPOINTINGS
    return [_config(replace(claim, checkpointing=way), batch) for batch in batches for way in ways]


def _batches_of(claim: Claim) -> tuple[int, ...]:
    """Return the micro-batches to try for a claim that states none: as many as its whole batch allows."""
    if claim.global_batch:
        most = claim.global_batch / claim.data_ranks / (claim.accumulate or 1)
        if claim.accumulate or most < 2:
            return (max(1, round(most)),)
        return 1, min(BATCHES[-1], round(most))  # the slowest and the fastest: a prediction is the middle of its ends
    if claim.tokens_per_step and claim.context:
        most = claim.tokens_per_step / claim.context / claim.data_ranks / (claim.accumulate or 1)
        return tuple(sorted({max(1, round(min(one, most))) for one in BATCHES}))  # 1, 4, 6 if the step has only 6
    return BATCHES


def _config(claim: Claim, batch: int) -> TrialConfig:
    """Return the step of a claim with this micro-batch. Raises RequestError if nothing runs it."""
    precision = _precision(claim)
    asked = (
        claim.shape.settings
        | _sharing(claim, precision)
        | {
            "context_length": claim.context,
            "batch_size": batch * claim.micro_batches,
            "accumulate": claim.micro_batches,
            "precision": precision,
            "attention": _attention(claim, precision),
            "compile": "block" if (claim.compile or "").lower() in _ON else "none",
            "loss": "cross_entropy",
            "checkpointing": "block" if recomputes(claim) else "none",
            "device": "cuda",
        }
    )
    if claim.method in ("lora", "dora", "qlora"):
        asked["adapter"] = claim.method
    if claim.offload and claim.offload.lower() not in ("none", "no", "false"):
        asked["offload"] = "optimizer" if "opt" in claim.offload.lower() else "activations"
    settings = {name: str(value).lower() if isinstance(value, bool) else value for name, value in asked.items()}
    config = single_trial([f"{name}={value}" for name, value in settings.items()]).config
    if why := why_not(config, str(asked["workloads"])):
        raise RequestError(why)
    return config


def _precision(claim: Claim) -> str:
    precision = "bf16" if is_above_prediction(claim) else precision_of(claim)
    trains_weights = claim.method in (None, "full", "frozen")  # not an adapter
    return f"{precision}_pure" if trains_weights and precision in ("bf16", "fp16") else precision


def _attention(claim: Claim, precision: str) -> str:
    attention = attention_of(claim)
    takes_only_16_bits = attention != "naive"
    return "sdpa_efficient" if takes_only_16_bits and precision in ("fp32", "tf32") else attention


def _sharing(claim: Claim, precision: str) -> dict[str, object]:
    """Return the settings for how the GPUs share the model."""
    if claim.count == 1:
        return {"workloads": "timing"}
    way = WITH_WHOLE_WEIGHTS.get((claim.parallel or "").lower(), "fsdp")
    shared: dict[str, object] = {"workloads": "ddp", "world_size": claim.count, "ddp": way}
    # Weights that are in 16 bits, or in the 4 of qlora, are gathered as they are.
    casts = precision != "fp32" and not precision.endswith("_pure") and claim.method != "qlora"
    return shared | {"gather": "bf16"} if way == "fsdp" and casts else shared


def is_above_prediction(claim: Claim) -> bool:
    """Whether the claim should be faster than its prediction: experts in float8 are predicted as if in 16 bits."""
    size = claim.shape.size
    return bool(size and size.num_experts and precision_of(claim).startswith("fp8"))


def asked_of(claims: Sequence[Claim]) -> dict[Question, Answer]:
    """Return what is known of the memory and operators of all claims' trials: one process predicts them."""
    wanted: dict[Question, None] = {}
    for claim in claims:
        if not why_unpredicted(claim):
            configs = configs_of(claim)
            asked = [memory_question(claim, one) for one in configs]
            wanted |= dict.fromkeys([*filter(None, asked), *map(operators_question, configs)])
    return dict(zip(wanted, Answers([*wanted], None).wait(), strict=True)) if wanted else {}


def operators_question(config: TrialConfig) -> Question:
    return Question(config=config, wants=("operators",), is_trial=False)


def why_unpredicted(claim: Claim) -> str | None:
    """Return why the step of a claim is not predicted; None if it is."""
    if claim.model is None:
        return "the model is not stated"
    if claim.shape.size is None:
        others = others_as_large(claim.shape)
        return f"of {claim.shape.name} only the number of parameters is known; name the model{others}"
    if claim.context is None:
        return "the context is not stated"
    if claim.count > USUAL_GPUS and claim.nodes != 1 and claim.device.name not in NETWORKS:
        return f"how nodes of {claim.device.name} are connected is unknown; at most {USUAL_GPUS} GPUs are predicted"
    try:
        configs_of(claim)
        layout_of_claim(claim)
    except RequestError as error:
        return str(error)
    return None


def layout_of_claim(claim: Claim) -> Layout:
    """Return how the claim's GPUs are divided among nodes. Raises RequestError if they cannot be."""
    return layout_of(claim.count, claim.device, nodes=str(claim.nodes) if claim.nodes else None, network=None)
