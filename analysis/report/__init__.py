"""The report: a single HTML file with a store's answer, charts and tables, which needs neither server nor network.

page.py             assembles the page and writes it
content.py          what a page holds: answers, views, sections
chart_files.py      the charts of a page as SVG or PNG
joined.py           the results of the page's store and of those beside it, as one
views.py            a view: a chart and a table of the same cells; that of an answer
workload_views.py   the views of what each workload measured
lines.py            a chart's x axis, lines, panels, colours and dashes
drilled.py          what the page shows of one result
sections.py         the sections below the views, each shown if the store has its data
summary.py          what ran where; flags, failed trials and environments

`answers` has the questions and the answers, `figures` the charts of the sections, `template.html` the markup,
`report.css` the style, and `assets` the scripts and Plotly.js.
"""

from lmsweep.analysis.report.page import page_with, write_page, write_report

__all__ = ["page_with", "write_page", "write_report"]
