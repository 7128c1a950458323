"""Which steps fit a claim's GPUs, of those with the micro-batches and checkpointings that the claim leaves open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lmsweep.orchestrator.features.audit.claims.stated_claim import Claim
from lmsweep.orchestrator.planning.memory_budget import CUDA_RESERVE
from lmsweep.trials.analytic.prediction_question import Answer, Largest, MemoryLimit, Question
from lmsweep.trials.analytic.rates.intervals import peak_of_others
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.quantities import count_of, gib


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
    _, percent, _ = peak_of_others(100)  # what the leanest trainers need, in per cent of our peak
    # The question is about our peak, so for the leanest trainers the limit is larger instead.
    limits = tuple(MemoryLimit(claim.device.name, limit) for limit in (available, round(available * 100 / percent)))
    asked = replace(config, batch_size=1, accumulate=1, compile="none")  # as `fits` asks
    return Question(config=asked, limits=limits, wants=("largest",), is_trial=False)


def steps_of(claim: Claim, configs: Sequence[TrialConfig], answers: Mapping[Question, Answer]) -> Steps:
    """Return the steps that fit the leanest trainer. Checkpointing is tried unless a step fits lmsweep's loop without.

    configs: one for each micro-batch and each checkpointing that the claim leaves open, no checkpointing first.
    """
    ways: dict[str, tuple[Largest, ...]] = {}  # checkpointing -> largest batch in our loop, in the leanest trainer
    for config in configs:
        asked = memory_question(claim, config)
        ways.setdefault(config.checkpointing, answers[asked].largest if asked else ())
    if not all(ways.values()):  # memory is unknown: any step may fit, so no checkpointing is assumed
        plain = tuple(one for one in configs if one.checkpointing == configs[0].checkpointing)
        return Steps(configs=plain, words=None if claim.checkpointing else "activation checkpointing not stated: none")
    kept: list[TrialConfig] = []
    for batch in dict.fromkeys(one.micro_batch_size for one in configs):
        for config in (one for one in configs if one.micro_batch_size == batch):
            ours, leanest = ways[config.checkpointing]
            if batch <= leanest.sure:
                kept.append(config)
            if batch <= ours.sure:
                break  # nobody computes again what fits
    least = min(one.micro_batch_size for one in configs)
    if not kept:
        smallest = [one for one in configs if one.micro_batch_size == least]
        return Steps(configs=(smallest[-1],), words=_too_large(claim, smallest[-1], ways), is_too_large=True)
    return Steps(configs=tuple(kept), words=_chosen(claim, kept, ways))


def _chosen(claim: Claim, kept: Sequence[TrialConfig], ways: Mapping[str, tuple[Largest, ...]]) -> str | None:
    """Return what was assumed of the steps that fit, in words; None if the claim states it and lmsweep's loop fits."""
    fits_in_ours = any(one.micro_batch_size <= ways[one.checkpointing][0].sure for one in kept)
    too_large = (
        "" if fits_in_ours else f"{_too_large(claim, kept[-1], ways)} in lmsweep's loop, less in the leanest trainers"
    )
    if claim.checkpointing:
        return too_large or None
    said = "activation checkpointing not stated: "
    plain = ways["none"][0]
    if all(one.checkpointing == "none" for one in kept):
        return f"{said}none; {too_large}" if too_large else f"{said}none, with which it fits"
    if plain.sure:
        why = f"without it at most {count_of(plain.sure, 'sequence')} fit{'s' * (plain.sure == 1)} a GPU"
    else:
        why = f"without it one sequence needs {_of_memory(plain, claim)}"
    if any(one.checkpointing == "none" for one in kept):
        both = too_large or f"{why} in lmsweep's loop, less in the leanest trainers"
        return f"{said}with and without were tried; {both}"
    return f"{said}of each block; {too_large or why}"


def _too_large(claim: Claim, config: TrialConfig, ways: Mapping[str, tuple[Largest, ...]]) -> str:
    """Return why a step does not fit in lmsweep's loop."""
    ours = ways[config.checkpointing][0]
    how = "with activation checkpointing" if config.checkpointing != "none" else "without activation checkpointing"
    even = "" if claim.checkpointing else "even "
    if ours.sure:
        return f"{even}{how} at most {count_of(ours.sure, 'sequence')} fit a GPU, not {config.micro_batch_size}"
    return f"{even}{how} one sequence needs {_of_memory(ours, claim)}"


def _of_memory(needed: Largest, claim: Claim) -> str:
    return f"{gib(needed.peak or 0)} of the {gib(claim.device.memory - CUDA_RESERVE)} of a GPU"
