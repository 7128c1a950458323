"""What a run found, in sentences: for each way of doing its job, the value that the verdicts call fastest."""

import pandas as pd

from lmsweep.analysis.comparison.compare import Comparison, compare, select_sides
from lmsweep.analysis.data.columns import NO_VALUE, in_order, labels
from lmsweep.analysis.data.process_variation import Known
from lmsweep.trials.results.roles import Role, fields_with
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.reference import short_name

MOST_COMPARED = 6
"""Comparisons that are made; each takes a fraction of a second."""


def findings(rows: pd.DataFrame, known: Known) -> list[str]:
    """Return a sentence for each way in which the results differ. rows: of `lmsweep.load(..., pooled=False)`.

    Each value is compared with the first in its natural order: fp32, eager, naive.
    """
    found, left = [], MOST_COMPARED
    for name in fields_with(Role.WAY, Role.PARTITION):
        first, *others = dict.fromkeys(labels(in_order(rows[[name]].drop_duplicates(), [name])[name]))
        left -= len(others)
        if not others or left < 0 or first == NO_VALUE:
            continue
        compared = {other: one for other in others if (one := _compared(rows, name, first, other, known))}
        if compared:
            found.append(_sentence(name, first, compared))
    return found


def _compared(rows: pd.DataFrame, name: str, first: str, other: str, known: Known) -> Comparison | None:
    try:
        sides = select_sides(rows, {name: first}, {name: other})
        found = compare(sides.baseline, sides.contrast, between=sides.between, variation=known)
    except RequestError:  # they have no cell in common
        return None
    return found if found.unit == "s" and found.frame["ratio"].notna().any() else None


def _sentence(name: str, first: str, compared: dict[str, Comparison]) -> str:
    frames = {other: one.frame[one.frame["ratio"].notna()] for other, one in compared.items()}
    counts = {other: frame["verdict"].value_counts().to_dict() for other, frame in frames.items()}
    best = min(frames, key=lambda other: (-counts[other].get("faster", 0), frames[other]["ratio"].median()))
    frame, verdicts, cells = frames[best], counts[best], len(frames[best])
    base, other = short_name(first), short_name(best)
    for verdict, ratios in (("faster", 1 / frame["ratio"] - 1), ("slower", frame["ratio"] - 1)):
        if verdicts.get(verdict, 0) > cells / 2:
            ends = dict.fromkeys(f"{100 * one:.0f}" for one in ratios[frame["verdict"] == verdict].agg(["min", "max"]))
            where = f"in {verdicts[verdict]} of {cells} cells" if cells > 1 else "in its cell"
            return f"{name}: {other} is {' to '.join(ends)} % {verdict} than {base} {where}"
    if verdicts.get("same", 0) > cells / 2:
        return f"{name}: no difference that counts between {base} and {other} in {verdicts['same']} of {cells} cells"
    words = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    return f"{name}: these samples cannot tell {other} from {base} ({words})"
