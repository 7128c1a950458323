"""Analysis: turns the results of a store into tables, comparisons and answers. Imports neither torch nor Ray.

`load` reads a store into a pandas table, `pivot` lays its results out in rows and columns, `render` prints the layout.

The rooms, from the top down. A module imports from its own room and from the rooms below it.

    api           what the commands `table` and `compare` answer, as functions
    presets       named tables, each answering one question for any store
    comparison    two selections of results: ratios, intervals, verdicts
    metrics       quantities derived from measurements: kernels, memory, counts by status
    tables        pivots and listings, and how they are printed in seven formats and on a terminal
    data          a store as a pandas table: statistics, selections, columns
    reference     results that ship with lmsweep: published numbers and measured stores

`notebooks` shows what can be done with the data beyond these tables.
"""

import sys

from lmsweep.trials.machine.interpreter import order_search_path

# The user's folder may hold a random.py: it is taken off the search path while lmsweep and its libraries are imported.
_search_path = sys.path.copy()
order_search_path()
try:
    from lmsweep.analysis.data.load import load
    from lmsweep.analysis.tables.pivot import Table, pivot
    from lmsweep.analysis.tables.render import render
finally:
    sys.path[:] = _search_path

__all__ = ["Table", "load", "pivot", "render"]
