"""Prints the product's lines: rooms, core, features, at a commit and now: ``python -m tools.rooms 947b7b3``."""

import subprocess
import sys
from collections import Counter

PRODUCT = ("trials/*.py", "orchestrator/*.py", "analysis/*.py", "lmsweep/*.py", "*/report/assets/*")
FEATURES = "features"
LIBRARY = ":(exclude)*/report/assets/plotly*"


def lines(commit: str = "") -> Counter[str]:
    """Return room -> lines of the tracked files of the product, those of the working tree without a commit."""
    words = ["git", "grep", "--count", "-I", "", *([commit] if commit else []), "--", *PRODUCT, LIBRARY]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found: Counter[str] = Counter()
    for line in listed.splitlines():
        path, _, number = line.removeprefix(f"{commit}:").rpartition(":")
        package, *inside = path.split("/")
        depth = 2 if inside[0] == FEATURES and len(inside) > 2 else 1
        found["/".join([package, *inside[:-1][:depth]])] += int(number)
    return found


def core(count: Counter[str]) -> int:
    """Return the lines of all rooms but those of features."""
    return sum(number for room, number in count.items() if f"/{FEATURES}/" not in room)


def table(before: Counter[str], after: Counter[str]) -> str:
    """Return both as a Markdown table with lines of totals."""
    rows = [(f"`{room}`", before[room], after[room]) for room in sorted(before.keys() | after.keys())]
    rows.append(("core", core(before), core(after)))
    rows.append(("features", before.total() - core(before), after.total() - core(after)))
    rows.append(("all", before.total(), after.total()))
    return "\n".join(f"| {room} | {old or ''} | {new or ''} |" for room, old, new in rows)


if __name__ == "__main__":
    (commit,) = sys.argv[1:]
    print(f"| room | {commit} | now |\n|---|---|---|\n{table(lines(commit), lines())}")
