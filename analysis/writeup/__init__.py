"""The tables and figures that a course's problems ask for, written to files for the reader's own write-up.

    formats.py          Markdown, LaTeX and Typst of each problem, and an index
    problems.py         the problems: what each asks, its tables and figures
    pictures.py         the figures of the problems
    problem_tables.py   the tables of the problems
    figures.py          bars, lines and memory timelines, drawn by Matplotlib
    chosen.py           the results of a problem's trials, and which are missing

To add a problem, add a line to PROBLEMS and a grid of its name to the sweep.
"""

from lmsweep.analysis.writeup.formats import Request, write
from lmsweep.analysis.writeup.problems import PROBLEMS

__all__ = ["PROBLEMS", "Request", "write"]
