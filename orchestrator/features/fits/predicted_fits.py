"""Predicts which methods fit on which GPUs, and ranks them. Memory is predicted once for a method, not for each GPU."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lmsweep.orchestrator.features.fits.fit import Fit
from lmsweep.orchestrator.features.fits.fit_request import AskedGpu, FitRequest, budget_of, recipe_of
from lmsweep.orchestrator.plan_request import with_options
from lmsweep.orchestrator.planning.prediction_process import Answer, Answers
from lmsweep.orchestrator.predicting.measured_rates import measured_rates
from lmsweep.orchestrator.predicting.predicted_step import predicted_step, source_of
from lmsweep.trials.analytic.datasheets import capabilities_of
from lmsweep.trials.analytic.prices import hourly_dollars
from lmsweep.trials.analytic.rates.operators import from_values
from lmsweep.trials.analytic.rates.rate_set import MeasuredRates, rates_with
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.spec.rules.combination_rules import why_not
from lmsweep.trials.spec.rules.device_rules import why_not_on
from lmsweep.trials.store.store import Store

RECOMPUTED = ("none", "block")
"""Values of `checkpointing` that are tried."""
MOST_REMEDIES = 3


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One method on a number of GPUs, of any kind."""

    method: str
    gpus: int
    config: TrialConfig

    @property
    def workload(self) -> str:
        return "ddp" if self.gpus > 1 else "timing"


@with_options(FitRequest)
def fits(request: FitRequest) -> list[Fit]:
    """Return which GPUs and methods fit a model, the best first, as `lmsweep fits` shows it. Needs no GPU and no Ray.

    model: a size, `hf:` and a name, folder or JSON file, or your own by reference. devices: names of GPUs. gpus: how
    many of them, `(1, 8)`. methods: full, lora, dora, qlora. tokens: `1B`, for hours and dollars. prices: `H100=2.5`,
    dollars per hour. settings: other fields of the trial, `adapter_args.rank=64`. Raises RequestError, a ValueError.
    """
    return find_fits(request)


def find_fits(request: FitRequest) -> list[Fit]:
    """Return one answer per GPU, number of GPUs and method, the best first. Raises RequestError if the request is
    wrong, such as a target that no layer has, or if all answers are unknown for one reason."""
    request = request.checked()
    devices, tokens = request.gpus_meant(), request.tokens_meant()
    prices = hourly_dollars(request.prices_meant(), [(one.name, None) for one in devices])
    for device in devices:
        for gpus in request.gpus if device.datasheet else ():
            request.layout(device, gpus)
    trial = request.trial()
    candidates = _candidates(trial.config, request)
    store = Store(request.store)
    measured = measured_rates(store) if store.exists() else MeasuredRates()
    answers = _answers(candidates, devices, vars(trial.code) if trial.code else None)
    found = []
    for place, device in enumerate(devices):
        price = prices.get((device.name, None))
        for gpus in request.gpus:
            for method in request.methods_meant():
                ways = [
                    _fit(one, device, place, answer, request, measured, tokens, price)
                    for one, answer in zip(candidates, answers, strict=True)
                    if (one.method, one.gpus) == (method, gpus)
                ]
                found.append(_best(ways))
    if all(one.fits is None for one in found) and len(reasons := {one.reason for one in found}) == 1:
        raise RequestError(str(*reasons))  # such as a package that the model needs
    found.sort(key=lambda one: one.rank)
    return [one if one.fits else replace(one, remedy=_remedy(one, found)) for one in found]


def _candidates(config: TrialConfig, request: FitRequest) -> list[Candidate]:
    ways = (config.checkpointing,) if "checkpointing" in request.chosen() else RECOMPUTED
    found = []
    for gpus in request.gpus:
        ranks = {"ddp": "fsdp", "world_size": gpus} if gpus > 1 else {}
        for method in request.methods_meant():
            for way in ways:
                asked = replace(request.by(method, config), checkpointing=way, **ranks)  # type: ignore[arg-type]
                found.append(Candidate(method=method, gpus=gpus, config=asked))
    return found


def _answers(candidates: Sequence[Candidate], devices: Sequence[AskedGpu], code: object) -> list[Answer]:
    """Ask about each candidate once, for all GPUs."""
    asked = [one for one in candidates if not why_not(one.config, one.workload)]
    rooms = [(device.name, budget_of(device)) for device in devices]
    configs = [one.config for one in asked]
    answers = Answers("room", configs, rooms=[rooms for _ in configs], code=code).wait() if configs else []
    for answer in answers:
        if "refused" in answer:
            raise RequestError(answer["refused"])
    known = dict(zip(configs, answers, strict=True))
    return [known.get(one.config, {"reason": why_not(one.config, one.workload)}) for one in candidates]


def _fit(
    candidate: Candidate,
    device: AskedGpu,
    place: int,
    answer: Answer,
    request: FitRequest,
    measured: MeasuredRates,
    tokens: float | None,
    price: float | None,
) -> Fit:
    config = candidate.config
    datasheet = device.datasheet
    reason = why_not_on(config, candidate.workload, capabilities_of(datasheet)) if datasheet else None
    batch, peak, lasting = answer["rooms"][place] if "rooms" in answer else (None, None, None)
    fit = Fit(
        device_name=device.name,
        gpus=candidate.gpus,
        method=candidate.method,
        recipe=recipe_of(config),
        checkpointing=config.checkpointing,
        batch=None if reason else batch,
        peak_bytes=peak,
        budget_bytes=budget_of(device),
        lasting_bytes=lasting,
        reason=reason or answer.get("reason"),
    )
    if not fit.batch:
        return fit
    if datasheet is None:
        return replace(fit, reason=f"{device.name} is a size, which has no speed")
    if "no_operators" in answer:
        return replace(fit, reason=answer["no_operators"])
    layout = request.layout(device, candidate.gpus)
    rates = rates_with(datasheet, measured, layout.network)
    sized = replace(config, batch_size=fit.batch, nodes=layout.nodes)
    step = predicted_step(from_values(answer["operators"][str(batch)]), sized, rates)
    middle, low, high = step.sure
    step_tokens = fit.batch * config.context_length * candidate.gpus
    hours = tokens / step_tokens * middle / 3600 if tokens else None
    return replace(
        fit,
        tokens_per_second=step_tokens / middle,
        tokens_per_second_between=(step_tokens / high, step_tokens / low),
        hours=hours,
        dollars=hours * price * candidate.gpus if hours and price else None,
        source=source_of(step.time),
    )


def _best(ways: Sequence[Fit]) -> Fit:
    """Return the fastest way that fits, else the one that lacks least."""
    fitting = [one for one in ways if one.fits]
    if fitting:
        return max(fitting, key=lambda one: one.tokens_per_second or 0.0)
    return min(ways, key=lambda one: one.rank)


def _remedy(one: Fit, found: Sequence[Fit]) -> str | None:
    """Return which of the answers that fit differ from this one in one thing."""
    if one.fits is None:
        return None
    here = [other for other in found if other.fits and other.device_name == one.device_name]
    methods = [other.method for other in here if other.gpus == one.gpus]
    counts = [f"{other.gpus} GPUs" for other in here if other.method == one.method and other.gpus > one.gpus]
    alike = [other for other in found if other.fits and (other.method, other.gpus) == (one.method, one.gpus)]
    devices = [other.device_name for other in alike]
    words = [*methods, *counts[:1], *devices][:MOST_REMEDIES]
    if one.lasting_bytes and one.lasting_bytes > one.budget_bytes:
        alone = f"more GPUs (--gpus): weights, gradients and state alone take {gib(one.lasting_bytes)}"
    else:
        alone = "more GPUs (--gpus), or a shorter --context"
    return ", or ".join(dict.fromkeys(words)) or alone
