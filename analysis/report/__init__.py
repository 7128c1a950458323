"""The report: a single HTML file with a store's answer, charts and tables, which needs neither server nor network.

page.py             assembles the page and writes it
joined.py           the results of the page's store and of those beside it, as one
question.py         what is compared: the sweep's own question, or those that follow from what varies
verdicts.py         the answer to a question: each option against the baseline, cell by cell
headline.py         its headline, in words that rest on the verdicts
views.py            a view: a chart and a table of the same cells; that of an answer
workload_views.py   the views of what each workload measured
lines.py            a chart's x axis, lines, panels, colours and dashes
drilled.py          what the page shows of one result
sections.py         the sections below the views, each shown if the store has its data
summary.py          what ran where; flags, failed trials and environments
badge.py            the headline, or one number, as a small SVG

`figures` has the charts of these sections, `template.html` the markup, `report.css` the style, and `assets` the scripts
and Plotly.js.
"""

from lmsweep.analysis.report.page import page_of, write_report

__all__ = ["page_of", "write_report"]
