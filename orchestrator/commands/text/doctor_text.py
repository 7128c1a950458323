"""Prints what the doctor found: a table, and the number of warnings."""

from collections.abc import Sequence

import pandas as pd
from tabulate import tabulate

from lmsweep.analysis.tables.listing import Listing
from lmsweep.orchestrator.cluster.doctor import Finding
from lmsweep.orchestrator.commands.text.show_table import show_table
from lmsweep.orchestrator.terminal import on_terminal, say

COLUMNS = ["check", "finding", "advice"]


def say_findings(findings: Sequence[Finding], *, node: str = "") -> None:
    """Print the findings, those of a cluster's node under its name."""
    rows = [[one.check, one.found, one.advice or "ok"] for one in findings]
    count = sum(one.advice is not None for one in findings)
    words = "no warnings" if not count else "1 warning" if count == 1 else f"{count} warnings"
    name = f"node {node}" if node else ""
    if on_terminal():
        title = ": ".join(filter(None, [name, words]))
        frame = pd.DataFrame(rows, columns=COLUMNS)
        show_table(Listing(title=title, frame=frame, keys=["check"], units={}, tones={"ok": "good"}))
        return
    table = tabulate(rows, headers=COLUMNS, disable_numparse=True)
    say("\n\n".join(filter(None, [name, table, words])))
