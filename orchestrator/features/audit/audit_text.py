"""What audit says: one claim in sentences, many as a table, both as a page."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from lmsweep.analysis.tables.listing import Listing, Tone
from lmsweep.analysis.tables.render import answer_page
from lmsweep.orchestrator.features.audit.verdict import Audited, AuditOutput
from lmsweep.trials.spec.quantities import count_of

TONES: dict[str, Tone] = {"possible": "good", "impossible": "bad", "contradicts itself": "bad", "slow": "unclear"}
MOST_EXPLANATIONS = 5
"""Maximum number of explanations that are printed for one claim."""


def said(audited: Sequence[Audited]) -> list[str | Listing]:
    """Return the parts of the answer: of one claim all, of several a table."""
    if len(audited) == 1:
        return [headline(audited[0]), *_details(audited[0])]
    return [listing(audited)]


def headline(one: Audited) -> str:
    return f"{one.verdict}: {one.why}"


def _details(one: Audited) -> list[str | Listing]:
    """Return the paragraphs below the headline: what was assumed and read, utilisation, prediction, explanations."""
    lines = [*([one.subject] if one.subject else []), *(text for text in one.varied if text not in one.why)]
    parts: list[str | Listing] = ["\n".join(lines)] if lines else []
    if one.read:
        parts.append("\n".join(["read from the log:", *(f"  {line}" for line in one.read)]))
    if one.peak:
        shares = [f"  {part.share:6.1%}  {part.words}" for part in one.utilisation]
        peak = f"peak {one.peak / 1e12:,.0f} TFLOP/s ({one.peak_source})"
        heading = f"MFU of {one.likelier or 'the first number'}, {peak}:"
        parts.append("\n".join([heading, *shares]))
    if known := _known(one):
        parts.append("\n".join(known))
    if one.explanations:
        lines = ["what would explain it, the likeliest first:"]
        for cause in one.explanations[:MOST_EXPLANATIONS]:
            lines += [f"  {cause.share:4.0%}  {cause.cause}: {cause.evidence}", f"        look at {cause.look}"]
        parts.append("\n".join(lines))
    return parts


def _known(one: Audited) -> list[str]:
    lines = []
    if one.bound:
        lines.append(f"bound          {one.bound:12,.0f} tokens/s: products at the peak, bytes at the bandwidth")
    if one.predicted and one.predicted_between and one.tuned_between:
        low, high = one.predicted_between
        lines.append(f"PyTorch        {one.predicted:12,.0f} tokens/s predicted, {low:,.0f} to {high:,.0f} in 95 %")
        lines.append(f"a tuned stack  {'':12} {one.tuned_between[0]:,.0f} to {one.tuned_between[1]:,.0f} tokens/s")
    if one.prediction_source:
        lines.append(f"rates: {one.prediction_source}" if one.predicted else f"no prediction: {one.prediction_source}")
    return lines


def listing(audited: Sequence[Audited]) -> Listing:
    """Return one line for each claim."""
    rows = [
        {
            "claim": one.name or f"line {number}",
            "verdict": one.verdict,
            "tokens/s": f"{_claimed(one):,.0f}" if one.rates else "-",
            "predicted": "{:,.0f} to {:,.0f}".format(*one.predicted_between) if one.predicted_between else "-",
            "bound": f"{one.bound:,.0f}" if one.bound else "-",
            "MFU": f"{one.utilisation[0].share:.1%}" if one.utilisation else "-",
            "likeliest cause": one.explanations[0].cause if one.explanations else ", ".join(one.missing) or "-",
        }
        for number, one in enumerate(audited, start=2)  # line 1 of a table names its columns
    ]  # fmt: skip
    counts = Counter(one.verdict for one in audited)
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return Listing(
        title=f"{count_of(len(audited), 'claim')}: {verdicts}",
        frame=pd.DataFrame(rows, dtype=object),
        keys=["claim"],
        units={},
        tones=TONES,
        notes=["tokens/s of all GPUs; predicted: 95 % interval, as PyTorch's trainers run it; MFU: dense peak, "
               "attention over all positions unless the claim says another count",
               "activation checkpointing that is not stated: none where that fits, else of each block"],
    )  # fmt: skip


def _claimed(one: Audited) -> float:
    """Return the rate that the verdict is about."""
    return one.rates[one.likelier] if one.likelier else next(iter(one.rates.values()))


def audit_page(answer: AuditOutput) -> str:
    """Return the answer as HTML."""
    details = [[part for part in _details(one) if isinstance(part, str)] for one in answer.claims]
    claims = [*zip(answer.claims, map(headline, answer.claims), details, map(_bar, answer.claims), strict=True)]
    return answer_page(__package__, "audit.html", title=listing(answer.claims).title, claims=claims, width=WIDTH)


WIDTH = 320
"""Pixels of a bar, whose right end is the bound, or the claim if that is larger."""


class Bar(NamedTuple):
    """Where the claim and the ends of the predicted interval are, in pixels from the left end."""

    claim: float
    low: float
    high: float


def _bar(one: Audited) -> Bar | None:
    """Return the bar of a claim; None without a prediction."""
    if not one.predicted_between or not one.bound or not one.rates:
        return None
    whole = max(one.bound, _claimed(one))
    low, high = (min(end / whole, 1.0) * WIDTH for end in one.predicted_between)
    return Bar(_claimed(one) * WIDTH / whole, low, high)
