"""Reference results that ship with lmsweep, as Parquet; SOURCES.md says how each was made.

reports.py             the numbers of five published reports, and what is questionable about them
public_benchmarks.py   the numbers of public benchmarks, and how they became times
stores.py              the locations of the reference stores
"""

from lmsweep.analysis.reference.public_benchmarks import CONDITIONS, public_benchmarks
from lmsweep.analysis.reference.reports import CAVEATS, published
from lmsweep.analysis.reference.stores import stores

__all__ = ["CAVEATS", "CONDITIONS", "public_benchmarks", "published", "stores"]
