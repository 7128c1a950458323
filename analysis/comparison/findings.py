"""What a run found, in sentences: for each way of doing its job, the value that the verdicts call fastest."""

import pandas as pd

from lmsweep.analysis.comparison.compare import compare, select_sides
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
        compared = {other: one for other in others if (one := _compared(rows, name, first, other, known)) is not None}
        workloads = list(dict.fromkeys(word for one in compared.values() for word in one["workload"]))
        for word in workloads:
            of_workload = {other: one[one["workload"] == word] for other, one in compared.items()}
            of_workload = {other: one for other, one in of_workload.items() if len(one)}
            found.append(_sentence(f"{name}, {word}" if len(workloads) > 1 else name, first, of_workload))
    return found


def _compared(rows: pd.DataFrame, name: str, first: str, other: str, known: Known) -> pd.DataFrame | None:
    """The cells with a ratio and the `workload` of each."""
    try:
        sides = select_sides(rows, {name: first}, {name: other})
        found = compare(sides.baseline, sides.contrast, between=sides.between, variation=known)
    except RequestError:  # they have no cell in common
        return None
    keys = [one or other for one, other in zip(*found.results, strict=True)]
    cells = found.frame.assign(workload=[key.workload if key else "" for key in keys])
    cells = cells[cells["ratio"].notna()]
    return cells if found.unit == "s" and len(cells) else None


def _sentence(about: str, first: str, frames: dict[str, pd.DataFrame]) -> str:
    counts = {other: frame["verdict"].value_counts().to_dict() for other, frame in frames.items()}
    best = min(frames, key=lambda other: (-counts[other].get("faster", 0), frames[other]["ratio"].median()))
    frame, verdicts, cells = frames[best], counts[best], len(frames[best])
    base, other = short_name(first), short_name(best)
    for verdict in ("faster", "slower"):
        if verdicts.get(verdict, 0) > cells / 2:
            amount, half = _amount(1 / frame.loc[frame["verdict"] == verdict, "ratio"])
            where = f"in {verdicts[verdict]} of {cells} cells{half}" if cells > 1 else "in its cell"
            return f"{about}: {other} is {amount} {base} {where}"
    if verdicts.get("same", 0) > cells / 2:
        return f"{about}: no difference that counts between {base} and {other} in {verdicts['same']} of {cells} cells"
    words = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    return f"{about}: these samples cannot tell {other} from {base} ({words})"


def _amount(speeds: pd.Series) -> tuple[str, str]:
    """The median of these speeds against the baseline's, and the quartiles: cells unlike each other have no one range.

    Returns `20 % faster than` and `, half of them 10 to 35 %`; from twice on multiples. The quartiles may be empty.
    """
    low, middle, high = speeds.quantile([0.25, 0.5, 0.75])
    if middle >= 1.995 or middle <= 0.5025:
        unit, joint = "times", "as fast as" if middle > 1 else "as long as"
        texts = [f"{max(one, 1 / one):.2g}" for one in (low, middle, high)]
    else:
        unit, joint = "%", "faster than" if middle > 1 else "slower than"
        texts = [f"{100 * abs(one - 1):.0f}" for one in (low, middle, high)]
    ends = sorted({texts[0], texts[2]}, key=float)
    return f"{texts[1]} {unit} {joint}", f", half of them {' to '.join(ends)} {unit}" if len(ends) > 1 else ""
