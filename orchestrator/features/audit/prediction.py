"""How fast a claim's step runs, as predicted: as PyTorch's trainers run it, and as a tuned stack does."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from lmsweep.orchestrator.cluster.planned_nodes import layout_of
from lmsweep.orchestrator.features.audit.claims.claim import Claim
from lmsweep.orchestrator.features.audit.claims.counting import precision_of, recomputes
from lmsweep.orchestrator.planning.prediction_process import Answers
from lmsweep.orchestrator.predicting.device_rates import DeviceRates
from lmsweep.orchestrator.predicting.predicted_step import PredictedStep, in_precision, predicted_step, source_of
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.analytic.prediction_question import Answer, Question
from lmsweep.trials.analytic.rates.intervals import INTERVAL_DEVIATIONS, known_residuals, learned
from lmsweep.trials.analytic.rates.operators import Operators, class_of, from_values
from lmsweep.trials.analytic.rates.rate_set import Rates
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.errors import RequestError
from lmsweep.trials.spec.rules.combination_rules import why_not

BATCHES = (1, 4, 16)
"""Sequences of a micro-batch that stand for any, if the claim states none."""
USUAL_LENGTH = 512
"""Tokens of a micro-batch below which nobody trains: a claim without a context is of more."""
SHARDED = {"ddp": "torch", "zero1": "zero1", "zero2": "zero1", "replicate": "torch"}
"""Word for how GPUs share a model -> the field's; all others shard weights."""
ATTENTION_WORDS = {
    **dict.fromkeys(("eager", "math", "naive", "naive_softmax", "sdpa_math"), "naive"),
    **dict.fromkeys(("fa3", "flash_attention_3", "cudnn", "sdpa_cudnn", "te"), "sdpa_cudnn"),
}  # fmt: skip
"""Word for an attention -> the field's; all others are FlashAttention 2. cuDNN's kernel is as fast as version 3."""
FUSED_BYTES = 0.25
"""Bytes that fused element-wise operators of blocks move, over those of PyTorch's own: by the predictions of both."""
UNLIKE = 0.15
"""Standard deviation that a way to share a model adds which is not predicted: tensor, pipeline, context and expert
parallelism."""
FLOAT8_EXPERTS = 0.4
"""Logarithm of how much faster experts in float8 may be than those in 16 bits, for which they are predicted."""
_ON = ("yes", "true", "on", "1", "block", "model", "regional")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One way in which the claim may have run: what it does not state is chosen."""

    config: TrialConfig
    operators: Operators
    rates: Rates
    step: PredictedStep

    @property
    def tokens(self) -> float:
        """Return the tokens of a step on all GPUs."""
        return float(self.config.batch_size * self.config.context_length * self.config.world_size // self.config.tp)

    @property
    def seconds(self) -> float:
        return self.step.elsewhere.seconds


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """Tokens a second of all GPUs."""

    middle: float
    deviation: float
    """Standard deviation of the logarithm."""
    tuned: tuple[float, float]
    """95 % interval, as a tuned stack runs it."""
    runs: tuple[Run, ...]
    varied: tuple[str, ...]
    """What is not stated and was varied, in words."""
    source: str

    @property
    def low(self) -> float:
        return self.middle * math.exp(-INTERVAL_DEVIATIONS * self.deviation)

    @property
    def high(self) -> float:
        return self.middle * math.exp(INTERVAL_DEVIATIONS * self.deviation)

    @property
    def run(self) -> Run:
        """Return the run in the middle."""
        return sorted(self.runs, key=lambda one: one.tokens / one.seconds)[len(self.runs) // 2]


def configs_of(claim: Claim) -> list[TrialConfig]:
    """Return the trials that stand for a claim: one, or several where it does not state what matters. Raises
    RequestError if none can."""
    batches = (claim.batch,) if claim.batch else _batches_of(claim)
    compiled = "block" if (claim.compile or "").lower() in _ON else "none"
    return [_config(claim, batch, compiled) for batch in batches]


def _batches_of(claim: Claim) -> tuple[int, ...]:
    if claim.global_batch:
        least = claim.global_batch / claim.data_ranks / (claim.accumulate or 1)
        return (max(1, round(least)),) if claim.accumulate or least < 2 else (1, max(1, min(16, round(least))))
    if claim.tokens_per_step and claim.context:
        most = claim.tokens_per_step / claim.context / claim.data_ranks / (claim.accumulate or 1)
        return tuple(sorted({max(1, round(min(one, most))) for one in BATCHES}))
    return BATCHES


def _config(claim: Claim, batch: int, compiled: str) -> TrialConfig:
    precision, method = precision_of(claim), claim.method or "full"
    if is_above_prediction(claim):
        precision = "bf16"
    if precision in ("bf16", "fp16") and method in ("full", "frozen"):
        precision += "_pure"
    attention = ATTENTION_WORDS.get((claim.attention or "").lower(), "sdpa_flash")
    if precision in ("fp32", "tf32") and attention != "naive":
        attention = "sdpa_efficient"
    micro = claim.micro_batches
    asked = claim.shape.settings | {
        "context_length": claim.context,
        "batch_size": batch * micro,
        "accumulate": micro,
        "precision": precision,
        "attention": attention,
        "compile": "none" if precision in ("fp32", "tf32") and not claim.compile else compiled,
        "loss": "cross_entropy",
        "checkpointing": "block" if recomputes(claim) else "none",
        "device": "cuda",
    }
    if method in ("lora", "dora", "qlora"):
        asked |= {"adapter": method}
    if claim.offload and claim.offload.lower() not in ("none", "no", "false"):
        asked |= {"offload": "optimizer" if "opt" in claim.offload.lower() else "activations"}
    if ranks := (claim.count if claim.count > 1 else 0):
        ways = SHARDED.get((claim.parallel or "").lower(), "fsdp")
        asked |= {"world_size": ranks, "ddp": ways, "workloads": "ddp"}
        asked |= (
            {"gather": "bf16"} if ways == "fsdp" and not precision.endswith("_pure") and precision != "fp32" else {}
        )
    else:
        asked |= {"workloads": "timing"}
    config = single_trial(
        [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in asked.items()]
    ).config
    if why := why_not(config, str(asked["workloads"])):
        raise RequestError(why)
    return config


def is_above_prediction(claim: Claim) -> bool:
    """Whether the claim is faster than what is predicted in its place: experts in float8, by those in 16 bits."""
    size = claim.shape.size
    return bool(size and size.num_experts and precision_of(claim).startswith("fp8"))


def asked_of(claims: Sequence[Claim]) -> dict[TrialConfig, Answer]:
    """Return trial -> what is known of its operators, for all claims at once: one process predicts them."""
    wanted: dict[TrialConfig, None] = {}
    for claim in claims:
        if not why_unpredicted(claim):
            wanted |= dict.fromkeys(configs_of(claim))
    questions = [Question(config=one, wants=("operators",), is_trial=False) for one in wanted]
    return dict(zip(wanted, Answers(questions, None).wait(), strict=True)) if questions else {}


def why_unpredicted(claim: Claim) -> str | None:
    """Return why the step of a claim is not predicted; None if it is."""
    if claim.model is None:
        return "the model is not stated"
    if claim.shape.size is None:
        return f"of {claim.shape.name} only the number of parameters is known"
    if claim.context is None:
        return "the context is not stated"
    try:
        configs_of(claim)
        layout_of(claim.count, claim.device, nodes=str(claim.nodes) if claim.nodes else None, network=None)
    except RequestError as error:
        return str(error)
    return None


def predicted(claim: Claim, answers: dict[TrialConfig, Answer]) -> Predicted | str:
    """Return how fast the claim's step is, or why that is not known."""
    if why := why_unpredicted(claim):
        return why
    runs = []
    for config in configs_of(claim):
        answer = answers[config]
        if answer.untimed or answer.why_not:
            return answer.untimed or answer.why_not or ""
        operators = from_values(answer.operators)
        runs.append(run_of(config, operators, claim))
        if config.compile == "none":  # others fuse by hand, some or all
            runs.append(run_of(config, fused(operators), claim))
    rates = sorted(math.log(one.tokens / one.seconds) for one in runs)
    widest = max(math.log(one.step.elsewhere.high / one.step.elsewhere.low) / 2 / INTERVAL_DEVIATIONS for one in runs)
    parts = [widest, (rates[-1] - rates[0]) / math.sqrt(12)]  # anywhere between them is as likely
    parts += [UNLIKE] * (max(claim.pp or 1, claim.cp or 1, claim.ep or 1, claim.tp or 1) > 1)
    faster = is_above_prediction(claim)
    parts += [FLOAT8_EXPERTS / 2] * faster
    return Predicted(
        middle=math.exp((rates[0] + rates[-1] + FLOAT8_EXPERTS * faster) / 2),
        deviation=math.hypot(*parts),
        tuned=_tuned(runs),
        runs=tuple(runs),
        varied=tuple(_varied(claim, runs)),
        source=source_of(runs[0].step.time),
    )


def fused(operators: Operators) -> Operators:
    """Return the operators with the element-wise ones of blocks fused, as torch.compile and hand-written kernels do."""
    return tuple(
        replace(one, name="fused", bytes=round(FUSED_BYTES * one.bytes), layout="", is_compiled=True)
        if one.count > 1 and class_of(one) == "bytes" and one.phase != "optimizer"
        else one
        for one in operators
    )


def run_of(config: TrialConfig, operators: Operators, claim: Claim) -> Run:
    """Return the run of these operators on the claim's GPUs."""
    device = claim.device
    layout = layout_of(claim.count, device, nodes=str(claim.nodes) if claim.nodes else None, network=None)
    rates = _rates().of(device, layout.network)
    sized = replace(config, nodes=layout.nodes)
    return Run(config=sized, operators=in_precision(operators, sized), rates=rates,
               step=predicted_step(operators, sized, rates))  # fmt: skip


@cache
def _rates() -> DeviceRates:
    return DeviceRates()


def _tuned(runs: Sequence[Run]) -> tuple[float, float]:
    """Return the tokens a second between which a tuned stack runs the fastest of these."""
    from lmsweep.orchestrator.features.audit.causes.variants import with_fast_attention

    found = []
    for one in runs:
        fast = predicted_step(with_fast_attention(one.operators, one.rates), one.config, one.rates)
        spread = learned("tuned stacks", known_residuals(), one.rates.hardware.device.name)
        assert spread is not None, "residuals of tuned stacks ship"
        sure = spread.of(fast.ranks or fast.time)
        found.append((one.tokens / sure.high, one.tokens / sure.low))
    return max(found, key=lambda between: between[1])


def _varied(claim: Claim, runs: Sequence[Run]) -> list[str]:
    said = []
    if claim.batch is None and len({one.config.batch_size for one in runs}) > 1:
        by = sorted((one.config.micro_batch_size, one.tokens / one.seconds) for one in runs)
        said.append(f"batch not stated: {by[0][0]} to {by[-1][0]} give {min(r for _, r in by):,.0f} to "
                    f"{max(r for _, r in by):,.0f} tokens/s")  # fmt: skip
    if claim.compile is None:
        said.append("torch.compile not stated: element-wise operators from none to all of a block fused")
    for name, words in (("checkpointing", "activation checkpointing not stated: none"),
                        ("attention", "attention not stated: FlashAttention 2"),
                        ("precision", f"precision not stated: {precision_of(claim)}")):  # fmt: skip
        if getattr(claim, name) is None:
            said.append(words)
    return said
