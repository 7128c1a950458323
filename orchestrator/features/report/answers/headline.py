"""The headline of an answer, in words that rest on verdicts: faster, slower, no difference, or cannot tell."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.claim import BETTER, Claim, beside, count_words, words
from lmsweep.analysis.data.columns import label, labels, natural_ranks
from lmsweep.analysis.metrics.status import LEAST_BUSY_SHARE
from lmsweep.orchestrator.features.report.answers.question import BASELINE, Option, option_name
from lmsweep.orchestrator.features.report.answers.verdicts import OPTION, Answer, cells_of_pair
from lmsweep.trials.results.metrics import PADDING
from lmsweep.trials.spec.config import RequestError

MOST_PLACES = 4
"""If two options have at most as many cells, each has a line below the headline."""


class Lead(NamedTuple):
    """The option that the headline names: that with the largest certain gain, else the best in most conditions."""

    words: str
    claim: Claim
    details: Sequence[str] = ()
    place: str = ""
    """Where the claim holds, if not in all cells: ` at d_model 8192`."""


def headline_of(found: Answer) -> tuple[str, Sequence[str]]:
    """Return the headline, and sentences about what it leaves out."""
    if found.cells.empty:
        return found.refused
    names, lead = options_of(found), lead_of(found)
    details = [*lead.details]
    baseline, *others = (one for one in found.question.options if one.name in {found.baseline, *names})
    if baseline.name == BASELINE:
        plain = baseline.values.items()
        differing = {name: text for name, text in plain if any(one.values[name] != text for one in others)}
        details.append(f"Baseline: {option_name(differing)}.")
    details += _paddings([baseline, *others])
    measure = found.question.measure.name
    return f"{measure[:1].upper()}{measure[1:]}: {lead.words}", [*details, *_limits(lead)]


def _paddings(options: Sequence[Option]) -> list[str]:
    """Say how many tokens of each option are padding, where batches differ."""
    shares = {one.name: one.rows[(one.rows["phase"] + "." + one.rows["metric"]) == PADDING] for one in options}
    ends = {name: 100 * rows["median"].agg(["min", "max"]) for name, rows in shares.items() if len(rows)}
    said = [f"{name} {low:.2g} to {high:.2g} %" for name, (low, high) in ends.items()]
    return [f"Padding: {', '.join(said)}."] if said else []


def lines_of(found: Answer) -> list[str]:
    """Return the headline and, for two options in few conditions, a line for each of these."""
    headline, cells = headline_of(found)[0], found.cells
    if not 1 < len(cells) <= MOST_PLACES or len(names := options_of(found)) > 1:
        return [headline]
    each = [cells.iloc[[i]] for i in range(len(cells))]
    said = [words(found.claim(names[0], cell), "gain") for cell in each]
    places = [", ".join(f"{key} {label(cell[key].iloc[0])}" for key in found.keys) for cell in each]
    return [headline, *(map("  at {}: {}".format, places, said) if len({*said}) > 1 else ())]


def options_of(found: Answer) -> list[str]:
    """Return the names of the options that were measured beside the baseline."""
    return [option.name for option in found.question.options if option.name in {*found.cells[OPTION]}]


@lru_cache(maxsize=8)  # a page asks for it again and again
def lead_of(found: Answer) -> Lead:
    """Return what the headline says of an answer with cells."""
    first, *others = options_of(found)
    return _of_many(found, [first, *others]) if others else _of_two(found, first)


def _of_two(found: Answer, name: str) -> Lead:
    if start := _threshold(found, name):
        verb = "is faster" if found.timed else "needs less"
        said = f"{name} {verb} than {found.baseline} from {start.field} {start.least} on"
        return Lead(said, start.claim, place=start.place)
    claim = found.claim(name)
    decided = claim.verdict in ("better", "worse")
    return Lead(words(claim), claim, [_sentence(count_words(claim))] if decided else [])


def _of_many(found: Answer, names: Sequence[str]) -> Lead:
    claims = {name: found.claim(name) for name in names}
    ahead = {name: claim.ahead for name, claim in claims.items()} | {found.baseline: 1.0}
    wins = _wins(found)
    winner = max(ahead, key=lambda name: ahead[name])
    if winner == found.baseline:  # no gain is certain: the option that is best in most conditions is named
        winner = max(ahead, key=lambda name: (wins[name], ahead[name]))
    most, count = ("fastest" if found.timed else "smallest"), len(names) + 1
    second = max((name for name in ahead if name != winner), key=lambda name: ahead[name])
    rival = _between(found, second, winner) if claims.keys() >= {winner, second} else None
    if rival and rival.verdict == "worse":  # against the baseline wall time decides; between these two it cannot tell
        winner, second = second, winner
    if winner == found.baseline:
        lead = _of_two(found, second)
        return lead._replace(words=f"None of {count} is surely better than {winner}; next, {lead.words}", details=())
    claim = claims[winner]
    if start := _threshold(found, winner):
        said = f"{winner} is the {most} of {count} from {start.field} {start.least} on: {words(start.claim, 'gain')}"
        return Lead(f"{said} at {start.most}", start.claim, ["Below that, it is not faster."], start.place)
    if claim.verdict != "better":
        better = "faster" if found.timed else "smaller"
        said = f"None of {count} is surely {better} than {found.baseline}; {winner} comes first"
        return Lead(said, claim, [_sentence(count_words(claim))])
    surely = second == found.baseline or (rival is not None and rival.verdict in ("better", "worse"))
    place = f"is the {most} of {count}" if surely and not claim.is_hidden else f"leads {count}"
    measured = int(found.of(winner)["gain"].notna().sum())
    details = [f"It is first in {wins[winner]} of {measured} conditions."] if wins[winner] < measured else []
    details = details if surely else [f"{second} may be as good."]
    return Lead(f"{winner} {place}: {words(claim, 'gain')}", claim, details)


def _wins(found: Answer) -> Counter[str]:
    """Option -> the number of conditions in which it is the best."""
    wins: Counter[str] = Counter()
    known = found.cells[found.cells["gain"].notna()]
    for _, rows in known.groupby([labels(known[name]) for name in found.keys] or (lambda _: 0)):
        lead = np.log(rows["gain"].to_numpy(float)) * (1 if found.timed else -1)
        wins[str(rows[OPTION].iloc[int(lead.argmax())]) if lead.max() > 0 else found.baseline] += 1
    return wins


def _between(found: Answer, one: str, other: str) -> Claim | None:
    """The claim of `other` against `one`; None if the two cannot be compared."""
    options = {option.name: option for option in found.question.options}
    try:
        return found.claim(other, cells_of_pair(found.question, options[one], options[other]), against=one)
    except RequestError:
        return None


class _Start(NamedTuple):
    """The smallest value of a field from which an option is better, and its claim at the largest value."""

    field: str
    least: str
    most: str
    claim: Claim

    @property
    def place(self) -> str:
        return f" at {self.field} {self.most}"


def _threshold(found: Answer, option: str) -> _Start | None:
    """Return the smallest value of a field from which the option is always better, if below it the option is worse."""
    cells = found.of(option)
    better = cells["verdict"].isin(BETTER).to_numpy()
    for name in [*found.keys, *(["d_model"] if "model" in found.keys else [])]:
        if not better.any() or not pd.api.types.is_numeric_dtype(cells[name]) or cells[name].nunique() < 2:
            continue
        ranks = natural_ranks(cells, name)
        first = ranks[better].min()
        behind = (cells["gain"] < 1 if found.timed else cells["gain"] > 1).to_numpy()
        if better[ranks >= first].all() and (ranks < first).any() and behind[ranks < first].all():
            start, most = label(cells[name][ranks == first].iloc[0]), cells[name].max()
            claim = found.claim(option, cells[cells[name] == most])
            return _Start(name, start, label(most), claim)
    return None


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _limits(lead: Lead) -> list[str]:
    """What the headline leaves out: the clock, and a busy host."""
    claim, said = lead.claim, []
    if not np.isnan(claim.beside.mean) and not (claim.is_hidden or claim.is_opposed):
        said.append(f"By {claim.clock} time; by {beside(claim)}{lead.place}.")
    busy, count = claim.scope.busy, claim.scope.cells
    if busy > LEAST_BUSY_SHARE * count:
        said.append(f"The machine was busy in {busy} of {count} comparisons.")
    return said
