"""The orders that rank 0 can give to the data-parallel steps of all ranks (see `coordinator`)."""

from dataclasses import dataclass

from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep, RankMemory, WeightsDigest
from lmsweep.trials.distributed.parallel.gradient_check import gradient_error
from lmsweep.trials.distributed.parallel.local_step import Misfit, local_step, rehearse_local_step
from lmsweep.trials.distributed.ranks.watched_rank import WatchedRank
from lmsweep.trials.distributed.traffic.comm_trace import Communication
from lmsweep.trials.distributed.traffic.step_report import StepReport, report_step
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.timing.clock import Iteration


@dataclass(frozen=True, kw_only=True)
class TimeAllReduce:
    """Time an isolated all-reduce of all gradients; answer: seconds."""

    def carry_out(self, member: DataParallelStep) -> float:
        return member.time_all_reduce()


@dataclass(frozen=True, kw_only=True)
class Build:
    """Build the model, the batch and the synchronizer; answer: the number of elements of all gradients."""

    def carry_out(self, member: DataParallelStep) -> int:
        member.build()
        return member.gradient_count()


@dataclass(frozen=True, kw_only=True)
class CheckGradients:
    """Compare synchronized gradients with those of a single process; answer: largest relative error, if known."""

    def carry_out(self, member: DataParallelStep) -> float | None:
        return gradient_error(member)


@dataclass(frozen=True, kw_only=True)
class CheckWeights:
    """Compare the weights that the user's code leaves with those of one process; answer: largest relative error."""

    def carry_out(self, member: DataParallelStep) -> float:
        return member.weights_error()


@dataclass(frozen=True, kw_only=True)
class TimeStep:
    """Time one training step; answer: its phases in seconds."""

    def carry_out(self, member: DataParallelStep) -> Iteration:
        return member.step(synchronized=True)


@dataclass(frozen=True, kw_only=True)
class RehearseLocalStep:
    """Try a step in which each rank trains on its own, if it must not fail; answer: why it does not fit."""

    def carry_out(self, member: DataParallelStep) -> Misfit | None:
        return rehearse_local_step(member)


@dataclass(frozen=True, kw_only=True)
class TimeLocalStep:
    """Time a step in which each rank trains on its own; answer: its phases in seconds, or that it does not fit."""

    def carry_out(self, member: DataParallelStep) -> Iteration | Misfit:
        return local_step(member)


@dataclass(frozen=True, kw_only=True)
class Rebuild:
    """Build everything again, after a step has not fit in memory."""

    def carry_out(self, member: DataParallelStep) -> None:
        member.rebuild()


@dataclass(frozen=True, kw_only=True)
class DigestWeights:
    """Answer: a digest of the weights, equal in all ranks if their weights are."""

    def carry_out(self, member: DataParallelStep) -> WeightsDigest:
        return member.weights_digest()


@dataclass(frozen=True, kw_only=True)
class StartWatch:
    """Start sampling the telemetry of each rank's GPU."""

    def carry_out(self, member: WatchedRank) -> None:
        member.watch()


@dataclass(frozen=True, kw_only=True)
class EndWatch:
    """Stop sampling telemetry; answer: the flags that it raises for the interval that was measured.

    The interval is given relative to now: hosts have different clocks, and a message takes less time than there is
    between two samples.
    """

    since_ago: float
    """Seconds from the start of the interval to now."""
    until_ago: float
    """Seconds from the end of the interval to now."""

    def carry_out(self, member: WatchedRank) -> tuple[Flag, ...]:
        return member.doubts(self.since_ago, self.until_ago)


@dataclass(frozen=True, kw_only=True)
class ResetPeakMemory:
    """Reset the peak of allocated memory."""

    def carry_out(self, member: DataParallelStep) -> None:
        member.reset_peak_memory()


@dataclass(frozen=True, kw_only=True)
class ReadMemory:
    """Answer: peak memory since `ResetPeakMemory`, and the optimizer's state."""

    def carry_out(self, member: DataParallelStep) -> RankMemory:
        return member.memory()


@dataclass(frozen=True, kw_only=True)
class TraceStep:
    """Trace one synchronized step; answer: what it communicates."""

    def carry_out(self, member: DataParallelStep) -> Communication:
        return member.trace()


@dataclass(frozen=True, kw_only=True)
class ReportStep:
    """Run one synchronized step; answer: its collectives, and what it held in memory."""

    def carry_out(self, member: DataParallelStep) -> StepReport:
        return report_step(member)
