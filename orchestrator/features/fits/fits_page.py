"""The answers as a table, the best line first, and as a page: the best in one sentence, and the table with bars."""

from collections.abc import Sequence

import pandas as pd

from lmsweep.analysis.tables.listing import Listing, Tone
from lmsweep.analysis.tables.render import answer_page
from lmsweep.orchestrator.features.fits.fit import Fit, FitsOutput
from lmsweep.orchestrator.planning.largest_fit import lasting_words
from lmsweep.orchestrator.planning.memory_budget import OTHERS_NEED
from lmsweep.trials.analytic.rates.intervals import peak_of_others
from lmsweep.trials.spec.quantities import gib

TONES: dict[str, Tone] = {"yes": "good", "no": "bad"}
MOST_SOURCES = 6
WIDTH = 100
"""Width of the longest bar, in pixels."""


def answered_lines(answer: FitsOutput) -> list[Fit]:
    """Return the lines of the methods that have an answer on some GPU."""
    answered = {one.method for one in answer.fits if one.fits is not None}
    return [one for one in answer.fits if one.method in answered]


def fits_listing(answer: FitsOutput) -> Listing:
    """Return one line for each GPU, number of GPUs and method. A method without an answer on any GPU is a note."""
    lines = answered_lines(answer)
    unknown = {one.reason: None for one in answer.fits if one not in lines and one.reason}
    columns = [
        "GPU",
        "GPUs",
        "method",
        "weights and state",
        "checkpointing",
        "fits",
        "batch",
        "peak",
        "tokens/s",
        "95 % interval",
        "by other trainers",
    ]
    columns += ["hours"] * any(one.hours is not None for one in lines)
    columns += ["dollars"] * any(one.dollars is not None for one in lines)
    columns.append("what would fit")
    known = [OTHERS_NEED.format(*peak_of_others(100))] if any(one.peak_bytes for one in lines) else []
    sources = dict.fromkeys(f"{one.device_name}: {one.source}" for one in lines if one.source)
    return Listing(
        title=f"{answer.model} with {answer.context:,} tokens of context, as predicted",
        frame=pd.DataFrame([[_cells(one)[name] for name in columns] for one in lines], columns=columns, dtype=object),
        keys=columns[:5],
        units={},
        tones=TONES,
        notes=[*_lasting(lines), *unknown, *answer.assumed, *known, *list(sources)[:MOST_SOURCES]],
    )


def _lasting(lines: Sequence[Fit]) -> list[str]:
    """Return what each largest batch means for many batches that differ."""
    found = []
    for one in lines:
        if words := lasting_words("batch", one.batch or 0, one.beyond):
            padding = f"; padding {one.padding:.0%}" if one.padding is not None else ""
            found.append(f"{one.device_name}, {one.method}: {words}{padding}")
    return found


def _cells(one: Fit) -> dict[str, str]:
    between, missing = one.tokens_per_second_between, one.missing_bytes
    others = one.tokens_per_second_of_others_between
    lacks = f"no, {gib(missing)} too much" if missing else "no, by gaps between blocks"
    unknown = one.reason or ""
    return {
        "GPU": one.device_name,
        "GPUs": str(one.gpus),
        "method": one.method,
        "weights and state": one.recipe,
        "checkpointing": one.checkpointing,
        "fits": "?" if one.fits is None else "yes" if one.fits else lacks,
        "batch": str(one.batch or "-"),
        "peak": gib(one.peak_bytes) if one.peak_bytes else "?",
        "tokens/s": f"{one.tokens_per_second:,.0f}" if one.tokens_per_second else "-",
        "95 % interval": f"{between[0]:,.0f} to {between[1]:,.0f}" if between else "-",
        "by other trainers": f"{one.tokens_per_second_of_others:,.0f} ({others[0]:,.0f} to {others[1]:,.0f})"
        if others and one.tokens_per_second_of_others
        else "-",
        "hours": f"{one.hours:,.3g}" if one.hours is not None else "-",
        "dollars": f"{one.dollars:,.0f}" if one.dollars is not None else "-",
        "what would fit": one.remedy or unknown,
    }


def fits_page(answer: FitsOutput) -> str:
    """Return the answer as HTML."""
    listing = fits_listing(answer)
    lines = answered_lines(answer)
    best = _headline(lines)
    most = max((one.tokens_per_second_between[1] for one in lines if one.tokens_per_second_between), default=1.0)
    bars = [[WIDTH * rate / most for rate in _rates(one)] for one in lines]
    return answer_page(
        __package__,
        "fits.html",
        title=listing.title,
        headline=best,
        lines=list(zip(listing.frame.to_dict("records"), bars, strict=True)),
        spent=[name for name in ("hours", "dollars") if name in listing.frame],
        notes=listing.notes,
        width=WIDTH,
    )


def _headline(lines: Sequence[Fit]) -> str:
    best = next((one for one in lines if one.fits is not None), None)
    if best is None:
        return "Nothing is predicted; the reasons are below."
    name = f"{best.gpus} × {best.device_name}" if best.gpus > 1 else best.device_name
    if not best.fits:
        return f"No GPU asked about holds it; nearest is {best.method} on {name}."
    words = f"{name} by {best.method}, {best.batch} sequence{'s' * (best.batch != 1)} a GPU"
    if not _rates(best):
        return f"{words}."
    rate, low, high = _rates(best)
    words += f": {rate:,.0f} tokens a second ({low:,.0f} to {high:,.0f})"
    hours = f", {best.hours:,.3g} hours" if best.hours is not None else ""
    return words + hours + (f", ${best.dollars:,.0f}." if best.dollars is not None else ".")


def _rates(one: Fit) -> list[float]:
    between = one.tokens_per_second_between
    return [one.tokens_per_second, *between] if one.tokens_per_second and between else []
