"""How often verdicts and intervals hold, simulated: ``python -m benchmarks.verdicts [PICTURE.png]``.

tests/support/simulated_processes.py has the simulation.
"""

import sys
from itertools import pairwise

import numpy as np

from lmsweep.analysis.data.load import load
from lmsweep.analysis.data.process_variation import kinds
from lmsweep.analysis.reference import stores
from lmsweep.trials.statistics.variation import PRIORS, Kind, reach
from tests.support.simulated_processes import PROCESSES, error_rates, mean_coverage

GRID: dict[Kind, tuple[float, ...]] = {"wall": (0.01, 0.03, 0.07), "device": (0.001, 0.005, 0.015), "cpu": (0.03,)}


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
