"""The status words of a workload, and the flags that question a measurement."""

from enum import StrEnum


class Status(StrEnum):
    """How a workload of a trial ended."""

    OK = "ok"
    OOM = "oom"
    PREDICTED_OOM = "predicted_oom"
    TIMEOUT = "timeout"
    UNSUPPORTED = "unsupported"
    ERROR = "error"
    LOST = "lost"

    @property
    def is_final(self) -> bool:
        """Whether a retry in the same environment would end the same way. Workloads with another status are retried."""
        return self in (Status.OK, Status.OOM, Status.PREDICTED_OOM, Status.UNSUPPORTED)


class Flag(StrEnum):
    """A doubt about a measurement, raised by the measurement itself, with advice."""

    advice: str
    """What the flag means, and what to do about it."""

    def __new__(cls, value: str, advice: str) -> "Flag":
        member = str.__new__(cls, value)
        member._value_ = value
        member.advice = advice
        return member

    HOST_BOUND = (
        "host_bound",
        "The CPU could not launch work fast enough: this time measures the host as much as the device. "
        "Compile the model, or raise the batch size or the context length.",
    )
    UNSTEADY = (
        "unsteady",
        "Timing: the measured iterations became slower or faster as they went, or the warm-up came to its "
        "limit before two windows of five iterations agreed (auto) or before it had as many as asked for "
        "(max_seconds): the median depends on how long was measured. Look at samples and warmup_samples, and "
        "give more warmup_steps or max_seconds. "
        "Memory: iterations that do the same work did not hold the same bytes; the largest sample is the safe one.",
    )
    NOT_CONVERGED = (
        "not_converged",
        "There are too few iterations: they came to their limit before the interval of the median was narrow "
        "enough (auto) or before there were as many as asked for (max_seconds), or they are worth fewer than "
        "three independent ones, so alike are neighbours. Quiet the machine, or give more measure_steps or "
        "max_seconds.",
    )
    THROTTLED = (
        "throttled",
        "The GPU lowered its clocks because of heat or of its power supply: this is the time of a slower chip. "
        "See to its cooling and measure again.",
    )
    POWER_CAPPED = (
        "power_capped",
        "The GPU was at its power limit and lowered its clocks to stay there, as it does in large matrix products. "
        "Compare only with results under the same limit.",
    )
    SHARED_GPU = (
        "shared_gpu",
        "Another process was on this GPU and may have taken memory and time. End it (nvidia-smi names it) and measure "
        "again.",
    )
    BUSY_HOST = (
        "busy_host",
        "Other processes, or other guests of the same machine, had CPU time that this trial needed: its times may be "
        "many times too long. Quiet the machine (top tells who it is; another lmsweep run counts) and measure again.",
    )
    RECOMPILED = (
        "recompiled",
        "torch.compile made another graph during the warm-up or the measured iterations: some samples hold the time "
        "of the compiler. TORCH_LOGS=recompiles with `lmsweep trial` tells what changed.",
    )
    OUTLIERS = (
        "outliers",
        "Some samples lie more than three interquartile ranges beyond the quartiles. They are kept: go by the median, "
        "and see what else the machine was doing.",
    )
    PHYSICS_VIOLATION = (
        "physics_violation",
        "This time would need more than the peak of the device's datasheet: the time or the datasheet's row is wrong. "
        "Do not use the number, and report it.",
    )
    NOT_RESOLVED = (
        "not_resolved",
        "The interval of this difference reaches 0 or below: it is too small to be told from the noise. Read it as "
        "`about 0`, or measure more pairs (measure_steps) on a quieter machine.",
    )
    UNATTRIBUTED = (
        "unattributed",
        "More than 1 % of the profiled time belongs to no range that is known, so the ranges' times are too small by "
        "as much. The trace beside the result shows what launched it.",
    )
    COLD_CACHE = (
        "cold_cache",
        "The compiler's cache did not hold this graph: its compile time is that of a first run on this machine.",
    )
