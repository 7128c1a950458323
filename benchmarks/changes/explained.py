"""What `compare --explain` says of changes.yaml: ``python -m benchmarks.changes.explained STORE [AGAIN]``.

AGAIN: a store of again.yaml; its cells are compared with those of STORE, and nothing should be named.
"""

import re
import sys

from lmsweep.analysis.api import explain
from lmsweep.analysis.comparison.explanation import Explanation
from lmsweep.analysis.comparison.step_causes import IDLE, UNEXPLAINED, WALL, WHOLE

ATTENTION, FEED_FORWARD, NORM = r"attention, ", r"feed_forward, ", r"norm, "

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
    "not_contiguous": NORM,
    "layer_in_fp32": FEED_FORWARD,
    "waits_for_host": IDLE,
    "no_prefetch": rf"{IDLE}|forward",
}
"""Value of `model_args.change` -> what should be named first."""

FIELDS: dict[tuple[str, str, str], str] = {
    ("vocab_size", "50304", "50257"): r"head|loss",
    ("optimizer", "adamw_fused", "adamw_foreach"): r"optimizer",
    ("optimizer", "adamw_fused", "adamw_loop"): r"optimizer",
    ("loss", "cross_entropy", "eager"): r"loss",
    ("checkpointing", "none", "block"): r"recomputed",
    ("precision", "bf16", "tf32"): r"attention|feed_forward|head",  # every product changes
}
"""(field, baseline, contrast) -> what should be named first."""

BASE = {"compile": "none", "optimizer": "adamw_fused", "loss": "cross_entropy", "checkpointing": "none",
        "precision": "bf16", "vocab_size": "50304", "model_args.change": "none"}  # fmt: skip


def explained(store: str, field: str, baseline: str, contrast: str, **conditions: str) -> Explanation:
    where = {name: value for name, value in {**BASE, **conditions}.items() if name != field}
    return explain(store, baseline={field: baseline}, contrast={field: contrast}, where=where)


def line(name: str, expected: str, found: Explanation) -> str:
    rows = found.frame.set_index("cause")
    named = rows[rows["named"]].sort_values("difference", key=abs, ascending=False)
    if named.empty:
        return f"| {name} | {1e3 * rows['difference'][WHOLE]:+.2f} | nothing named |  |  |"
    first = str(named.index[0])
    whole = rows["difference"][WALL if WALL in rows.index else WHOLE]
    unexplained = rows["difference"][UNEXPLAINED]
    share = 1 - abs(unexplained / whole)
    right = "yes" if re.search(expected, first) else "no"
    change = f"{first}: {named['change'].iloc[0]}"
    return f"| {name} | {1e3 * whole:+.2f} | {change} | {right} | {share:.0%} |"


def main() -> None:
    store, *again = sys.argv[1:]
    print("| change | difference in ms | named first | right | explained |\n|---|---|---|---|---|")
    for change, expected in CHANGES.items():
        print(line(change, expected, explained(store, "model_args.change", "none", change)))
    for (field, baseline, contrast), expected in FIELDS.items():
        print(line(f"{field}: {baseline} -> {contrast}", expected, explained(store, field, baseline, contrast)))
    compiled = explained(store, "model_args.change", "written_gelu", "graph_breaks", compile="model")
    print(line("graph_breaks, compiled", r"forward|backward|compiled", compiled))
    for other in again:
        found = explain(store, other).frame
        print(f"the same twice: {len(found[found['cause'] == WHOLE])} cells, {int(found['named'].sum())} causes named")


if __name__ == "__main__":
    main()
