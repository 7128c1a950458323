"""The report: a single HTML file with a store's results, charts and tables, which needs neither server nor network.

    page.py           assembles the page from template, data, charts and tables, and writes it
    summary.py        the facts at the top, the flags, the failed trials and the environments
    page_data.py      the results, encoded for the page's script
    first_answer.py   the first answer: each device against each other, and what each choice changes
    pairs.py          one comparison: a headline, its cells, and what keeps two sides apart
    answer_tables.py  the tables of the first answer: heat maps, differing fields, what each choice changes
    charts.py         charts of memory timelines, kernel times and rooflines
    icicle.py         a profiled step by phase, part of the model and kernel
    pieces.py         the largest pieces of memory at the peak
    pareto.py         charts of speed against memory and money, with the front drawn
    sections.py       the sections below the results, each shown if the store has its data
template.html    the page's markup; answer.html that of the first answer's tables; report.css is its style
assets/          the page's scripts and Plotly.js
"""

from lmsweep.analysis.report.page import page_of, write_report

__all__ = ["page_of", "write_report"]
