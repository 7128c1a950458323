"""Which steps fit a claim's GPUs, of those with the micro-batches and checkpointings that the claim leaves open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lmsweep.orchestrator.features.audit.claims.stated_claim import Claim
from lmsweep.orchestrator.planning.memory_budget import CUDA_RESERVE
from lmsweep.trials.analytic.prediction_question import Answer, Largest, MemoryLimit, Question
from lmsweep.trials.analytic.rates.intervals import peak_of_others
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.quantities import count_of, gib

NOT_STATED = "activation checkpointing not stated"
LESS_ELSEWHERE = "in lmsweep's loop, less in the leanest trainers"


class _Fits(NamedTuple):
    """The largest batch that fits a GPU."""

    ours: Largest
    """In lmsweep's loop."""
    leanest: Largest
    """In the leanest trainer."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps that a claim may be of."""

    configs: tuple[TrialConfig, ...]
    words: str | None
    """What was assumed of memory and checkpointing."""
    is_too_large: bool = False
    """Whether none of them fits, by lmsweep's own loop."""


def memory_question(claim: Claim, config: TrialConfig) -> Question | None:
    """Return the question for the largest batch that fits, in lmsweep's loop and in the leanest trainer. None if memory
    is not predicted: other parallelism than FSDP, or selective checkpointing."""
    if claim.is_split or claim.is_selective or config.ddp not in ("none", "fsdp"):
        return None
    available = claim.device.memory - CUDA_RESERVE
    _, percent, _ = peak_of_others(100)  # middle, least and most: what the leanest trainers need, in % of our peak
    # The question is about our peak, so for the leanest trainers the limit is larger instead.
    limits = tuple(MemoryLimit(claim.device.name, limit) for limit in (available, round(available * 100 / percent)))
    asked = replace(config, batch_size=1, accumulate=1, compile="none")  # as `fits` asks
    return Question(config=asked, limits=limits, wants=("largest",), is_trial=False)


def steps_of(claim: Claim, configs: Sequence[TrialConfig], answers: Mapping[Question, Answer]) -> Steps:
    """Return the steps that fit the leanest trainer. Checkpointing is tried unless a step fits lmsweep's loop without.

    configs: one for each micro-batch and each checkpointing that the claim leaves open, no checkpointing first.
    """
    fits: dict[str, _Fits] = {}  # by checkpointing; the same for each micro-batch
    for config in configs:
        asked = memory_question(claim, config)
        if not asked or not answers[asked].largest:  # memory is unknown: any step may fit
            plain = tuple(one for one in configs if one.checkpointing == configs[0].checkpointing)
            words = None if claim.checkpointing else f"{NOT_STATED}: none"
            return Steps(configs=plain, words=words)
        fits[config.checkpointing] = _Fits(*answers[asked].largest)  # in the order of the question's limits
    kept = _fitting(configs, fits)
    if not kept:
        least = min(one.micro_batch_size for one in configs)
        smallest = [one for one in configs if one.micro_batch_size == least][-1]  # with checkpointing, if it may be
        return Steps(configs=(smallest,), words=_too_large(claim, smallest, fits), is_too_large=True)
    return Steps(configs=tuple(kept), words=_chosen(claim, kept, fits))


def _fitting(configs: Sequence[TrialConfig], fits: Mapping[str, _Fits]) -> list[TrialConfig]:
    kept: list[TrialConfig] = []
    fit_ours: set[int] = set()  # micro-batches: nobody computes again what fits
    for config in configs:
        batch, fit = config.micro_batch_size, fits[config.checkpointing]
        if batch not in fit_ours and batch <= fit.leanest.sure:
            kept.append(config)
        if batch <= fit.ours.sure:
            fit_ours.add(batch)
    return kept


def _chosen(claim: Claim, kept: Sequence[TrialConfig], fits: Mapping[str, _Fits]) -> str | None:
    """Return what was assumed of the steps that fit, in words; None if the claim states it and lmsweep's loop fits."""
    too_large = ""
    if not any(one.micro_batch_size <= fits[one.checkpointing].ours.sure for one in kept):
        too_large = f"{_too_large(claim, kept[-1], fits)} {LESS_ELSEWHERE}"
    if claim.checkpointing:
        return too_large or None
    tried = {one.checkpointing for one in kept}
    if tried == {"none"}:
        return f"{NOT_STATED}: none; {too_large}" if too_large else f"{NOT_STATED}: none, with which it fits"
    without = _why_not_without(fits["none"].ours, claim)
    if "none" not in tried:
        return f"{NOT_STATED}: of each block; {too_large or without}"
    return f"{NOT_STATED}: with and without were tried; {too_large or f'{without} {LESS_ELSEWHERE}'}"


def _why_not_without(ours: Largest, claim: Claim) -> str:
    if not ours.sure:
        return f"without it one sequence needs {_of_memory(ours, claim)}"
    return f"without it at most {count_of(ours.sure, 'sequence')} {'fits' if ours.sure == 1 else 'fit'} a GPU"


def _too_large(claim: Claim, config: TrialConfig, fits: Mapping[str, _Fits]) -> str:
    """Return why a step does not fit in lmsweep's loop."""
    ours = fits[config.checkpointing].ours
    how = "with activation checkpointing" if config.checkpointing != "none" else "without activation checkpointing"
    even = "" if claim.checkpointing else "even "
    if ours.sure:
        return f"{even}{how} at most {count_of(ours.sure, 'sequence')} fit a GPU, not {config.micro_batch_size}"
    return f"{even}{how} one sequence needs {_of_memory(ours, claim)}"


def _of_memory(needed: Largest, claim: Claim) -> str:
    return f"{gib(needed.peak or 0)} of the {gib(claim.device.memory - CUDA_RESERVE)} of a GPU"
