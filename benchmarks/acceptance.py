"""How often `lmsweep accept` is right: simulated machines, as they are and slower, judged by simulated sets.

python -m benchmarks.acceptance [RUNS]

tests/support/simulated_machines.py has the simulation.
"""

import sys

import pandas as pd

from tests.support.simulated_machines import BYTES, Case, public_verdicts, verdicts

WORDS = ("pass", "slow", "cannot tell", "other")


def main() -> None:
    runs = int(sys.argv[1]) if sys.argv[1:] else 200
    lines = []
    for machines in (1, 2, 3, 5):
        for spread in (0.5, 1.0, 1.5):
            for slower, parts in ((0.0, ()), (0.05, ()), (0.1, ()), (0.2, ()), (0.1, BYTES)):
                counts = verdicts(Case(machines=machines, spread=spread, slower=slower, parts=parts), runs)
                shares = {word: f"{100 * counts[word] / runs:.0f} %" for word in WORDS}
                what = f"{100 * slower:.0f} %{' in bytes' if parts else ''}"
                lines.append({"machines": machines, "spread": spread, "slower": what} | shares)
    print(pd.DataFrame(lines).to_markdown(index=False))
    lines = []
    for nodes in (2, 4, 8):
        for machines in (0, 3):
            for slower in (0.0, 0.1):
                counts = verdicts(Case(machines=machines, nodes=nodes, slower=slower), runs)
                shares = {word: f"{100 * counts[word] / runs:.0f} %" for word in WORDS}
                lines.append({"nodes": nodes, "machines": machines, "slower": f"{100 * slower:.0f} %"} | shares)
    print(pd.DataFrame(lines).to_markdown(index=False))
    lines = []
    for name in ("A100 SXM 80GB", "B200 SXM", "H100 NVL"):
        for common in (True, False):
            for slower in (0.0, 0.25, 0.5, 1.0, 2.0):
                counts = public_verdicts(name, runs, slower=slower, common=common)
                shares = {word: f"{100 * counts[word] / runs:.0f} %" for word in WORDS[:3]}
                lines.append(
                    {"GPU": name, "parts": "together" if common else "each", "slower": f"{100 * slower:.0f} %"} | shares
                )
    print(pd.DataFrame(lines).to_markdown(index=False))


if __name__ == "__main__":
    main()
