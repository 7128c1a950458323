"""Rows and columns: pivots and listings, and their text in six formats.

`pivot.py` lays results out as a `Table`: frames of one shape for medians, ends of intervals, statuses and flags.
What is no pivot is a `Listing`, a frame whose columns have units. `text_table.py` puts either into words,
`render.py` writes the words as text, Markdown, LaTeX, Typst, HTML or CSV.
"""
