"""Analysis: what the stored results say. Reads stores; knows neither torch nor Ray.

`load` gives every result as a pandas table; `pivot` lays results out, `render` prints the layout.

The rooms, from the top down. A module imports from its own room and from those below it.

    report        one HTML page of a store
    comparison    two selections of results: ratios, intervals, verdicts
    presets       tables by name: each answers one question for any store
    metrics       cost, roofline, scaling, kernels, memory
    reference     results that come with lmsweep: published numbers and measured stores
    tables        rows and columns: pivots, listings, and their text in six formats
    data          a store as a pandas table: statistics, selections, columns

`notebooks` begins where the tables end.
"""

import sys

from lmsweep.trials.machine.interpreter import order_search_path

# While we and the libraries that we need are imported, the user's folder, which may hold a random.py, is not looked at.
_search_path = sys.path.copy()
order_search_path()
try:
    from lmsweep.analysis.data.load import load
    from lmsweep.analysis.tables.pivot import Table, default_layout, pivot
    from lmsweep.analysis.tables.render import render
finally:
    sys.path[:] = _search_path

__all__ = ["Table", "default_layout", "load", "pivot", "render"]
