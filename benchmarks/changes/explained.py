"""What `compare --explain` says of changes.yaml: ``python -m benchmarks.changes.explained STORE [AGAIN]``.

AGAIN: a store of again.yaml; its cells are compared with those of STORE, and nothing should be named.
"""

import re
import sys
from dataclasses import dataclass

from lmsweep.analysis.api import explain
from lmsweep.analysis.comparison.explanation import Explanation
from lmsweep.analysis.comparison.step_causes import IDLE, WALL, WHOLE
from lmsweep.trials.spec.config import RequestError

ATTENTION, FEED_FORWARD, NORM = r"\.attention ", r"\.feed_forward ", r"norm "

CHANGES: dict[str, str] = {
    "written_attention": ATTENTION,
    "flash_attention": ATTENTION,
    "masked_attention": ATTENTION,
    "three_products": ATTENTION,
    "rotated": ATTENTION,
    "written_norm": NORM,
    "written_gelu": FEED_FORWARD,
    "wider": FEED_FORWARD,
    "dropout": FEED_FORWARD,
    "extra_copies": FEED_FORWARD,
    "not_contiguous": rf"{NORM}|^blocks\.\* ",  # the block copies, and the norms copy back
    "layer_in_fp32": FEED_FORWARD,
    "waits_for_host": IDLE,
    "no_prefetch": rf"^{IDLE}|^forward",
}
"""Value of `model_args.change` -> what should be named first."""

FIELDS: dict[tuple[str, str, str], str] = {
    ("vocab_size", "50304", "50257"): r"^head|^loss",
    ("optimizer", "adamw_fused", "adamw_foreach"): r"^optimizer",
    ("optimizer", "adamw_fused", "adamw_loop"): r"^optimizer",
    ("loss", "cross_entropy", "eager"): r"^loss",
    ("checkpointing", "none", "block"): r"recomputed",
    ("precision", "bf16", "tf32"): rf"{ATTENTION}|{FEED_FORWARD}|^head",  # every product changes
}
"""(field, baseline, contrast) -> what should be named first."""

BASE = {"compile": "none", "optimizer": "adamw_fused", "loss": "cross_entropy", "checkpointing": "none",
        "precision": "bf16", "vocab_size": "50304", "model_args.change": "none"}  # fmt: skip


def explained(store: str, field: str, baseline: str, contrast: str, **conditions: str) -> Explanation:
    where = {name: value for name, value in {**BASE, **conditions}.items() if name != field}
    return explain(store, baseline={field: baseline}, contrast={field: contrast}, where=where)


@dataclass(frozen=True)
class NamedFirst:
    cause: str
    change: str
    difference: float
    """Of the steps, in seconds; of wall time, if it is named that the device waits."""
    explained: float
    """1 less the distance between the difference and the sum of what is named, as a share of the difference."""

    @property
    def words(self) -> str:
        return f"{self.cause}: {self.change}" if self.change else self.cause

    def is_as(self, expected: str) -> bool:
        return bool(re.search(expected, self.cause))


def named_first(store: str, field: str, baseline: str, contrast: str, **conditions: str) -> NamedFirst | None:
    """Return what is named first; None if nothing is."""
    rows = explained(store, field, baseline, contrast, **conditions).frame.set_index("cause")
    named = rows[rows["named"]].sort_values("difference", key=abs, ascending=False)
    if named.empty:
        return None
    whole = float(rows["difference"][WALL if IDLE in named.index else WHOLE])
    share = 1 - abs(float(named["difference"].sum()) / whole - 1)
    return NamedFirst(str(named.index[0]), str(named["change"].iloc[0]), whole, share)


def line(name: str, expected: str, store: str, *sides: str, **conditions: str) -> str:
    try:
        found = named_first(store, *sides, **conditions)
    except RequestError as error:
        return f"| {name} | {error} |  |  |  |"
    if found is None:
        return f"| {name} |  | nothing |  |  |"
    right = "yes" if found.is_as(expected) else "no"
    return f"| {name} | {1e3 * found.difference:+.2f} | {found.words} | {right} | {found.explained:.0%} |"


def main() -> None:
    store, *again = sys.argv[1:]
    print("| change | difference in ms | named first | right | explained |\n|---|---|---|---|---|")
    for change, expected in CHANGES.items():
        print(line(change, expected, store, "model_args.change", "none", change))
    for (field, baseline, contrast), expected in FIELDS.items():
        print(line(f"{field}: {baseline} -> {contrast}", expected, store, field, baseline, contrast))
    sides = ("model_args.change", "written_gelu", "graph_breaks")
    print(line("graph_breaks, compiled", r"forward|backward|compiled", store, *sides, compile="model"))
    for other in again:
        found = explain(store, other).frame
        named = ", ".join(found["cause"][found["named"]]) or "nothing"
        print(f"the same twice: {len(found[found['cause'] == WHOLE])} cells, named: {named}")


if __name__ == "__main__":
    main()
