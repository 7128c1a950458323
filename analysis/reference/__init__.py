"""Reference results that ship with lmsweep, as Parquet; SOURCES.md says how each was made.

reports.py   the numbers of five published reports and of public benchmarks, and what is questionable about them
stores.py    the locations of the reference stores
"""

from lmsweep.analysis.reference.reports import CAVEATS, CONDITIONS, public_benchmarks, published
from lmsweep.analysis.reference.stores import stores

__all__ = ["CAVEATS", "CONDITIONS", "public_benchmarks", "published", "stores"]
