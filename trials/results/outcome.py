"""The status words of a workload, and the flags that question a measurement."""

import re
from collections.abc import Mapping
from enum import StrEnum

_SAYS_IT_FIRST = re.compile(r"[^\s:]+:\d+: |its process (was ended|closed)")


class Status(StrEnum):
    OK = "ok"
    """It ran to its end."""
    OOM = "oom"
    """It asked for more memory than the device, or the host, has."""
    PREDICTED_OOM = "predicted_oom"
    """It was not run, because its predicted memory does not fit."""
    TIMEOUT = "timeout"
    """It was ended after `timeout_seconds`."""
    UNSUPPORTED = "unsupported"
    """The device, the library or the combination cannot do what it asks for."""
    ERROR = "error"
    """It raised an exception."""
    LOST = "lost"
    """Its process ended without a result: killed, exited or crashed."""

    @property
    def is_final(self) -> bool:
        """Whether a retry in the same environment would end the same way. Workloads with another status are retried."""
        return self in (Status.OK, Status.OOM, Status.PREDICTED_OOM, Status.UNSUPPORTED)


class Flag(StrEnum):
    """A reason to question a measurement, with advice."""

    advice: str
    """What the flag means, in a first sentence that lists of flags print, and what to do about it."""

    def __new__(cls, value: str, advice: str) -> "Flag":
        flag = str.__new__(cls, value)
        flag._value_ = value
        flag.advice = advice
        return flag

    HOST_BOUND = (
        "host_bound",
        "The CPU launched work too slowly for the GPU. This time measures both. Compile the model, or increase the "
        "batch size or the context length.",
    )
    UNSTEADY = (
        "unsteady",
        "Iterations that do the same work differed over time. Timing: they drifted or ran at two speeds, or the "
        "warm-up reached its limit before two windows of five agreed (auto) or all had run (max_seconds). Look at "
        "samples and warmup_samples, increase warmup_steps or max_seconds. Memory: the largest sample is safe.",
    )
    NOT_CONVERGED = (
        "not_converged",
        "There are too few iterations. They reached their limit before the interval of the median was narrow enough "
        "(auto) or before all of them had run (max_seconds), or they are so correlated that they are worth fewer than "
        "three independent ones. Quiet the machine, or increase measure_steps or max_seconds.",
    )
    THROTTLED = (
        "throttled",
        "The GPU lowered its clocks because of heat or its power supply. Check its cooling and measure again.",
    )
    POWER_CAPPED = (
        "power_capped",
        "The GPU reached its power limit and lowered its clocks. Compare only with results under the same limit.",
    )
    SHARED_GPU = (
        "shared_gpu",
        "Another process was on this GPU. It may have taken memory and time. End it: nvidia-smi names it.",
    )
    BUSY_HOST = (
        "busy_host",
        "Other programs took CPU time, so times may be far too long. They are other processes (top shows them; another "
        "lmsweep run counts), or other guests of the same machine. Quiet the machine and measure again.",
    )
    RECOMPILED = (
        "recompiled",
        "Some samples include time of the compiler. TORCH_LOGS=recompiles with `lmsweep trial` shows what changed.",
    )
    OUTLIERS = (
        "outliers",
        "Some samples lie far from the others. They are more than three interquartile ranges beyond the quartiles, and "
        "are kept. Use the median, and check what else the machine was doing.",
    )
    PHYSICS_VIOLATION = (
        "physics_violation",
        "This time would need more than the GPU's peak. The time or the datasheet is wrong: report it.",
    )
    NOT_RESOLVED = (
        "not_resolved",
        "This difference cannot be distinguished from noise. Read it as `about 0`, or increase measure_steps.",
    )
    UNATTRIBUTED = (
        "unattributed",
        "More than 1 % of the profiled time is of no known range. The trace beside the result shows what launched it.",
    )
    COLD_CACHE = (
        "cold_cache",
        "The compiler's cache did not contain this graph. Its compile time is that of a first run on this machine.",
    )
    NOT_FINITE = (
        "not_finite",
        "The loss of the first iteration is infinite or NaN. The time may differ from that of useful numbers: NaN "
        "needs less power, and code may branch on it. Look at the initialisation, the mask and the precision.",
    )
    NO_GRADIENT = (
        "no_gradient",
        "Some trained weights get no gradient in backward. The step trains less than it seems. Under "
        "checkpoint(use_reentrant=True) an input that requires no gradient, as behind a frozen embedding, cuts them "
        "off: write use_reentrant=False. A branch that forward does not use, or an expert without tokens: give it a "
        "part in the loss, or requires_grad_(False). `lmsweep check` names the weights of your model.",
    )
    NO_UPDATE = (
        "no_update",
        "The optimizer left weights as they were. In fp16 the gradient scaler skips updates whose gradients are "
        "infinite: increase warmup_steps until the scale has settled, or use bf16; if all are skipped, look for the "
        "layer that overflows. Otherwise the optimizer was not given these weights, or ignores them.",
    )
    DISAGREES = (
        "disagrees",
        "Your own code computes something else than the reference. They differ by more than the precision explains "
        "(rows of phase error, and gradients.relative_error of ddp). Attention: check the mask, the scale 1 / sqrt(d) "
        'and the gradients. In fp32, tl.dot of Triton needs input_precision="ieee", or the trial precision: tf32. '
        "Data-parallel: check that gradients are averaged, that all of them are, and that every rank gets all updated "
        "weights.",
    )
    OTHER_TYPE = (
        "other_type",
        "Your attention returns another type than that of its queries. Return output.to(q.dtype): fewer bytes move.",
    )


def those_that_hold(found: Mapping[Flag, object]) -> tuple[Flag, ...]:
    return tuple(flag for flag, holds in found.items() if holds)


LONGEST_ERROR = 8000
"""Bytes of an error or a reason in a row."""
LONGEST_LINE = 200
"""Characters of an error in a line of the terminal or of a table."""


def shortened(text: str) -> str:
    """Return the text in at most LONGEST_ERROR bytes of UTF-8: if it is longer, without its middle."""
    content = text.encode(errors="backslashreplace")  # the user's code may say half a surrogate pair: no UTF-8 has it
    if len(content) <= LONGEST_ERROR:
        return content.decode()
    gap = b"\n[...]\n"
    head = LONGEST_ERROR // 5  # most of the rest: a traceback ends with the error
    tail = LONGEST_ERROR - head - len(gap)
    return (content[:head] + gap + content[-tail:]).decode(errors="ignore")


def short_line(line: str) -> str:
    """Return the line in at most LONGEST_LINE characters. Its end stays, because advice is there."""
    gap = " [...] "
    head = LONGEST_LINE * 2 // 3
    return line if len(line) <= LONGEST_LINE else f"{line[:head]}{gap}{line[head + len(gap) - LONGEST_LINE :]}"


def error_line(error: str) -> str:
    """Return the line that says what went wrong: the first if it names a place, else the last; may be empty."""
    lines = error.strip().splitlines() or [""]
    return short_line(lines[0] if _SAYS_IT_FIRST.match(lines[0]) else lines[-1])
