"""The headline of an answer, in words that rest on verdicts: faster, slower, no difference, or cannot tell.

The cells of an answer compare an option with the baseline under one condition (the values of `keys`): `gain` is how
many times as fast the option is, or how many times as much memory or energy it needs; `verdict` is that of `compare`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.claim import BETTER, Claim, by_other_clock, count_words, words
from lmsweep.analysis.data.columns import label, labels, natural_ranks
from lmsweep.analysis.metrics.status import LEAST_BUSY_SHARE
from lmsweep.orchestrator.features.report.answers.question import BASELINE, Option, option_name
from lmsweep.orchestrator.features.report.answers.verdicts import OPTION, Answer, cells_of_pair
from lmsweep.trials.results.metrics import PADDING
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.statistics.median_interval import Floats

MOST_PLACES = 4
"""If two options have at most as many cells, each has a line below the headline."""


class _Ranking(NamedTuple):
    """The first two among the options and the baseline."""

    first: str
    second: str
    is_sure: bool
    """Whether the order of these two is sure."""


class Lead(NamedTuple):
    """The option that the headline names: the one with the largest certain gain, or, if none is certain, the best in
    most conditions."""

    words: str
    claim: Claim
    details: Sequence[str] = ()
    place: str = ""
    """Where the claim holds, if not in all cells: ` at d_model 8192`."""


def headline_of(answer: Answer) -> tuple[str, Sequence[str]]:
    """Return the headline, and sentences about what it leaves out."""
    if answer.cells.empty:
        return answer.refused
    names, lead = options_of(answer), lead_of(answer)
    details = [*lead.details]
    # The baseline is the first option of a question.
    baseline, *others = (one for one in answer.question.options if one.name in {answer.baseline, *names})
    if baseline.name == BASELINE:
        plain = baseline.values.items()
        differing = {name: text for name, text in plain if any(one.values[name] != text for one in others)}
        details.append(f"Baseline: {option_name(differing)}.")
    details += _paddings([baseline, *others])
    measure = answer.question.measure.name
    return f"{measure[:1].upper()}{measure[1:]}: {lead.words}", [*details, *_limits(lead)]


def _paddings(options: Sequence[Option]) -> list[str]:
    """Say how many tokens of each option are padding, where batches differ."""
    shares = {one.name: one.rows[(one.rows["phase"] + "." + one.rows["metric"]) == PADDING] for one in options}
    ends = {name: 100 * rows["median"].agg(["min", "max"]) for name, rows in shares.items() if len(rows)}
    said = [f"{name} {low:.2g} to {high:.2g} %" for name, (low, high) in ends.items()]
    return [f"Padding: {', '.join(said)}."] if said else []


def lines_of(answer: Answer) -> list[str]:
    """Return the headline and, for two options in few conditions, a line for each of these."""
    headline, cells, names = headline_of(answer)[0], answer.cells, options_of(answer)
    if len(names) > 1 or not 1 < len(cells) <= MOST_PLACES:
        return [headline]
    each = [cells.iloc[[i]] for i in range(len(cells))]
    said = [words(answer.claim(names[0], cell), "gain") for cell in each]
    if len(set(said)) == 1:
        return [headline]
    places = [", ".join(f"{key} {label(cell[key].iloc[0])}" for key in answer.keys) for cell in each]
    return [headline, *(f"  at {place}: {text}" for place, text in zip(places, said, strict=True))]


def options_of(answer: Answer) -> list[str]:
    """Return the names of the options that were measured beside the baseline."""
    return [option.name for option in answer.question.options if option.name in {*answer.cells[OPTION]}]


@lru_cache(maxsize=8)  # a page asks for it again and again
def lead_of(answer: Answer) -> Lead:
    """Return what the headline says of an answer with cells."""
    first, *others = options_of(answer)
    return _of_many(answer, [first, *others]) if others else _of_two(answer, first)


def _of_two(answer: Answer, name: str) -> Lead:
    if start := _threshold(answer, name):
        verb = "is faster" if answer.timed else "needs less"
        said = f"{name} {verb} than {answer.baseline} from {start.field} {start.least} on"
        return Lead(said, start.claim, place=start.place)
    claim = answer.claim(name)
    decided = claim.verdict in ("better", "worse")
    return Lead(words(claim), claim, [_sentence(count_words(claim))] if decided else [])


def _of_many(answer: Answer, names: Sequence[str]) -> Lead:
    """Return the lead among several options. names: of the options, without the baseline. Its words, with A the
    baseline, are the first of these whose condition holds:

    None of 3 is surely better than A. Next: B ...     A comes first
    B is the fastest of 3 from d_model 512 on: ...     B is better there, and worse below
    None of 3 is surely faster than A; B comes first   B is not surely better than A
    B is the fastest of 3: ...                         B is surely better than the second, too
    B leads 3: ...                                     otherwise
    """
    claims, wins, count = {name: answer.claim(name) for name in names}, _wins(answer), len(names) + 1
    ranking = _first_two(answer, claims, wins)
    winner = ranking.first
    if winner == answer.baseline:
        lead = _of_two(answer, ranking.second)
        return lead._replace(words=f"None of {count} is surely better than {winner}. Next: {lead.words}", details=())
    claim = claims[winner]
    most, better = ("fastest", "faster") if answer.timed else ("smallest", "smaller")
    if start := _threshold(answer, winner):
        said = f"{winner} is the {most} of {count} from {start.field} {start.least} on: {words(start.claim, 'gain')}"
        return Lead(f"{said} at {start.most}", start.claim, [f"Below that, it is not {better}."], start.place)
    if claim.verdict != "better":
        said = f"None of {count} is surely {better} than {answer.baseline}; {winner} comes first"
        return Lead(said, claim, [_sentence(count_words(claim))])
    place = f"is the {most} of {count}" if ranking.is_sure and not claim.is_hidden else f"leads {count}"
    measured = int(answer.of(winner)["gain"].notna().sum())
    details = []
    if not ranking.is_sure:
        details = [f"{ranking.second} may be as good."]
    elif wins[winner] < measured:
        details = [f"It is first in {wins[winner]} of {measured} conditions."]
    return Lead(f"{winner} {place}: {words(claim, 'gain')}", claim, details)


def _first_two(answer: Answer, claims: Mapping[str, Claim], wins: Counter[str]) -> _Ranking:
    """Rank the options and the baseline by the certain part of their gain over the baseline. If the first two are
    options, they are also compared directly."""
    # `ahead` is above 1 only if a gain is certain; the baseline is 1 times as good as itself.
    certain = {name: claim.ahead for name, claim in claims.items()} | {answer.baseline: 1.0}
    first = max(certain, key=lambda name: certain[name])
    if first == answer.baseline:  # no gain is certain: what is best in most conditions comes first, maybe the baseline
        first = max(certain, key=lambda name: (wins[name], certain[name]))
    second = max((name for name in certain if name != first), key=lambda name: certain[name])
    if answer.baseline in (first, second):
        return _Ranking(first, second, is_sure=True)  # the words of the other's claim say how sure it is
    direct = _between(answer, first, against=second)
    if direct and direct.verdict == "worse":
        # Against the baseline wall time decides. It cannot tell these two apart, but compared directly they differ.
        return _Ranking(second, first, is_sure=True)
    return _Ranking(first, second, is_sure=direct is not None and direct.verdict == "better")


def _wins(answer: Answer) -> Counter[str]:
    """Option -> the number of conditions in which it is the best."""
    wins: Counter[str] = Counter()
    known = answer.cells[answer.cells["gain"].notna()]
    one_group = [np.zeros(len(known))]  # where no field distinguishes conditions
    for _, rows in known.groupby([labels(known[name]) for name in answer.keys] or one_group):
        lead = _leads(answer, rows)
        best = str(rows[OPTION].iloc[int(lead.argmax())])
        wins[best if lead.max() > 0 else answer.baseline] += 1
    return wins


def _leads(answer: Answer, cells: pd.DataFrame) -> Floats:
    """Return by how much each cell is better than the baseline, as a logarithm; below 0 it is worse."""
    gains: Floats = np.log(cells["gain"].to_numpy(float))
    return gains if answer.timed else -gains


def _between(answer: Answer, name: str, *, against: str) -> Claim | None:
    """The claim of an option against another one; None if the two cannot be compared."""
    options = {option.name: option for option in answer.question.options}
    try:
        return answer.claim(name, cells_of_pair(answer.question, options[against], options[name]), against=against)
    except RequestError:
        return None


class _Start(NamedTuple):
    """Where an option begins to be better: the smallest such value of a field; and its claim at the largest value."""

    field: str
    least: str
    most: str
    claim: Claim

    @property
    def place(self) -> str:
        return f" at {self.field} {self.most}"


def _threshold(answer: Answer, option: str) -> _Start | None:
    """Return a value of a field such that the option is better everywhere there and above, and worse everywhere below;
    None if there is none."""
    cells = answer.of(option)
    better = cells["verdict"].isin(BETTER).to_numpy()
    # Models are no numbers, but their widths are.
    for name in [*answer.keys, *(["d_model"] if "model" in answer.keys else [])]:
        if not better.any() or not pd.api.types.is_numeric_dtype(cells[name]) or cells[name].nunique() < 2:
            continue
        ranks = natural_ranks(cells, name)
        start = ranks[better].min()
        is_below = ranks < start
        is_behind = _leads(answer, cells) < 0  # not where the gain is unknown
        if better[~is_below].all() and is_below.any() and is_behind[is_below].all():
            least, most = cells[name][ranks == start].iloc[0], cells[name].max()
            claim = answer.claim(option, cells[cells[name] == most])
            return _Start(name, label(least), label(most), claim)
    return None


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _limits(lead: Lead) -> list[str]:
    """What the headline leaves out: the clock, and a busy host."""
    claim, said = lead.claim, []
    if not np.isnan(claim.beside.mean) and not (claim.is_hidden or claim.is_opposed):
        said.append(f"By {claim.clock} time; by {by_other_clock(claim)}{lead.place}.")
    busy, count = claim.scope.busy, claim.scope.cells
    if busy > LEAST_BUSY_SHARE * count:
        said.append(f"The machine was busy in {busy} of {count} comparisons.")
    return said
