"""How often `lmsweep compare --explain` names what changed: ``python -m benchmarks.explanations``.

tests/support/simulated_changes.py has the simulation. "named first": the largest cause that is named is the part that
changed; "explained": what all named causes add up to lies within a tenth of the true difference.
"""

import sys

import numpy as np

from tests.support.simulated_changes import CHANGES, draw, profiled_steps

DRAWS = 200
VARIATIONS = (0.002, 0.005, 0.015, 0.03)


def main() -> None:
    random = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    steps = profiled_steps()
    print("| variation of a kernel | change | named anything | named first | explained |\n|---|---|---|---|---|")
    for variation in VARIATIONS:
        for name, change in {"none": None, **CHANGES}.items():
            found = np.array([draw(steps[i % len(steps)], change, variation, random) for i in range(DRAWS)])
            rates = [(found[:, 0] > 0).mean(), found[:, 1].mean(), found[:, 2].mean()]
            cells = [f"{rate:.1%}" for rate in rates] if change else [f"{rates[0]:.1%}", "", ""]
            print(f"| {variation:.1%} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
