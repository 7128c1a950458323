"""The answers as a table, the best line first, and as a page: the best of each method in words, the table with bars."""

from collections.abc import Mapping, Sequence

import pandas as pd

from lmsweep.analysis.tables.listing import Listing, Tone
from lmsweep.analysis.tables.render import answer_page
from lmsweep.orchestrator.features.fits.fit import Fit, FitsOutput, Interval, plans
from lmsweep.orchestrator.planning.largest_fit import lasting_words
from lmsweep.orchestrator.planning.memory_budget import OTHERS_NEED
from lmsweep.trials.analytic.rates.intervals import peak_of_others
from lmsweep.trials.spec.quantities import gib

RATE, OTHERS = "tokens/s", "others' tokens/s"
"""Columns: as lmsweep's own loop trains, and as other trainers do, or the one named."""
TONES: dict[str, Tone] = {"yes": "good", "no": "bad"}
WIDTH = 100
"""Width of the longest bar, in pixels."""


def answered_lines(answer: FitsOutput) -> list[Fit]:
    """Return the lines of the methods that have an answer on some GPU."""
    answered = {one.method for one in answer.fits if one.fits is not None}
    return [one for one in answer.fits if one.method in answered]


def fits_listing(answer: FitsOutput) -> Listing:
    """Return one line for each GPU, number of GPUs and method. A method without an answer on any GPU is a note."""
    lines = answered_lines(answer)
    unknown = {one.reason: None for one in answer.fits if one not in lines and one.reason and not one.plan}
    columns = ["GPU", *["GPUs"] * any(one.gpus > 1 for one in lines), "method", "fits", "batch", "peak", RATE, OTHERS]
    columns += ["hours"] * any(one.hours is not None for one in lines)
    columns += ["dollars"] * any(one.dollars is not None for one in lines)
    columns.append("checkpointing")
    columns += ["what would fit"] * any(one.remedy or one.reason for one in lines)
    of_others = [OTHERS_NEED.format(peak_of_others(100))] if any(one.peak_bytes for one in lines) else []  # in percent
    sources = dict.fromkeys(f"{one.device_name}: {one.source}" for one in lines if one.source)
    return Listing(
        title=f"{answer.model} with {answer.context:,} tokens of context, as predicted{_precisions(lines)}",
        frame=pd.DataFrame(
            [[_cells(one)[name] for name in columns] for one in lines],
            columns=[_others_heading(answer) if name == OTHERS else name for name in columns],
            dtype=object,
        ),
        keys=columns[: columns.index("fits")],
        units={},
        tones=TONES,
        notes=[
            *_lasting(lines),
            *_spending(answer),
            *unpriced(answer),
            _columns(answer),
            *unknown,
            *plans(answer.fits),
            *answer.assumed,
            *of_others,
            *sources,
        ],
    )


def _columns(answer: FitsOutput) -> str:
    """Return whose training each column is about: hours and dollars are of the trainer named, else of lmsweep's own."""
    if answer.trainer:
        return (
            "In brackets: 95 % intervals. tokens/s: of lmsweep's own training loop; "
            f"{_others_heading(answer)}, hours and dollars: of {answer.trainer}'s public steps."
        )
    return (
        "In brackets: 95 % intervals. tokens/s, hours and dollars: of lmsweep's own training loop; "
        f"{OTHERS}: of PyTorch's public trainers, whose interval is at least as wide, as they differ."
    )


def _others_heading(answer: FitsOutput) -> str:
    return f"{answer.trainer}'s tokens/s" if answer.trainer else OTHERS


def _precisions(lines: Sequence[Fit]) -> str:
    """Return the types of weights and state of each method, for the title."""
    recipes = {one.recipe: None for one in lines}
    ways = {recipe: [*dict.fromkeys(one.method for one in lines if one.recipe == recipe)] for recipe in recipes}
    words = [f"\n{' and '.join(methods)}: weights and AdamW's state in {recipe}" for recipe, methods in ways.items()]
    return "".join(words)


def _spending(answer: FitsOutput) -> list[str]:
    """Return what hours and dollars are of: so many tokens, and the price of each GPU."""
    if not answer.tokens:
        return []
    hourly = {one.device_name: one.dollars / one.hours / one.gpus for one in answer.fits if one.dollars and one.hours}
    prices = [f"${price:.2f} an hour of one {name}" for name, price in hourly.items()]
    return ["; ".join([f"hours and dollars: of training on {answer.tokens:,.0f} tokens", *prices])]


def unpriced(answer: FitsOutput) -> list[str]:
    """Return for which GPUs there are no dollars, where others have a price."""
    if all(one.dollars is None for one in answer.fits):
        return []
    names = dict.fromkeys(one.device_name for one in answer.fits if one.hours is not None and one.dollars is None)
    return [f"no price for {name}: --price '{name}=DOLLARS' an hour" for name in names]


def _lasting(lines: Sequence[Fit]) -> list[str]:
    """Return how often each largest batch, and the next larger one, fit many batches that differ."""
    found = []
    for one in lines:
        if words := lasting_words("batch", one.batch or 0, one.beyond):
            padding = f"; padding {one.padding:.0%}" if one.padding is not None else ""
            found.append(f"{one.device_name}, {one.method}: {words}{padding}")
    return found


def _cells(one: Fit) -> dict[str, str]:
    unknown = "as `lmsweep plan` says, below" if one.plan else one.reason or ""
    return {
        "GPU": one.device_name,
        "GPUs": str(one.gpus),
        "method": one.method,
        "weights and state": one.recipe,
        "checkpointing": one.checkpointing,
        "fits": _fits_words(one),
        "batch": str(one.batch or "-"),
        "peak": gib(one.peak_bytes) if one.peak_bytes else "?",
        RATE: _amount(one.tokens_per_second, one.tokens_per_second_between, ",.0f"),
        OTHERS: _amount(one.tokens_per_second_of_others, one.tokens_per_second_of_others_between, ",.0f"),
        "hours": _amount(one.hours, one.hours_between, ",.3g"),
        "dollars": _amount(one.dollars, one.dollars_between, _cents(one.dollars)),
        "what would fit": one.remedy or unknown,
    }


def _fits_words(one: Fit) -> str:
    if one.fits is None:
        return "?"
    if not one.fits:
        return f"no, {gib(one.missing_bytes)} too much" if one.missing_bytes else "no, by gaps between blocks"
    if one.fits_of_others or one.peak_bytes_of_others is None:
        return "yes"
    return "yes (others not)" if one.fits_of_others is False else "yes (others perhaps not)"


def _cents(dollars: float | None) -> str:
    """Return the form of an amount: with cents below ten dollars."""
    return ",.2f" if (dollars or 0.0) < 10 else ",.0f"


def _amount(middle: float | None, between: tuple[float, float] | None, form: str) -> str:
    """Return a number and its 95 % interval."""
    if middle is None or between is None:
        return "-" if middle is None else f"{middle:{form}}"
    return f"{middle:{form}} ({between[0]:{form}} to {between[1]:{form}})"


def fits_page(answer: FitsOutput) -> str:
    """Return the answer as HTML."""
    listing = fits_listing(answer)
    lines = answered_lines(answer)
    most = max((one.tokens_per_second_between[1] for one in lines if one.tokens_per_second_between), default=1.0)
    bars = [[WIDTH * rate / most for rate in _rates(one)] for one in lines]
    return answer_page(
        __package__,
        "fits.html",
        title=listing.title.partition("\n")[0],
        headlines=_headlines(answer, lines),
        lines=list(zip(map(_cells, lines), bars, strict=True)),
        spent=[name for name in ("hours", "dollars") if name in listing.frame],
        notes=listing.notes,
        others=_others_heading(answer),
        width=WIDTH,
    )


def _headlines(answer: FitsOutput, lines: Sequence[Fit]) -> list[str]:
    """Return one headline for each method, as methods train different weights."""
    methods = dict.fromkeys(one.method for one in lines if one.fits is not None)
    found = [_headline(name, [one for one in lines if one.method == name], answer.trainer) for name in methods]
    return found or ["Nothing is predicted; the reasons are below."]


def _headline(method: str, lines: Sequence[Fit], trainer: str | None) -> str:
    """Return the cheapest and the fastest line of a method, and which others may be so: their intervals overlap."""
    fitting = [one for one in lines if one.fits]  # sorted by rank, as lines are
    if not fitting:
        return _none_fits(method, lines)
    rates = {one: rate for one in fitting if (rate := one.rate(trainer))}
    if not rates or len(fitting) == 1:
        return f"By {method}: {_said(fitting[0], trainer)}."
    spent = {one: dollars for one in fitting if (dollars := one.spent())}
    fastest = max(rates, key=lambda one: rates[one].middle)
    faster = _reach(_overlapping(fastest, rates))
    if not spent:
        return f"By {method}, fastest as predicted: {_said(fastest, trainer)}; {faster}."
    cheapest = min(spent, key=lambda one: spent[one].middle)
    cheaper = _reach(_overlapping(cheapest, spent)) if len(spent) > 1 else "no other has a price"
    if fastest == cheapest:
        also = "It is the fastest as predicted, too"
    else:
        also = f"Fastest as predicted: {_said(fastest, trainer)}"
    return f"By {method}, cheapest as predicted: {_said(cheapest, trainer)}; {cheaper}. {also}; {faster}."


def _none_fits(method: str, lines: Sequence[Fit]) -> str:
    nearest = next(one for one in lines if one.fits is False)  # they are sorted by rank
    unknown = ", ".join(_named(one) for one in lines if one.fits is None)
    held = f"By {method}, no GPU asked about holds it; nearest is {_named(nearest)}."
    return f"{held} Not predicted, with a reason below: {unknown}." if unknown else held


def _overlapping(best: Fit, intervals: Mapping[Fit, Interval]) -> list[Fit]:
    """Return the other lines whose intervals overlap with that of the best."""
    its = intervals[best]
    return [one for one, other in intervals.items() if one != best and its.low < other.high and other.low < its.high]


def _reach(others: Sequence[Fit]) -> str:
    if not others:
        return "no other's interval reaches it"
    count = len(others)
    said = "the interval of 1 other reaches it" if count == 1 else f"the intervals of {count} others reach it"
    return f"{said}: {', '.join(map(_named, others))}"


def _named(one: Fit) -> str:
    return f"{one.gpus} × {one.device_name}" if one.gpus > 1 else one.device_name


def _said(one: Fit, trainer: str | None) -> str:
    """Return a line as words: the GPU, the batch, and what is known of its speed, hours and dollars."""
    words = f"{_named(one)}, {one.batch} sequence{'s' * (one.batch != 1)} a GPU"
    if not (rate := one.rate(trainer)):
        return words
    words += f": {rate.middle:,.0f} tokens a second ({rate.low:,.0f} to {rate.high:,.0f})"
    words += f" as {trainer} trains" if trainer else ""
    words += f", {one.hours:,.3g} hours" if one.hours is not None else ""
    spent = _amount(one.dollars, one.dollars_between, _cents(one.dollars))
    return words + (f", ${spent}" if one.dollars is not None else "")


def _rates(one: Fit) -> list[float]:
    between = one.tokens_per_second_between
    return [one.tokens_per_second, *between] if one.tokens_per_second and between else []
