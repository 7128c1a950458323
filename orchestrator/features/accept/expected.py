"""What a part should take: the distribution of machines that measured it, or public rates.

The logarithm of a machine's time is normal around that of its kind (`lmsweep.trials.statistics.variation`). Its
standard deviation is estimated from the shipped prior of machines and processes together with the machines that
measured the part, so a measured time is judged by Student's t.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance
from typing import Literal, NamedTuple

from scipy.special import stdtrit

from lmsweep.orchestrator.features.accept.parts import Process
from lmsweep.orchestrator.predicting.predicted_step import PredictedStep
from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.rates.hardware import CHIP
from lmsweep.trials.analytic.rates.intervals import spread_for
from lmsweep.trials.analytic.rates.rate_data import public_products
from lmsweep.trials.analytic.rates.rate_set import Rates, rates_of
from lmsweep.trials.statistics.variation import BETWEEN_MACHINES, PRIORS, widest

PRIOR_FREEDOM = 3.0
"""Degrees of freedom of the priors of machines and processes together: few machines of a kind were measured."""
SAME_CHIP_DEVIATION = 0.02
"""Standard deviation that another GPU with the same chip adds: its memory takes some of the power."""
BY_CHIP = frozenset({"product", "attention, forward", "attention, backward"})
"""Parts that the chip decides and not the memory."""
BETWEEN_TIMES = 0.06
"""Standard deviation of one host between different times, beside that of its processes
(docs/lab/2026-11-25-accept.md)."""
LEAST_NAMED_SHARE = 0.05
"""A source is named if at least this share of the predicted time comes from it."""
PREDICTED_FREEDOM = 11.0
"""Degrees of freedom with which Student's t reaches 2.2 deviations for 95 %: the interval of a predicted step."""

Question = Literal["kind", "before", "peers"]
"""kind: is the machine as fast as its kind; before: as it was before; peers: as the others of this acceptance."""


@dataclass(kw_only=True)
class Expected:
    """The distribution of a part's time over machines of a kind, and how the measured time compares."""

    question: Question
    against: str
    """Where the expected time comes from, in words for a user."""
    seconds: float
    error: float
    """Standard deviation of the logarithm of another machine's time around `seconds`."""
    freedom: float = PREDICTED_FREEDOM
    machines: int = 0
    """Number of machines that measured it; 0 for public rates."""
    decides: bool = True
    """Whether it states what such a machine should take; False for earlier times of this machine, and for its peers."""
    p: float = 1.0
    """Probability that a machine of the kind is as slow as measured, adjusted for all tests of the same question."""
    tests: int = 1
    """Number of tests of the same question."""

    def reach(self, probability: float) -> float:
        """Return how far above the expected time the given share of machines stays, as a logarithm."""
        return float(stdtrit(self.freedom, probability)) * self.error


class Known(NamedTuple):
    """What times are compared with.

    shipped: processes of the shipped sets. history: of earlier acceptances in the same store. peers: of all machines of
    this acceptance. predicted: called with a trial's identifier, a phase and the GPU; it returns how long that phase
    should take, or None if that is not predicted.
    """

    shipped: Sequence[Process]
    history: Sequence[Process]
    peers: Sequence[Process]
    predicted: Callable[[str, str, Device], PredictedStep | None]


def expected_times(process: Process, device: Device | None, known: Known) -> list[Expected]:
    """Return what the part that a process measured should take, by each source that says something.

    A source that decides says what such a machine should take; the others only show that it is slower than they.

    part              decides                                           does not decide
    of GPU or links   shipped sets of the GPU or its chip, else public  its own history, the others of this acceptance
    launches          hosts of the shipped sets                         its own history, the others of this acceptance
    of a CPU          its own history                                   the others of this acceptance
    """
    sources = _of_kind(process, device, known), _before(process, known), _beside(process, known)
    return [one for one in sources if one is not None]


def _of_kind(process: Process, device: Device | None, known: Known) -> Expected | None:
    """Return what machines of the kind take. Of a CPU nothing says so: there are too many kinds."""
    if process.judged.kind == "cpu":
        return None
    same = _same_part(process, known.shipped)
    if process.judged.kind == "host":  # launches depend on the host, whatever the GPU
        return _over_machines(process, same, "hosts of the shipped sets", "kind")
    if device is None:
        return None
    return _of_gpu(process, same, device) or _public(process, device, known)


def _of_gpu(process: Process, same: Sequence[Process], device: Device) -> Expected | None:
    """Return what machines with the same GPU took, or else, where the chip decides, with its chip."""
    named = [(_name(one.device_name), one) for one in same]
    if same_gpu := [one for name, one in named if name == device.name]:
        return _over_machines(process, same_gpu, f"the shipped sets of {device.name}", "kind")
    chip = CHIP.get(device.name, device.name)
    same_chip = [(name, one) for name, one in named if name and CHIP.get(name, name) == chip]
    if not same_chip or process.judged.part not in BY_CHIP:
        return None
    words = f"the shipped sets of {same_chip[0][0]}, the same chip"
    return _over_machines(process, [one for _, one in same_chip], words, "kind", more=SAME_CHIP_DEVIATION)


def _before(process: Process, known: Known) -> Expected | None:
    """Return what this machine took in earlier acceptances."""
    here = process.node, process.machine, process.device_name
    same = _same_part(process, known.history)
    mine = [one for one in same if (one.node, one.machine, one.device_name) == here]
    # Attempts of one machine: a GPU's differ as its processes do, a host's also from time to time.
    between = BETWEEN_TIMES if process.judged.unit == "host" else 0.0
    decides = process.judged.kind == "cpu"
    return _over_machines(
        process, mine, "its own history", "before", each="attempt_id", between=between, decides=decides
    )


def _beside(process: Process, known: Known) -> Expected | None:
    """Return what the other machines of this acceptance took."""
    here = process.node, process.machine
    alike = [one for one in known.peers if one.device_name == process.device_name and (one.node, one.machine) != here]
    # If all peers were disturbed, they count even so: a part that is slower than those stands out.
    others = _same_part(process, alike) or _same_part(process, alike, disturbed=True)
    return _over_machines(process, others, "the others of this acceptance", "peers", decides=False)


def _same_part(process: Process, others: Iterable[Process], *, disturbed: bool = False) -> list[Process]:
    """Return the processes that measured the same part of the same cell, undisturbed unless `disturbed`."""
    same = [one for one in others if one.cell == process.cell and one.judged.part == process.judged.part]
    return [one for one in same if disturbed or not one.slowed_by]


def _over_machines(
    process: Process,
    others: Sequence[Process],
    against: str,
    question: Question,
    *,
    each: str = "machine",
    between: float | None = None,
    more: float = 0.0,
    decides: bool = True,
) -> Expected | None:
    """Return the distribution over the machines of the others; over the attempts if `each` is attempt_id.

    between: standard deviation between machines, or attempts, beside that of processes; None: the prior of this kind of
    variation. more: a further standard deviation, of a machine that is not quite of the kind.
    """
    machines: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for one in others:
        machines[one.source, one.node, getattr(one, each)].append(math.log(one.seconds))
    if not machines:
        return None
    centres = [fmean(logs) for logs in machines.values()]
    count = len(centres)
    variation = widest(one.judged.kind for one in (process, *others))
    prior = math.hypot(BETWEEN_MACHINES[variation] if between is None else between, PRIORS[variation].scale)
    # A pooled variance, in which the prior counts as PRIOR_FREEDOM more machines.
    freedom = PRIOR_FREEDOM + count - 1
    sum_of_squares = count * pvariance(centres)
    deviation = math.sqrt((PRIOR_FREEDOM * prior**2 + sum_of_squares) / freedom)
    return Expected(
        question=question,
        against=against,
        seconds=math.exp(fmean(centres)),
        error=math.hypot(deviation * math.sqrt(1 + 1 / count), more),  # 1: one more machine; 1 / count: their mean
        freedom=freedom,
        machines=count,
        decides=decides,
    )


def _public(process: Process, device: Device, known: Known) -> Expected | None:
    """Return what a part should take by published rates, a datasheet or a predicted step; None without one. The
    interval is as wide as that of a predicted step."""
    rates, settings = rates_of(device), process.settings
    width, size, ranks = (int(settings[name] or 0) for name in ("d_model", "message_bytes", "world_size"))
    assert settings["precision"] == "bf16" or process.judged.part not in ("product", "copy"), "as the sweep accept says"
    if process.judged.part == "product":
        seconds, source = _product_time(width, rates)
    elif process.judged.part == "copy":
        copied = 2 * 2.0 * width**2  # two bytes of each element are read, and two written
        seconds, source = copied / rates.hardware.bandwidth, rates.hardware.sources["bytes"]
    elif process.judged.unit == "links":
        seconds = rates.collective(settings["collective"], float(size), ranks=ranks)  # type: ignore[arg-type]
        source = rates.source_of_links(ranks)
    else:
        return _predicted(process, device, rates, known)
    if not seconds:
        return None
    error = spread_for(device.name, rates.level()).deviation
    return Expected(question="kind", against=f"public rates: {source}", seconds=seconds, error=error)


def _product_time(width: int, rates: Rates) -> tuple[float, str]:
    """Return the seconds of a product of square matrices in bf16, and where they come from."""
    name = rates.hardware.device.name
    for product in public_products():
        is_same = (product.dtype, product.m, product.n, product.k) == ("bfloat16", width, width, width)
        if is_same and _name(product.device_name) == name:
            return product.seconds, f"published product of {name} (AIConfigurator)"
    return 2.0 * width**3 / rates.hardware.rate("bfloat16"), rates.hardware.sources["products"]


def _predicted(process: Process, device: Device, rates: Rates, known: Known) -> Expected | None:
    step = known.predicted(process.cell.trial_id, process.cell.phase, device)
    if step is None or not step.time.computing:
        return None
    busy = step.time.computing  # seconds of kernels alone, as the part's time is the device's
    shares = step.time.by(lambda one: one.source)
    source = "; ".join(sorted(name for name, share in shares.items() if share > LEAST_NAMED_SHARE * busy))
    words = "predicted" if rates.level() == "measured" else "public rates, predicted"
    return Expected(
        question="kind",
        against=f"{words}: {source}",
        seconds=step.spread.factor * busy,  # only predictions of steps were compared with measured ones
        error=step.spread.deviation,
    )


def _name(full_name: str) -> str | None:
    """Return the datasheet's name of a device, None for an unknown one."""
    device = find_device(full_name)
    return device.name if device else None
