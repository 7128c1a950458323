"""A claim beside what is known of it: each of its numbers as tokens a second, the bound and the prediction."""

import math
from dataclasses import dataclass
from functools import cached_property

from lmsweep.orchestrator.features.audit.causes.variants import ratio
from lmsweep.orchestrator.features.audit.claims.counting import (
    Convention,
    conventions,
    least_seconds,
    peak_of,
    precision_of,
)
from lmsweep.orchestrator.features.audit.claims.stated_claim import Claim
from lmsweep.orchestrator.features.audit.operator_changes import without_gradients_of_weights
from lmsweep.orchestrator.features.audit.prediction import USUAL_MFU, Predicted, Run, with_communication

RATE, STEP, MFU, TFLOPS = "tokens/s", "step time", "MFU", "TFLOP/s"
"""The numbers that a claim may state. Each is converted to tokens a second of all GPUs."""
EVERY, COUNTED = (RATE, STEP, MFU, TFLOPS), (MFU, TFLOPS)
"""All of them, and those that count FLOPs."""
UNPREDICTED_DEVIATION = 0.5
"""Standard deviation of the logarithm of the MFU of a run whose step is not predicted. Public runs have 8 to 60 %: two
deviations to each side."""
LEAST_DEVIATION = 0.1
"""Least standard deviation of log(rate / prediction): no prediction knows the host, data and software of a run."""
HOST_SHIFT, HOST_DEVIATION = 0.45, 0.27
"""Mean and standard deviation of how far honest claims are below the predicted rate, in shares of `Predicted.host_gap`:
0 is the predicted rate, 1 that with the slowest host."""
UNKNOWN_DEVIATION = 5.0
"""That deviation without a model: nothing is expected, so only the claim's numbers among themselves count."""


@dataclass(frozen=True, kw_only=True)
class Case:
    claim: Claim
    predicted: Predicted | None
    why_not: str | None = None
    """Why the step is not predicted."""

    @property
    def run(self) -> Run | None:
        """Return the predicted run in the middle; None without a prediction."""
        return self.predicted.run if self.predicted else None

    @cached_property
    def peak(self) -> float:
        """Return the dense peak FLOP/s of a GPU, by its datasheet."""
        return peak_of(self.claim.device, precision_of(self.claim))

    @cached_property
    def conventions(self) -> list[Convention]:
        return conventions(self.claim)

    @cached_property
    def rates(self) -> dict[str, float]:
        """Return number -> the tokens a second of all GPUs that it states or implies, in the order of EVERY."""
        claim, rates = self.claim, dict[str, float]()
        if claim.tokens_per_second:
            rates[RATE] = claim.tokens_per_second
        elif claim.tokens_per_second_per_gpu:
            rates[RATE] = claim.tokens_per_second_per_gpu * claim.count
        elif claim.samples_per_second and claim.context:
            rates[RATE] = claim.samples_per_second * (claim.length or claim.context)
        if claim.step_seconds and claim.step_tokens:
            rates[STEP] = claim.step_tokens / claim.step_seconds
        flops_per_token = self.conventions[0].flops
        share = claim.mfu or claim.hfu  # the first convention is that of the one stated
        if share:
            rates[MFU] = share * (claim.peak or self.peak) * claim.count / flops_per_token
        if claim.tflops:
            rates[TFLOPS] = claim.tflops * claim.count / flops_per_token
        return rates

    @cached_property
    def of_conventions(self) -> dict[str, float]:
        """Return convention -> the FLOPs it counts over those of the first."""
        first = self.conventions[0].flops
        return {one.name: one.flops / first for one in self.conventions}

    @property
    def main(self) -> str:
        """Return the number that the verdict is about: the first that is stated."""
        return next(iter(self.rates))

    @cached_property
    def bound(self) -> float:
        """Return the physical limit, in tokens a second of all GPUs."""
        return self.claim.count / least_seconds(self.claim)  # of a token on one GPU

    @property
    def middle(self) -> float:
        """Return the expected tokens a second of all GPUs: as predicted, or else by the usual MFU."""
        if self.predicted:
            return self.predicted.middle
        return USUAL_MFU * self.peak * self.claim.count / self.conventions[0].flops

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the logarithm of an honest rate over the predicted one."""
        if self.claim.model is None:
            return UNKNOWN_DEVIATION
        if not self.predicted:
            return UNPREDICTED_DEVIATION
        return math.hypot(max(LEAST_DEVIATION, self.predicted.deviation), HOST_DEVIATION * self.predicted.host_gap)

    @property
    def shift(self) -> float:
        """Return the mean of that logarithm. It is negative: steps are predicted for a fast host, most are slower."""
        return -HOST_SHIFT * self.predicted.host_gap if self.predicted else 0.0

    @cached_property
    def launch_factor(self) -> float:
        """Return how many times faster the step seems to be if only its launches are timed."""
        if not self.run:
            return 8.0  # a usual factor
        return max(1.0, self.run.seconds / max(1e-6, with_communication(self.run.step).launching))

    @cached_property
    def frozen_factor(self) -> float:
        """Return how many times faster the step is without gradients of weights and without an update."""
        return 1 / ratio(self.run, without_gradients_of_weights) if self.run else 1.45  # a usual factor

    @cached_property
    def log_ratios(self) -> dict[str, float]:
        """Return number -> the logarithm of its rate over the expected one."""
        return {name: math.log(rate / self.middle) for name, rate in self.rates.items()}
