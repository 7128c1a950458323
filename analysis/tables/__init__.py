"""Tables of results, and how they are printed.

pivot.py            lays results out as a `Table`: rows and columns of medians, intervals, statuses and flags
measured_grids.py   the grids that results fill, inferred from the axes along which they vary
listing.py          a `Listing`: a table with one line per item, whose columns have different units
number_format.py    the unit of a column, and the digits of a number and its interval
text_table.py       the texts of a `Table` or a `Listing`, whatever the output format
terminal_table.py   fits a table to the width of a terminal, in colour
bar_chart.py        a table as a bar chart in plain text, and bars of ratios
render.py           writes the texts as text, Markdown, LaTeX, Typst or HTML, and the numbers as CSV and JSON
"""
