"""`export`: the tables and figures that a course's problems ask for, written to files for the reader's own write-up.

formats.py         Markdown, LaTeX and Typst of each problem, and an index
problems.py        the problems: what each asks, its tables and figures
reports            the tables of published reports, which are problems as well
pictures.py        the figures of the problems
problem_tables.py  the tables of the problems
figures.py         bars, lines and memory timelines, drawn by Matplotlib
chosen.py          the results of a problem's trials, and which are missing

To add a problem, add a line to PROBLEMS and a grid of its name to the sweep.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from lmsweep.orchestrator.commands.options import StoreArgument
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import How, What, Where, resume_command, takes_request
from lmsweep.orchestrator.terminal import say


@takes_request("sweep store output grids overrides code")
def export(
    what: What,
    store: StoreArgument = "results",
    output: Annotated[str, Option("--output", "-o", help="The folder to write to.")] = "writeup",
) -> None:
    """Write the tables and figures of the problems of a course.

    The formats are Markdown, LaTeX, Typst, PNG and SVG, with an index.
    The problems are the names of the sweep's grids; those of cs336-2025 are the tables of published reports, beside
    which your results stand. Give the options --set and --code that were given to `run`.

    \b
    Examples:
      lmsweep export cs336-2026 results -o writeup
      lmsweep export cs336-2025 results -o writeup --grid "seed2 e2e_fp32"
    """
    from lmsweep.orchestrator.features.course.formats import Request, write
    from lmsweep.orchestrator.sweep.sweep import load_sweep, parse_overrides

    sweep = load_sweep(what.sweep, parse_overrides(what.overrides), code=what.code, grids=what.grids)
    written = write(
        Request(
            store=store,
            folder=Path(output).expanduser(),
            grids=sweep.grids,
            command=lambda name: resume_command("run", replace(what, grids=(name,)), Where(store=store), How()),
        )
    )
    tables, figures = sum(len(one.tables) for one in written), sum(len(one.figures) for one in written)
    say(f"{output}/index.md: {tables} tables and {figures} figures of {len(written)} problems")
    if missing := [one.name for one in written if one.found.missing]:
        say(f"not all measured: {', '.join(missing)}; {output}/index.md has the commands")


feature = Feature(name="course", place=10, verbs=(export,))
