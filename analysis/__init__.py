"""Analysis: what the stored results say. Reads stores; knows neither torch nor Ray.

`load` gives every result as a pandas table; `pivot` lays results out, `render` prints the layout.
"""

from analysis.load import load
from analysis.render import render
from analysis.tables import Table, default_layout, pivot

__all__ = ["Table", "default_layout", "load", "pivot", "render"]
