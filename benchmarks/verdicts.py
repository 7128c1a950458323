"""How often verdicts and intervals hold, simulated: ``python -m benchmarks.verdicts [PICTURE.png]``.

A cell has a true time; the median that a process measures is that time multiplied by exp(variation x normal noise).
Families of 24 equal cells show false verdicts, a family with one cell 10 % slower shows power.
"""

import sys
from itertools import pairwise
from typing import Any

import numpy as np

from lmsweep.analysis.data.load import load
from lmsweep.analysis.data.process_variation import kinds
from lmsweep.analysis.reference import stores
from lmsweep.trials.statistics.mean_ratio import mean_ratio
from lmsweep.trials.statistics.significance import Processes, differences, direction, holm
from lmsweep.trials.statistics.variation import BETWEEN_MACHINES, PRIORS, Floats, Kind, Variation, centre, reach

GRID: dict[Kind, tuple[float, ...]] = {"wall": (0.01, 0.03, 0.07), "device": (0.001, 0.005, 0.015), "cpu": (0.03,)}
CELLS, FAMILIES = 24, 1000
PROCESSES = (1, 2, 3, 5, 8)
WITHIN = 0.002
"""Standard error of the median of a process from its samples."""


def family(
    random: np.random.Generator, *, kind: Kind, processes: int, variation: Floats, effect: Floats
) -> tuple[Any, Floats]:
    """Return the differences of one family of cells, and its verdicts. variation, effect: of each cell."""
    logs = [
        shift[:, None] + variation[:, None] * random.standard_normal((CELLS, processes))
        for shift in (np.zeros(CELLS), np.log1p(effect))
    ]
    logs = [side + WITHIN * random.standard_normal(side.shape) for side in logs]
    squares = np.stack([((side - side.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) for side in logs], axis=1)
    known: Variation = PRIORS[kind].updated(float(squares.sum()), 2.0 * CELLS * (processes - 1))
    measured = Processes(
        centre=np.stack([centre(side) for side in logs], axis=1),
        number=np.full((CELLS, 2), float(processes)),
        squares=squares,
        within=np.full((CELLS, 2), WITHIN if processes == 1 else 0.0),
    )
    least = np.full(CELLS, 0.02)
    found = differences(measured, np.full(CELLS, known.scale), np.full(CELLS, known.freedom), least)
    return found, direction(found.ratio, holm(found.p), holm(found.p_same), least)


def error_rates(kind: Kind, variation: float, *, families: int = FAMILIES, mixed: bool = False) -> list[list[float]]:
    """Return for each number of processes: families with a false difference, cells called the same though they differ
    by 2.1 %, power for one cell 10 % slower, and coverage of the interval of a ratio.

    mixed: cells differ in their variation, by a factor of 2 in the standard deviation of its logarithm.
    """
    random, rows = np.random.default_rng(1), []
    for processes in PROCESSES:
        false = same = power = covered = 0.0
        for _ in range(families):
            each = variation * (np.exp(np.log(2) * random.standard_normal(CELLS)) if mixed else np.ones(CELLS))
            found, verdicts = family(random, kind=kind, processes=processes, variation=each, effect=np.zeros(CELLS))
            false += bool((np.abs(verdicts) == 1).any())
            covered += float(((found.low <= 1) & (found.high >= 1)).mean())
            _, verdicts = family(random, kind=kind, processes=processes, variation=each, effect=np.full(CELLS, 0.021))
            same += bool((verdicts == 0).any())
            one = np.zeros(CELLS)
            one[0] = 0.1
            each[0] = variation
            power += family(random, kind=kind, processes=processes, variation=each, effect=one)[1][0] == 1
        rows.append([processes, *(number / families for number in (false, same, power, covered))])
    return rows


AXES = np.stack(np.meshgrid(*map(np.arange, (3, 2, 2, 2)), indexing="ij"), axis=-1).reshape(CELLS, 4)


def mean_coverage(*, axis: float, common: float, families: int = FAMILIES) -> tuple[float, float]:
    """Return how often the intervals of a geometric mean cover that of these cells, and that of all such cells.

    axis: standard deviation of the effect of each value of an axis; common: of an effect on all cells. Both are of
    device time; each cell adds 2 % of its own.
    """
    random, error = np.random.default_rng(2), 0.005
    these = others = 0
    for _ in range(families):
        effect = sum(axis * random.standard_normal(4)[AXES[:, place]] for place in range(AXES.shape[1]))
        cells = effect + common * random.standard_normal() + 0.02 * random.standard_normal(CELLS)
        measured = cells + error * random.standard_normal(CELLS)
        mean = mean_ratio(measured, np.full(CELLS, error), 8, AXES, 2**0.5 * BETWEEN_MACHINES["device"])
        these += mean.low <= np.exp(cells.mean()) <= mean.high
        others += mean.others_low <= 1 <= mean.others_high
    return these / families, others / families


def replay() -> list[tuple[str, int, float]]:
    """Return for each kind the pairs of processes of one cell in the shipped stores, and how often the interval of
    their ratio, from one process each and the prior, covers 1."""
    found: dict[Kind, list[bool]] = {}
    for name in stores():
        rows = load(name, pooled=False)
        rows = rows[rows["median"].gt(0) & (rows["unit"] == "s") & (rows["workload"] == "timing")]
        rows = rows.assign(kind=kinds(rows))
        key = ["measurement_id", "environment_id", "phase", "metric", "kind"]
        for keys, cell in rows[rows["kind"] != "setup"].groupby(key):
            logs = np.log(cell["median"].to_numpy(float))
            half = reach(np.array(PRIORS[keys[4]].freedom)) * PRIORS[keys[4]].scale * 2**0.5
            found.setdefault(keys[4], []).extend(bool(abs(b - a) <= half) for a, b in pairwise(logs))
    return [(kind, len(pairs), float(np.mean(pairs))) for kind, pairs in found.items() if pairs]


def plot(path: str) -> None:
    """Draw how error rate, power and coverage depend on the number of processes."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    titles = (
        "tables of 24 equal cells with a false verdict",
        "10 % slower found, among 24",
        "intervals that hold the truth",
    )
    for kind, variation, style in (
        ("wall", 0.01, "-"),
        ("wall", 0.03, "--"),
        ("device", 0.005, "-."),
        ("device", 0.015, ":"),
    ):
        processes, false, _, power, covered = np.array(error_rates(kind, variation, families=300)).T
        for panel, values in zip(panels, (false, power, covered), strict=True):
            panel.plot(
                processes,
                100 * values,
                style,
                marker="o",
                label=f"{kind} time, {100 * variation:g} % between processes",
            )
    for panel, title, wanted in zip(panels, titles, (5, 80, 95), strict=True):
        panel.axhline(wanted, color="grey", linewidth=0.8)
        panel.set(title=title, xlabel="processes on each side", ylabel="%", ylim=(-3, 103), xticks=PROCESSES)
    panels[1].legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main() -> None:
    if len(sys.argv) > 1:
        plot(sys.argv[1])
        return
    print("| shipped, one process against another | pairs | covered |\n|---|---|---|")
    for kind, pairs, covered in replay():
        print(f"| {kind} | {pairs} | {100 * covered:.1f} % |")
    print()
    print("| time | variation | processes | false in 24 cells | falsely same | +10 % found | coverage |")
    print("|---|---|---|---|---|---|---|")
    for kind, variations in GRID.items():
        for variation in variations:
            for mixed in (False, True):
                for processes, *shares in error_rates(kind, variation, mixed=mixed):
                    numbers = " | ".join(f"{100 * share:.1f} %" for share in shares)
                    name = f"{100 * variation:g} %{', mixed' if mixed else ''}"
                    print(f"| {kind} | {name} | {processes} | {numbers} |")
    print("\n| effect of an axis | common effect | these cells covered | all such cells covered |\n|---|---|---|---|")
    for axis, common in ((0.0, 0.0), (0.02, 0.0), (0.05, 0.0), (0.0, 0.01), (0.0, 0.02), (0.05, 0.02)):
        these, others = mean_coverage(axis=axis, common=common)
        print(f"| {100 * axis:g} % | {100 * common:g} % | {100 * these:.1f} % | {100 * others:.1f} % |")


if __name__ == "__main__":
    main()
