"""Predicts which methods fit on which GPUs, and ranks them. Memory is predicted once for a method, not for each GPU."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from lmsweep.orchestrator.features.fits.fit import Fit, plans
from lmsweep.orchestrator.features.fits.fit_request import AskedGpu, FitRequest, budget_of, recipe_of
from lmsweep.orchestrator.plan_request import with_options
from lmsweep.orchestrator.planning.prediction_process import Answers
from lmsweep.orchestrator.predicting.device_rates import DeviceRates
from lmsweep.orchestrator.predicting.predicted_step import predicted_step, source_of
from lmsweep.orchestrator.predicting.varied_times import SOME_BATCHES, padding_of, varied_times
from lmsweep.trials.analytic.datasheets import capabilities_of
from lmsweep.trials.analytic.prediction_question import Answer, Largest, MemoryLimit, Question
from lmsweep.trials.analytic.prices import hourly_dollars, parse_prices
from lmsweep.trials.analytic.rates.intervals import Sure, peak_of_others
from lmsweep.trials.analytic.rates.operators import from_values
from lmsweep.trials.analytic.rates.rate_set import Rates
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.spec.reference import Code
from lmsweep.trials.spec.rules.combination_rules import why_not
from lmsweep.trials.spec.rules.device_rules import why_not_on
from lmsweep.trials.spec.ways.checkpointings import TRIED_CHECKPOINTINGS
from lmsweep.trials.store.store import Store

MOST_REMEDIES = 3
"""Changes that a remedy names: other methods, more GPUs, other GPUs."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One method on a number of GPUs, of any kind."""

    method: str
    gpus: int
    config: TrialConfig

    @property
    def workload(self) -> str:
        return "ddp" if self.gpus > 1 else "timing"


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How long a step takes, and its tokens, without padding."""

    tokens: float
    """Of all GPUs."""
    step: Sure
    step_of_others: Sure
    """Of the same step in other trainers, or the one that was named."""
    source: str


@with_options(FitRequest)
def fits(request: FitRequest) -> list[Fit]:
    """Return which GPUs and methods fit a model, the best first, as `lmsweep fits` shows it. Needs no GPU and no Ray.

    model: a size, `hf:` and a name, folder or JSON file, or your own by reference. devices: names of GPUs. gpus: how
    many of them, `(1, 8)`. methods: full, lora, dora, qlora. tokens: `1B`, for hours and dollars. prices: `H100=2.5`,
    dollars per hour. trainer: `LLM-Foundry`, whose steps the second interval is of, and hours and dollars. settings:
    other fields of the trial, `adapter_args.rank=64`. Raises RequestError, a ValueError.
    """
    return find_fits(request)


def find_fits(request: FitRequest) -> list[Fit]:
    """Return one answer per GPU, number of GPUs and method, the best first. Raises RequestError if the request is
    wrong, such as a target that no layer has, or if all answers are unknown for one reason."""
    request = request.checked()
    devices = request.gpus_meant()
    prices = hourly_dollars(parse_prices(request.prices), [(one.name, None) for one in devices])
    for device in devices:
        for gpus in request.gpus if device.datasheet else ():
            request.layout(device, gpus)  # raises before anything is predicted
    trial = request.trial()
    candidates = _candidates(trial.config, request)
    rates = DeviceRates(Store(request.store))
    answered = zip(candidates, _answers(candidates, devices, trial.code), strict=True)
    # The ways of a method are side by side in `_candidates`.
    by_method = [[*ways] for _, ways in groupby(answered, key=lambda pair: (pair[0].gpus, pair[0].method))]
    found = []
    for place, device in enumerate(devices):
        price = prices.get((device.name, None))
        for ways in by_method:
            fits_of_ways = [_fit(one, answer, place, device, request, rates, price) for one, answer in ways]
            found.append(min(fits_of_ways, key=lambda one: one.rank(request.trainer)))
    if all(one.fits is None for one in found):  # such as a package that the model needs
        reasons = dict.fromkeys(one.reason for one in found if not one.plan)
        raise RequestError("\n".join([*plans(found), *map(str, reasons)]))
    found.sort(key=lambda one: one.rank(request.trainer))
    return [one if one.fits else replace(one, remedy=_remedy(one, found)) for one in found]


def _candidates(config: TrialConfig, request: FitRequest) -> list[Candidate]:
    ways = (config.checkpointing,) if "checkpointing" in request.chosen() else TRIED_CHECKPOINTINGS
    found = []
    for gpus in request.gpus:
        ranks = {"ddp": "fsdp", "world_size": gpus} if gpus > 1 else {}
        for method in request.methods_meant():
            for way in ways:
                asked = replace(request.by(method, config), checkpointing=way, **ranks)  # type: ignore[arg-type]
                found.append(Candidate(method=method, gpus=gpus, config=asked))
    return found


def _answers(candidates: Sequence[Candidate], devices: Sequence[AskedGpu], code: Code | None) -> list[Answer]:
    """Ask about each candidate once, for all GPUs."""
    asked = [one for one in candidates if not why_not(one.config, one.workload)]
    limits = tuple(MemoryLimit(device.name, budget_of(device)) for device in devices)
    questions = [
        Question(config=one.config, limits=limits, wants=("largest", "operators"), is_trial=False) for one in asked
    ]
    answers = Answers(questions, code).wait() if questions else []
    if refused := [one.refused for one in answers if one.refused]:
        raise RequestError(refused[0])
    known = {one.config: answer for one, answer in zip(asked, answers, strict=True)}
    return [known.get(one.config) or Answer(reason=why_not(one.config, one.workload)) for one in candidates]


def _fit(
    candidate: Candidate,
    answer: Answer,
    place: int,
    device: AskedGpu,
    request: FitRequest,
    rates: DeviceRates,
    price: float | None,
) -> Fit:
    """Return what a candidate's answer says of one device: whether it fits, then how fast it is there.

    place: of the device's limit in the answer. price: dollars an hour of one GPU.
    """
    largest = answer.largest[place] if answer.largest else None
    fit = _fit_without_speed(candidate, answer, largest, device, request)
    if not fit.batch or not largest:
        return fit
    if device.datasheet is None:
        return replace(fit, reason=f"{device.name} is a size, which has no speed")
    if answer.untimed:
        return replace(fit, reason=answer.untimed)
    hourly = price and price * candidate.gpus
    if candidate.config.varies:
        sized = _with_batch(candidate.config, fit.batch)
        padded = replace(fit, beyond=answer.beyond[place], padding=padding_of(sized))
        speed = _varied_speed(sized, answer, rates.of(device.datasheet), request.trainer)
        return _with_speed(padded, speed, request, hourly)
    layout = request.layout(device, candidate.gpus)
    sized = replace(candidate.config, batch_size=fit.batch, nodes=layout.nodes)
    step = predicted_step(
        from_values(largest.operators), sized, rates.of(device.datasheet, layout.network), trainer=request.trainer
    )
    step_tokens = fit.batch * sized.context_length * candidate.gpus
    speed = Speed(tokens=step_tokens, step=step.sure, step_of_others=step.elsewhere, source=source_of(step.time))
    return _with_speed(fit, speed, request, hourly)


def _fit_without_speed(
    candidate: Candidate, answer: Answer, largest: Largest | None, device: AskedGpu, request: FitRequest
) -> Fit:
    """Return whether a candidate fits on a device. largest: the answer's largest batch there."""
    config, datasheet = candidate.config, device.datasheet
    not_on_device = why_not_on(config, candidate.workload, capabilities_of(datasheet)) if datasheet else None
    can_run = not not_on_device and not why_not(config, candidate.workload)
    # Then `answer.reason` says that the largest batch of compiled ranks is not predicted; `lmsweep plan` bounds it.
    can_be_planned = answer.reason and config.compiles and candidate.gpus > 1 and can_run
    return Fit(
        device_name=device.name,
        gpus=candidate.gpus,
        method=candidate.method,
        recipe=recipe_of(config),
        checkpointing=config.checkpointing,
        batch=largest.sure if largest and not not_on_device else None,
        peak_bytes=largest.peak if largest else None,
        peak_bytes_of_others=peak_of_others(largest.peak) if largest and largest.peak else None,
        budget_bytes=budget_of(device),
        lasting_bytes=largest.lasting if largest else None,
        reason=not_on_device or answer.why_not,
        plan=request.plan(config, device) if can_be_planned else None,
    )


def _with_batch(config: TrialConfig, batch: int) -> TrialConfig:
    field = "batch_tokens" if config.batching == "token_budget" else "batch_size"
    return replace(config, **{field: batch})  # type: ignore[arg-type]


def _varied_speed(config: TrialConfig, answer: Answer, rates: Rates, trainer: str | None) -> Speed:
    """Return the mean speed of batches that differ."""
    known = {(rows, width): from_values(its) for rows, width, its in answer.shapes}
    steps = varied_times(config, known, rates, SOME_BATCHES, trainer)
    return Speed(
        tokens=steps.real_tokens / SOME_BATCHES,
        step=steps.mean,
        step_of_others=steps.mean_of_others,
        source=source_of(steps.usual.time),
    )


def _with_speed(fit: Fit, speed: Speed, request: FitRequest, hourly: float | None) -> Fit:
    """Return the fit with its speed, and hours and dollars. hourly: dollars of all GPUs."""
    tokens, ours, others = speed.tokens, speed.step, speed.step_of_others
    return replace(
        fit,
        **_spent(request.tokens_meant(), hourly, tokens, others if request.trainer else ours),
        step_seconds=ours.seconds,
        tokens_per_second=tokens / ours.seconds,
        tokens_per_second_between=(tokens / ours.high, tokens / ours.low),
        tokens_per_second_of_others=tokens / others.seconds,
        tokens_per_second_of_others_between=(tokens / others.high, tokens / others.low),
        source=speed.source,
    )


def _spent(tokens: float | None, hourly: float | None, step_tokens: float, step: Sure) -> dict[str, Any]:
    """Return hours and dollars of so many tokens, in steps of `step_tokens`."""
    if not tokens:
        return {}
    middle, least, most = (tokens / (step_tokens / seconds) / 3600 for seconds in (step.seconds, step.low, step.high))
    found: dict[str, Any] = {"hours": middle, "hours_between": (least, most)}
    if hourly:
        found |= {"dollars": middle * hourly, "dollars_between": (least * hourly, most * hourly)}
    return found


def _remedy(one: Fit, found: Sequence[Fit]) -> str | None:
    """Return what one change would make it fit: another method, more GPUs, other GPUs, or a shorter context. found:
    all answers, the best first."""
    if one.fits is None:
        return None
    here = [other for other in found if other.fits and other.device_name == one.device_name]
    methods = [other.method for other in here if other.gpus == one.gpus]
    counts = [f"{other.gpus} GPUs" for other in here if other.method == one.method and other.gpus > one.gpus]
    alike = [other for other in found if other.fits and (other.method, other.gpus) == (one.method, one.gpus)]
    words = dict.fromkeys([*methods, *counts[:1], *(other.device_name for other in alike)][:MOST_REMEDIES])
    if one.lasting_bytes and one.lasting_bytes > one.budget_bytes:
        alone = f"more GPUs (--gpus): weights, gradients and state alone take {gib(one.lasting_bytes)}"
        return ", or ".join(words) or alone
    return ", or ".join([*(words or ["more GPUs (--gpus)"]), "a shorter --context"])
