"""Print how far two numbers differ that a published report prints for the same cell: how sure a published time is.

python -m benchmarks.published_variation
"""

import numpy as np
import pandas as pd
from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.trials.results.outcome import Flag

TABLES = [["seed4 model_table", "seed4 mixed_precision"], ["seed2 e2e_fp32", "seed2 e2e_warmup1"]]
"""Tables of a report with the same cells: in the second, one lacks the number of warm-up steps, which is not 0."""

OTHERWISE_WRONG = {"backward_by_subtraction", "wide_spread", "compiled_while_timed"}


def repeated() -> pd.DataFrame:
    """One row for each cell that two tables print: its values, and the variance of their logarithms."""
    rows = load("published", pooled=False)
    rows = rows[(rows["metric"] == "time") & rows["precision"].eq("fp32") & (rows["context_length"] == 256)]
    sound = np.array([not OTHERWISE_WRONG & set(flags) for flags in rows["flags"]])
    rows = rows[rows["device"].eq("cuda") & sound]
    found = []
    for tables in TABLES:
        of_report = rows[rows["sweep"].isin(tables)]
        for (model, mode, phase), cells in of_report.groupby(["model", "mode", "phase"]):
            if len(cells) > 1:
                by_host = any(Flag.HOST_BOUND in flags for flags in cells["flags"])
                variance = float(np.log(cells["median"].to_numpy(float)).var(ddof=1))
                found.append((tables[0], model, mode, phase, "host" if by_host else "gpu", variance))
    return pd.DataFrame(found, columns=["table", "model", "mode", "phase", "bound by", "variance"])


def main() -> None:
    cells = repeated()
    print(tabulate(cells, headers="keys", showindex=False))
    for bound, of_kind in cells.groupby("bound by"):
        print(f"{bound}: {np.sqrt(of_kind['variance'].mean()):.3f} in {len(of_kind)} cells")


if __name__ == "__main__":
    main()
