"""Charts and tables of the sections below the answer, ready to draw.

charts.py    memory timelines, kernel times and rooflines
icicle.py    a profiled step by phase, part of the model and kernel
pieces.py    the largest pieces of memory at the peak
pareto.py    speed against memory and money, with the front drawn
html_table.py  a table as HTML
"""
