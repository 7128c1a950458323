"""The report: one page that holds a store's results, its charts and its tables, and needs no server."""

from lmsweep.analysis.report.page import page_of, write_report

__all__ = ["page_of", "write_report"]
