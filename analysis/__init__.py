"""Analysis: what the stored results say. Reads stores; knows neither torch nor Ray.

`load` gives every result as a pandas table; `pivot` lays results out, `render` prints the layout.
"""

import sys
from os.path import abspath, dirname

# While we and the libraries that we need are imported, the user's folder, which may hold a random.py, is not looked at.
_search_path = sys.path.copy()
sys.path.insert(0, dirname(dirname(abspath(__file__))))
try:
    from trials.interpreter import order_search_path

    order_search_path()
    from analysis.load import load
    from analysis.render import render
    from analysis.tables import Table, default_layout, pivot
finally:
    sys.path[:] = _search_path

__all__ = ["Table", "default_layout", "load", "pivot", "render"]
