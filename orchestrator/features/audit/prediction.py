"""How fast a claim's step runs, as predicted: as PyTorch's trainers run it, and as a tuned stack does."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.features.audit.asking import (
    configs_of,
    is_above_prediction,
    layout_of_claim,
    operators_question,
    why_unpredicted,
)
from lmsweep.orchestrator.features.audit.claims.counting import conventions, peak_of, precision_of
from lmsweep.orchestrator.features.audit.claims.stated_claim import Claim
from lmsweep.orchestrator.features.audit.fitting import Steps, steps_of
from lmsweep.orchestrator.features.audit.operator_changes import (
    fused,
    products_again,
    with_fast_attention,
    without_sending,
)
from lmsweep.orchestrator.predicting.device_rates import DeviceRates
from lmsweep.orchestrator.predicting.predicted_step import PredictedStep, in_precision, predicted_step, source_of
from lmsweep.trials.analytic.prediction_question import Answer, Question
from lmsweep.trials.analytic.rates.intervals import INTERVAL_DEVIATIONS, known_residuals, learned
from lmsweep.trials.analytic.rates.operators import Operators, from_values
from lmsweep.trials.analytic.rates.rank_schedule import RankTime
from lmsweep.trials.analytic.rates.rate_set import Rates
from lmsweep.trials.analytic.rates.step_time import StepTime
from lmsweep.trials.spec.config import TrialConfig

SLOW_HOST, LOOP_SECONDS = 3.2, 0.015
"""Launch time of a slow host over the reference's, and seconds that the loop around the step may take. The sets that
ship are from hosts of 1 to 2.6 times the reference's; the quarter on top, and the loop, are assumptions."""
SPLIT = 0.2
"""Standard deviation of the logarithm that tensor, pipeline, context and expert parallelism add. Chosen on honest
claims. Their communication is not predicted: it is assumed to take between nothing and as long as that of sharded
weights, so the step is predicted both ways."""
USUAL_MFU, USUAL_DEVIATION = 0.35, 0.4
"""MFU of public training runs that no slow host decides, attention counted over all positions, and the standard
deviation of its logarithm: with each source left out in turn, 0.33 to 0.37 and 0.36 to 0.40."""
FLOAT8_EXPERTS = 0.6
"""Experts in float8 are predicted as if in 16 bits. Their step may be faster by up to this logarithm. Chosen on honest
claims."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One way in which the claim may have run, with a choice for all that it does not state."""

    config: TrialConfig
    operators: Operators
    rates: Rates
    step: PredictedStep

    @property
    def tokens(self) -> float:
        """Return the tokens of a step on all GPUs."""
        return float(self.config.batch_size * self.config.context_length * self.config.world_size)

    @property
    def seconds(self) -> float:
        return self.step.elsewhere.seconds  # in other trainers

    @property
    def rate(self) -> float:
        """Return the tokens a second of all GPUs."""
        return self.tokens / self.seconds

    @property
    def slow_host_seconds(self) -> float:
        return SLOW_HOST * with_communication(self.step).launching + LOOP_SECONDS


def with_communication(step: PredictedStep) -> StepTime | RankTime:
    """Return the time of a step's operators: of one rank with what it sends, or of a single process."""
    return step.ranks or step.time


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """The rate that is predicted for a claim, in tokens a second of all GPUs."""

    middle: float
    deviation: float
    """Standard deviation of the logarithm."""
    tuned: tuple[float, float]
    """95 % interval, as a tuned stack runs it."""
    runs: tuple[Run, ...]
    varied: tuple[str, ...]
    """What is not stated and was varied or assumed, in words."""
    source: str
    too_large: str | None = None
    """Why no step of the claim fits, by lmsweep's own loop."""

    @property
    def low(self) -> float:
        """Return the lower end: by the deviation or, if that is lower, with the slowest host that is known."""
        return self.middle * math.exp(-max(self.host_gap, INTERVAL_DEVIATIONS * self.deviation))

    @property
    def host_gap(self) -> float:
        """Return log(predicted rate / rate of the slowest run on the slowest host known), 0 if no host decides."""
        return max(0.0, math.log(self.middle / min(one.tokens / one.slow_host_seconds for one in self.runs)))

    @property
    def high(self) -> float:
        return self.middle * math.exp(INTERVAL_DEVIATIONS * self.deviation)

    @property
    def run(self) -> Run:
        """Return the run with the median rate."""
        return sorted(self.runs, key=lambda one: one.rate)[len(self.runs) // 2]


def predicted(claim: Claim, answers: Mapping[Question, Answer]) -> Predicted | Refusal:
    """Return how fast the claim's step is, or why that is not known. answers: what `asked_of` returns. The rate is the
    middle of the slowest and the fastest way in which the claim may have run."""
    if why := why_unpredicted(claim):
        return Refusal(why)
    steps = steps_of(claim, configs_of(claim), answers)
    runs: list[Run] = []
    for config in steps.configs:
        answer = answers[operators_question(config)]
        if answer.untimed or answer.why_not:
            return Refusal(answer.untimed or answer.why_not or "")
        runs += _runs_of(config, from_values(answer.operators), claim)
    middle, deviation = _middle_and_deviation(runs, claim)
    prediction = Predicted(
        middle=middle,
        deviation=deviation,
        tuned=_tuned(runs, claim),
        runs=tuple(runs),
        varied=tuple(_varied(claim, runs, steps)),
        too_large=steps.words if steps.is_too_large else None,
        source=source_of(runs[0].step.time),
    )
    return _nearer_to_usual(prediction, claim) if _is_usual(prediction, claim) else prediction


def _runs_of(config: TrialConfig, operators: Operators, claim: Claim) -> list[Run]:
    """Return a run for each way in which trainers may compute this step."""
    if claim.is_selective:
        operators += tuple(products_again(operators))
    ways = [operators]
    if config.compile == "none":  # other trainers fuse by hand: some operators, or all
        ways.append(fused(operators))
    if claim.is_split:
        ways += [without_sending(one) for one in ways]
    return [run_of(config, one, claim) for one in ways]


def _middle_and_deviation(runs: Sequence[Run], claim: Claim) -> tuple[float, float]:
    """Return the rate that is predicted, and the standard deviation of its logarithm."""
    logs = sorted(math.log(one.rate) for one in runs)
    of_a_run = max(math.log(one.step.elsewhere.high / one.step.elsewhere.low) / 2 / INTERVAL_DEVIATIONS for one in runs)
    between_runs = (logs[-1] - logs[0]) / math.sqrt(12)  # as of a uniform distribution
    split = SPLIT if claim.is_split else 0.0
    faster = _most_gain(claim)
    middle_log = (logs[0] + logs[-1] + faster) / 2  # the fastest run may be `faster` above its prediction
    # Half of `faster`, not its share by the root of 12: FLOAT8_EXPERTS was chosen with it.
    return math.exp(middle_log), math.hypot(of_a_run, between_runs, split, faster / 2)


def _most_gain(claim: Claim) -> float:
    """Return the logarithm of how many times faster than predicted the fastest run may be."""
    return FLOAT8_EXPERTS if is_above_prediction(claim) else 0.0


def _is_usual(prediction: Predicted, claim: Claim) -> bool:
    """Whether public training runs say what MFU to expect: fast products and attention, all weights, no slow host."""
    config = prediction.run.config
    is_slowed = config.attention == "naive" or config.offload != "none" or precision_of(claim) in ("fp32", "tf32")
    return not is_slowed and claim.method in (None, "full") and not prediction.host_gap


def _nearer_to_usual(prediction: Predicted, claim: Claim) -> Predicted:
    """Return the prediction with the usual MFU as a second one: their logarithms weigh by their inverse variances."""
    flops_per_token = next(one.flops for one in conventions(claim) if one.name == "full")
    usual = USUAL_MFU * peak_of(claim.device, precision_of(claim)) * claim.count / flops_per_token
    weight, weight_of_usual = prediction.deviation**-2, USUAL_DEVIATION**-2
    share = weight_of_usual / (weight + weight_of_usual)
    middle = prediction.middle ** (1 - share) * usual**share
    return replace(prediction, middle=middle, deviation=(weight + weight_of_usual) ** -0.5)


def run_of(config: TrialConfig, operators: Operators, claim: Claim) -> Run:
    """Return the run of these operators on the claim's GPUs."""
    layout = layout_of_claim(claim)
    rates = _rates().of(claim.device, layout.network)
    sized = replace(config, nodes=layout.nodes)
    return Run(config=sized, operators=in_precision(operators, sized), rates=rates,
               step=predicted_step(operators, sized, rates))  # fmt: skip


_rates = cache(DeviceRates)
"""Returns the rates of all devices, which are read once."""


def _tuned(runs: Sequence[Run], claim: Claim) -> tuple[float, float]:
    """Return the interval of tokens a second of a tuned stack, for the run that is fastest there."""
    intervals = []
    for run in runs:
        fast = predicted_step(with_fast_attention(run.operators, run.rates), run.config, run.rates)
        spread = learned("tuned stacks", known_residuals(), run.rates.hardware.device.name)
        assert spread is not None, "residuals of tuned stacks ship"
        sure = spread.of(with_communication(fast))
        intervals.append((run.tokens / sure.high, run.tokens / sure.low))
    low, high = max(intervals, key=lambda between: between[1])
    return low, high * math.exp(_most_gain(claim))


def _varied(claim: Claim, runs: Sequence[Run], steps: Steps) -> list[str]:
    said = [steps.words] if steps.words else []
    if claim.batch is None and len({one.config.batch_size for one in runs}) > 1:
        sizes, rates = [one.config.micro_batch_size for one in runs], [one.rate for one in runs]
        given = f"{min(rates):,.0f} to {max(rates):,.0f} tokens/s"
        said.append(f"batch not stated: {min(sizes)} to {max(sizes)} give {given}")
    if claim.compile is None:
        said.append("torch.compile not stated: element-wise operators from none to all of a block fused")
    if claim.attention is None:
        said.append("attention not stated: FlashAttention 2")
    if claim.precision is None:
        said.append(f"precision not stated: {runs[0].config.precision}")
    return said
