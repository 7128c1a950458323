"""How often verdicts and intervals hold, simulated: ``python -m benchmarks.verdicts [PICTURE.png]``.

tests/support/simulated_processes.py has the simulation; the first two tables are of the shipped stores.
"""

import sys

import numpy as np

from lmsweep.analysis.data.process_variation import KIND
from lmsweep.trials.statistics.variation import Kind
from tests.support.repeated_cells import repeated, traced
from tests.support.simulated_processes import MEASURED, Noise, mean_over_machines, rates

CASES: tuple[tuple[float, Noise], ...] = (
    *((1.0, "normal"), (3.0, "normal"), (1.0, "t of 3"), (1.0, "bimodal")),
    *((1.0, "by a factor of 2"), (1.0, "lognormal")),
)
PROCESSES = (1, 2, 3, 5)


def plot(path: str) -> None:
    """Draw how error rate, power and coverage depend on the number of processes."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    titles = ("tables of 24 equal cells with a false verdict", "1.5 % faster found, among 24", "intervals that hold")
    cases: tuple[tuple[Kind, float, str], ...] = (
        ("device", 1.0, "-"),
        ("device", 3.0, "--"),
        ("device_capped", 1.0, "-."),
    )
    for kind, times, style in cases:
        shares = np.array([rates(kind, count, times=times, faster=0.015) for count in PROCESSES])
        limit = " at the power limit" if kind == "device_capped" else ""
        name = f"{100 * times * MEASURED[kind]:.2g} % between processes{limit}"
        for panel, column in zip(panels, (0, 1, 3), strict=True):
            panel.plot(PROCESSES, 100 * shares[:, column], style, marker="o", label=name)
    for panel, title, wanted in zip(panels, titles, (5, 80, 95), strict=True):
        panel.axhline(wanted, color="grey", linewidth=0.8)
        panel.set(title=title, xlabel="processes on each side", ylabel="%", ylim=(-3, 103), xticks=PROCESSES)
    panels[0].legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main() -> None:
    if len(sys.argv) > 1:
        plot(sys.argv[1])
        return
    print(
        "| kind | cells | pooled | median | 90th percentile | one process covered another |\n|---|---|---|---|---|---|"
    )
    for kind, cells in repeated().groupby("kind"):
        pooled = np.sqrt((cells["variance"] * cells["freedom"]).sum() / cells["freedom"].sum())
        each = np.sqrt(cells["variance"])
        sizes = " | ".join(f"{100 * one:.2f} %" for one in (pooled, each.median(), each.quantile(0.9)))
        covered, pairs = cells["covered"].sum(), cells["pairs"].sum()
        print(f"| {kind} | {len(cells)} | {sizes} | {covered / pairs:.0%} of {pairs} |")
    print("\n| kind | device times | steps of one process differ by: median, 90th percentile, most |\n|---|---|---|")
    for kind, apart in traced().groupby(KIND)["apart"]:
        sizes = ", ".join(f"{100 * one:.2f} %" for one in (apart.median(), apart.quantile(0.9), apart.max()))
        print(f"| {kind} | {len(apart)} | {sizes} |")
    print("\n| kind | processes vary | processes | false | 1.5 % found | same | covered | half width | widened |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in ("device", "device_capped", "wall"):
        for times, noise in CASES:
            for processes in PROCESSES:
                equal = rates(kind, processes, times=times, noise=noise)
                power = rates(kind, processes, times=times, noise=noise, faster=0.015).found
                numbers = (equal.false, power, equal.same, equal.covered, equal.half, equal.widened)
                shown = " | ".join(f"{100 * one:.{2 * (place == 4)}f} %" for place, one in enumerate(numbers))
                print(f"| {kind} | {times:g} x, {noise} | {processes} | {shown} |")
    print("\n| between machines | the mean of 24 cells covered | half its width |\n|---|---|---|")
    for machines in (0.0, 0.0014, 0.0025):
        covered, half = mean_over_machines(machines=machines)
        print(f"| {100 * machines:.2f} % | {100 * covered:.1f} % | {100 * half:.2f} % |")


if __name__ == "__main__":
    main()
