"""Results that ship with the project, to compare with: Parquet, with how each was made in SOURCES.md."""

from lmsweep.analysis.reference.reports import CAVEATS, published
from lmsweep.analysis.reference.stores import stores

__all__ = ["CAVEATS", "published", "stores"]
