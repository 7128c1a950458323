"""The headline of an answer, in words that rest on verdicts: faster, slower, no difference, or cannot tell."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from lmsweep.analysis.comparison.cell_verdicts import HOST_LIMITED
from lmsweep.analysis.data.columns import label, labels, natural_ranks
from lmsweep.analysis.report.answers.question import BASELINE, option_name
from lmsweep.analysis.report.answers.verdicts import OPTION, Answer, Gain, against, cells_of_pair, mean_gain
from lmsweep.trials.results.metrics import is_device_time
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import RequestError

NOT_SAID = 0.05
"""Share of cells on a busy host that is not worth a sentence."""

BETTER, WORSE, UNDECIDED = ("faster", "less"), ("slower", "more"), ("ambiguous", HOST_LIMITED)


def overall(cells: pd.DataFrame) -> str:
    """Return better, worse, same, mixed or unknown: what the verdicts of an option's cells say together.

    It is better if no cell says that it is worse, some say that it is better, and the interval of the mean agrees.
    """
    counts = Counter(cells["verdict"])
    better, worse = (sum(counts[word] for word in words) for words in (BETTER, WORSE))
    gain = mean_gain(cells)
    if better and worse:
        return "mixed"
    if (better or worse) and (gain.low > 1 or gain.high < 1):
        return "better" if better else "worse"
    if better + worse > len(cells) / 2:
        return "better" if better and np.isnan(gain.low) else "worse" if worse and np.isnan(gain.low) else "mixed"
    return "same" if counts["same"] > len(cells) / 2 and not better + worse else "unknown"


def headline_of(found: Answer) -> tuple[str, Sequence[str]]:
    """Return the headline, and sentences about what it leaves out."""
    if found.cells.empty:
        return found.refused
    names = [option.name for option in found.question.options if option.name in {*found.cells[OPTION]}]
    cells = found.of(names[0])
    if len(names) > 1:
        said, details = _of_many(found, names)
    else:
        decided = overall(cells) in ("better", "worse")
        said, details = _of_two(found, names[0]), [_sentence(_count_words(cells))] if decided else []
    baseline, *others = (one for one in found.question.options if one.name in {found.baseline, *names})
    if baseline.name == BASELINE:
        plain = baseline.values.items()
        differing = {name: text for name, text in plain if any(one.values[name] != text for one in others)}
        details.append(f"Baseline: {option_name(differing)}.")
    measure = found.question.measure.name
    return f"{measure[:1].upper()}{measure[1:]}: {said}", [*details, *_limits(found)]


def short_headline(found: Answer) -> tuple[str, str]:
    """Return `10 % faster with bf16`, and better, worse or unsure: of the option that is surely furthest ahead."""
    if found.cells.empty:
        return "no cell in common", "unsure"
    names = list(dict.fromkeys(found.cells[OPTION]))
    best = max(names, key=lambda name: found.ahead(found.mean(name)))
    cells, place = found.of(best), ""
    if start := _threshold(found, cells):
        name = start.partition(" ")[0]
        cells, place = cells[cells[name] == cells[name].max()], f" at {name} {label(cells[name].max())}"
    word = overall(cells)
    if word == "better" or (word == "worse" and len(names) == 1):
        return f"{mean_gain(cells).words(timed=found.timed)[0]} with {best}{place}", word
    if word == "same" and len(names) == 1:
        return f"no difference above {100 * cells['least'].max():.2g} % with {best}", "unsure"
    if len(names) > 1:
        return f"nothing surely {'faster' if found.timed else 'smaller'} than {found.baseline}", "unsure"
    return f"cannot tell {best} from {found.baseline}", "unsure"


def _of_two(found: Answer, name: str) -> str:
    cells, baseline = found.of(name), found.baseline
    word, start = overall(cells), _threshold(found, cells)
    if start:
        return f"{name} {found.verb} {'faster' if found.timed else 'less'} than {baseline} from {start} on"
    if word in ("better", "worse"):
        return f"{name} {found.verb} {against(mean_gain(cells), baseline, timed=found.timed)}"
    if word == "same":
        return f"{name} and {baseline}: no difference above {100 * cells['least'].max():.2g} %"
    if word == "mixed":
        return f"{name} against {baseline}: {_count_words(cells)}"
    return f"{name} against {baseline}: cannot tell ({_count_words(cells)})"


def _of_many(found: Answer, names: Sequence[str]) -> tuple[str, list[str]]:
    """The winner: the option that is surely furthest ahead of the baseline, or in most conditions."""
    ahead = {name: found.ahead(found.mean(name)) for name in names} | {found.baseline: 1.0}
    wins = _wins(found)
    winner = max(ahead, key=lambda name: ahead[name])
    if winner == found.baseline:
        winner = max(ahead, key=lambda name: (wins[name], ahead[name]))
    most, count = ("fastest" if found.timed else "smallest"), len(names) + 1
    second = max((name for name in ahead if name != winner), key=lambda name: ahead[name])
    if winner == found.baseline:
        return f"None of {count} is surely better than {winner}; next, {_of_two(found, second)}", []
    cells = found.of(winner)
    word, start = overall(cells), _threshold(found, cells)
    if start:
        name = start.partition(" ")[0]
        last = cells[cells[name] == cells[name].max()]
        said = f"{against(mean_gain(last), found.baseline, timed=found.timed)} at {label(cells[name].max())}"
        return f"{winner} is the {most} of {count} from {start} on: {said}", ["Below that, it is not faster."]
    if word != "better":
        better = "faster" if found.timed else "smaller"
        said = f"None of {count} is surely {better} than {found.baseline}; {winner} comes first"
        return said, [_sentence(_count_words(cells))]
    surely = second == found.baseline or _between(found, second, winner) == "better"
    place = f"is the {most} of {count}" if surely else f"leads {count}"
    measured = int(cells["gain"].notna().sum())
    details = [f"It is first in {wins[winner]} of {measured} cells."] if wins[winner] < measured else []
    if not surely:
        details.append(f"{second} may be as good.")
    return f"{winner} {place}: {against(mean_gain(cells), found.baseline, timed=found.timed)}", details


def _wins(found: Answer) -> Counter[str]:
    """In how many conditions each option is the best."""
    wins: Counter[str] = Counter()
    known = found.cells[found.cells["gain"].notna()]
    for _, rows in known.groupby([labels(known[name]) for name in found.keys] or (lambda _: 0)):
        lead = np.log(rows["gain"].to_numpy(float)) * (1 if found.timed else -1)
        wins[str(rows[OPTION].iloc[int(lead.argmax())]) if lead.max() > 0 else found.baseline] += 1
    return wins


def _between(found: Answer, one: str, other: str) -> str:
    """What the verdicts say of the second option against the first."""
    options = {option.name: option for option in found.question.options}
    try:
        return overall(cells_of_pair(found.question, options[one], options[other]))
    except RequestError:
        return "unknown"


def _threshold(found: Answer, cells: pd.DataFrame) -> str:
    """Return `d_model 4096` if the option is better from there on, and behind below; empty otherwise."""
    better = cells["verdict"].isin(BETTER).to_numpy()
    for name in [*found.keys, *(["d_model"] if "model" in found.keys else [])]:
        if not better.any() or not pd.api.types.is_numeric_dtype(cells[name]) or cells[name].nunique() < 2:
            continue
        ranks = natural_ranks(cells, name)
        first = ranks[better].min()
        behind = (cells["gain"] < 1 if found.timed else cells["gain"] > 1).to_numpy()
        if better[ranks >= first].all() and (ranks < first).any() and behind[ranks < first].all():
            return f"{name} {label(cells[name][ranks == first].iloc[0])}"
    return ""


def _count_words(cells: pd.DataFrame) -> str:
    """Return `faster in 14 of 24 cells, undecided in 10`."""
    counts = Counter("undecided" if word in UNDECIDED else word for word in cells["verdict"])
    (first, count), *rest = counts.most_common()
    words = [f"{first} in {count} of {len(cells)} cell{'s'[: len(cells) > 1]}", *(f"{word} in {n}" for word, n in rest)]
    return ", ".join(words)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _limits(found: Answer) -> list[str]:
    """What the headline leaves out: the clock, and a busy host."""
    cells, said = found.cells, []
    if found.timed and found.question.measure.values is None:
        by_device = cells["value"].map(is_device_time).astype(bool) & cells["wall"].gt(0)
        if by_device.any():
            wall = float(np.exp(np.log(cells.loc[by_device, "wall"].astype(float)).mean()))
            amount, _ = Gain(wall, np.nan, np.nan).words(timed=True)
            said.append(f"By device time; by wall time {amount}.")
    busy = sum(Flag.BUSY_HOST in flags for flags in cells["flags"])
    if busy > NOT_SAID * len(cells):
        said.append(f"The host was busy in {busy} of {len(cells)} cells.")
    return said
