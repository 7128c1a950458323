"""The report: one page that holds a store's results, its charts and its tables, and needs no server."""

from analysis.report.page import write_report

__all__ = ["write_report"]
