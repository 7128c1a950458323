"""The scores that the mask of packed documents leaves."""

from lmsweep.trials.analytic.flop_conventions import FlopConvention, share_of_scores
from lmsweep.trials.lengths.drawing import document_lengths
from lmsweep.trials.spec.config import TrialConfig


def share_of_packed_scores(
    convention: FlopConvention, *, context_length: int, document_length: int, causal: bool, window: int | None = None
) -> float:
    """Return the share of all context_length² scores that is counted: what counts in each document's square."""
    counted = sum(
        length**2 * share_of_scores(convention, causal=causal, window=min(window or length, length) / length)
        for length in document_lengths(context_length, document_length)
    )
    return float(counted / context_length**2)


def least_share_of_scores(config: TrialConfig) -> float:
    """Return the share of all scores that every implementation must compute: those that the mask leaves."""
    return share_of_packed_scores(
        "hardware",
        context_length=config.context_length,
        document_length=config.document_length or config.context_length,
        causal=config.causal,
        window=config.window,
    )
