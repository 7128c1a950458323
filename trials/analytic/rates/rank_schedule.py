"""The step of a rank among many: the order of computation and communication on two streams, as `fully_shard` has it.

A gather may begin when the one before has ended and the block before has begun, so one block is fetched ahead. A
scatter begins when the block's gradients are there. Gathers and scatters share the links, one after the other.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from lmsweep.trials.analytic.rates.intervals import Timed
from lmsweep.trials.analytic.rates.operators import Operator, Operators
from lmsweep.trials.analytic.rates.step_time import WAIT_PER_LAUNCH, OperatorRates, StepTime, step_time
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS

INTERFERENCE = 0.5
"""Slowdown of computation per second of communication beside it, fitted to DistributedDataParallel on two H200."""
DTENSOR_LAUNCHES = 6.1
"""Launch time of a model that DTensor divides over that of a plain one: 4.3 on two H200 with layers alone divided,
times 1.41 for what the host takes since tokens and the vocabulary are too, on a CPU that sends nothing. Layers with
LoRA compute on plain tensors: with it beside all of them that CPU took 3.1 times as long as one process, else 5.9."""


@dataclass(frozen=True, kw_only=True)
class RankTime(Timed):
    """Seconds of one step of a rank."""

    time: StepTime
    """Times of its operators, each by itself."""
    busy: float
    """Time of the device in forward and backward, with the communication that computation does not hide."""
    launching: float
    """Time in which the host launches forward and backward."""
    launching_elsewhere: float
    """The same in a trainer whose divided layers are no DTensors, such as Megatron-LM."""
    after: float
    """Time of the device and of communication after backward."""
    exposed: Mapping[str, float]
    """Part of a step -> the seconds that communication adds to it."""

    @property
    def elsewhere(self) -> "RankTime":
        return replace(self, launching=self.launching_elsewhere)

    def limits(self, factor: float, end: Literal[0, 1] | None = None) -> tuple[float, float]:
        host = 1.0 if end is None else self.time.hosts[end]
        busy = factor * (self.busy + self.time.unsure(end)) + WAIT_PER_LAUNCH * host * self.launching
        return busy + factor * self.after, host * self.launching + factor * self.after


def rank_time(operators: Operators, rates: OperatorRates, config: TrialConfig) -> RankTime:
    """Return the time of a rank's step: its computation, and the communication that computation does not hide."""
    time = step_time(operators, rates)
    sent = [one for one in operators if one.stream == "communication"]
    seconds = {one: rates.of(replace(one, count=1)).seconds * one.count for one in sent}
    computing: dict[str, float] = defaultdict(float)  # seconds of each phase
    for part in time.parts:
        computing[part.operator.phase] += part.seconds if part.operator.stream == "compute" else 0.0
    # A dictionary, as a set has another order in each process: its sum would have other last digits.
    divides = config.tp > 1
    of_layers = {one: took for one, took in seconds.items() if divides and one.stride == 1 and one.ranks == config.tp}
    of_weights = [one for one in sent if one not in of_layers]
    beside = {  # phase -> the time beside which weights and gradients can be sent
        phase: sum(took for one, took in of_layers.items() if one.phase == phase) + computing[phase]
        for phase in ("forward", "backward")
    }
    # Nothing hides what divided layers gather and sum.
    exposed: dict[str, float] = {"gathers and sums of divided layers": sum(of_layers.values())}
    after = 0.0
    if config.fully_shards:
        exposed |= _Sharded(config, of_weights, seconds, beside["forward"], beside["backward"]).exposed()
    else:
        of_replicas, after = _replicated(config, of_weights, seconds, beside["backward"])
        exposed |= of_replicas
    hidden = max(0.0, sum(seconds.values()) - sum(exposed.values()))
    exposed["computation beside communication"] = INTERFERENCE * hidden
    launched = [(one.operator, one.launching) for one in time.parts if one.operator.phase != "optimizer"]
    adapted = tuple(one.module.removesuffix(".base_layer") for one in operators if one.module.endswith(".base_layer"))
    dtensors = DTENSOR_LAUNCHES if config.tp > 1 else 1.0
    calls = {one: one.count * rates.launch(replace(one, name="all_reduce")) for one in of_layers}  # without hooks
    return RankTime(
        time=time,
        # `after` is exposed, too, but once backward is done.
        busy=computing["forward"] + computing["backward"] + sum(exposed.values()) - after,
        launching=math.fsum(took * (dtensors if _is_on_dtensors(one, adapted) else 1.0) for one, took in launched),
        launching_elsewhere=math.fsum(calls.get(one, took) for one, took in launched),
        after=computing["optimizer"] + after,
        exposed={name: value for name, value in exposed.items() if value > 0},
    )


def _is_on_dtensors(operator: Operator, adapted: tuple[str, ...]) -> bool:
    """Whether an operator computes on DTensors. adapted: paths of the modules with LoRA, which do not."""
    return operator.stream == "compute" and not (operator.is_compiled or operator.module.startswith(adapted))


@dataclass
class _Sharded:
    """The gathers and scatters of `fully_shard`, in a step of one or more micro-batches."""

    config: TrialConfig
    sent: Iterable[Operator]
    seconds: Mapping[Operator, float]
    """Operator -> time of all its repetitions."""
    forward: float
    backward: float
    """Time beside which weights and gradients can be sent, in all micro-batches."""

    def exposed(self) -> dict[str, float]:
        """Return the communication that computation does not hide, by part. `now` is the time of the computation,
        `link` when all that was sent has arrived, `began` when the latest block of forward began."""
        exposed: dict[str, float] = defaultdict(float)
        micro = self.config.accumulate
        blocks = self.config.num_layers or max((one.count // micro for one in self.sent if one.count > 1), default=1)
        gather = {phase: self._each("all_gather", phase) for phase in ("forward", "backward")}
        scatter = self._each("reduce_scatter", "backward")
        replicas = self._each("all_reduce", "backward")
        block_forward, block_backward = self.forward / micro / blocks, self.backward / micro / blocks
        now = link = began = 0.0
        for index in range(micro):
            is_last = index == micro - 1  # only then gradients are scattered
            link = max(link, now) + gather["forward"].root / micro
            exposed["gathers in forward"] += max(0.0, link - now)
            now = began = max(now, link)
            for _ in range(blocks):
                link = max(link, began) + gather["forward"].block / micro
                exposed["gathers in forward"] += max(0.0, link - now)
                began = max(now, link)
                now = began + block_forward
            ready = link = max(link, now) + gather["backward"].block / micro
            exposed["gathers in backward"] += max(0.0, ready - now)
            for _ in range(blocks):
                now = max(now, ready)
                ready = link = max(link, now) + gather["backward"].block / micro  # the next block while this computes
                now += block_backward
                if is_last:
                    link = max(link, now) + scatter.block + replicas.block
                exposed["gathers in backward"] += max(0.0, ready - now)
        link = max(link, now) + scatter.root + replicas.root
        exposed["scatters after backward"] += max(0.0, link - now)
        return exposed

    def _each(self, kind: str, phase: str) -> "_Message":
        """Return the seconds for one block of all micro-batches, and for what is outside of the blocks, the root."""
        found = [one for one in self.sent if one.name == kind and one.phase == phase]
        largest = max((one.count for one in found), default=0)
        blocks = self.config.num_layers or max(1, largest // self.config.accumulate)
        total = sum(self.seconds[one] for one in found)
        nothing_repeats = largest == 1 and blocks > 1  # no layer is like another: all is taken to be of blocks
        if nothing_repeats or (phase == "backward" and kind == "all_gather"):  # or the root's weights are still there
            return _Message(block=total / blocks, root=0.0)
        of_blocks = sum(self.seconds[one] for one in found if one.count > 1 or "*" in one.module)
        return _Message(block=of_blocks / blocks, root=total - of_blocks)


@dataclass(frozen=True)
class _Message:
    block: float
    root: float


def _replicated(
    config: TrialConfig, sent: Iterable[Operator], seconds: Mapping[Operator, float], backward: float
) -> tuple[dict[str, float], float]:
    """Return the communication that computation does not hide, by part, and how much of it follows backward."""
    variant = DDP_VARIANTS.get(config.ddp, DDP_VARIANTS["bucketed"])  # as which the user's own counts
    of_gradients = sum(seconds[one] for one in sent if one.phase != "optimizer")
    of_weights = sum(seconds[one] for one in sent if one.phase == "optimizer")
    exposed = {"weights that other ranks updated": of_weights, "sums of gradients": of_gradients}
    if not variant.overlaps:
        return exposed, of_weights + of_gradients
    blocks = max(2, config.num_layers or 2)
    hideable = backward / config.accumulate * (1 - 1 / blocks)  # the last gradients come last
    exposed["sums of gradients"] = max(of_gradients / blocks, of_gradients - hideable)
    return exposed, of_weights


def resized(operators: Operators, config: TrialConfig, world_size: int) -> Operators:
    """Return the operators of a rank among another number of ranks: the same computation and messages, other groups."""
    before, after = config.world_size // config.tp, world_size // config.tp
    changed = []
    for one in operators:
        if one.stream == "communication":
            is_of_layers = config.tp > 1 and one.stride == 1
            if config.ddp == "hsdp":
                replicas = before // config.shard_ranks
                grows = one.name == "all_reduce" and one.ranks == replicas and one.stride >= config.shard_ranks
                one = replace(one, ranks=after // config.shard_ranks) if grows else one
            elif not is_of_layers:
                one = replace(one, ranks=after)
        elif one.phase == "optimizer" and config.fully_shards and config.ddp != "hsdp":
            one = replace(one, bytes=round(one.bytes * before / after))
        changed.append(one)
    return tuple(changed)
