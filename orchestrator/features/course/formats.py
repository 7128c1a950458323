"""Writes each problem's tables and figures as Markdown, LaTeX and Typst, with an index of what there is and is missing.

    FOLDER/index.md                     the problems, what the store has of each, and the commands that measure the rest
    FOLDER/PROBLEM.md, .tex, .typ       its tables and figures; a table of a published report is a problem as well
    FOLDER/figures/PROBLEM-NAME.png     and .svg
    FOLDER/writeup.typ, writeup.tex     documents that include all problems, for the reader's own words

The last two are written once, for the reader to edit; all other files are replaced each time.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.render import escape_latex, escape_typst, render
from lmsweep.orchestrator.features.course.chosen import Found, SomeResults, found_in, rows_of_trials
from lmsweep.orchestrator.features.course.problems import PROBLEMS, Problem
from lmsweep.orchestrator.features.course.reports.report_tables import counted
from lmsweep.orchestrator.features.course.reports.reported import ANSWERS, reported
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.spec.installing import install_extra
from lmsweep.trials.store.local_folder import LocalFolder

FIGURES = "figures"
"""Folder of the figures, in the write-up's folder."""

_DPI = 160
_INDEX = "# Tables and figures\n\n"
"""How the index begins."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to write, and where."""

    store: str
    folder: Path
    grids: Mapping[str, Sequence[Trial]]
    """Name of a problem -> the trials that it asks for."""
    command: Callable[[str], str]
    """Name of a problem -> the command that measures it."""


@dataclass(kw_only=True)
class Written:
    """What was written for a problem. A problem with `report` is a published table, beside which our results stand."""

    name: str
    problem: Problem
    found: Found
    """How many measurements of its trials the store has, and which are missing."""
    tables: list[str] = field(default_factory=list)
    """Titles."""
    figures: list["Image"] = field(default_factory=list)
    not_made: list[str] = field(default_factory=list)
    """Why a table or a figure could not be made."""
    numbers: int = 0
    """How many numbers the published table has; 0 without one."""
    counterparts: int = 0
    """How many of them have a counterpart in the store."""

    @property
    def file(self) -> str:
        """The name of its files, without the ending."""
        return self.name.replace(" ", "-")


class Image(NamedTuple):
    file: str
    """Its path in the folder, without the ending."""
    caption: str


def write(request: Request) -> list[Written]:
    """Write all files, and return what there is of each problem. Without Matplotlib there are no figures.

    Raises RequestError: no grid with the name of a problem, no store, no results, or a folder that cannot be written.
    """
    problems = PROBLEMS | reported()
    chosen = {name: problem for name, problem in problems.items() if name in request.grids}
    if not chosen:
        raise RequestError(
            f"no grid has the name of a problem; give `name: PROBLEM` to a grid, one of: {', '.join(PROBLEMS)}; "
            "or that of a table of a published report, such as: seed2 e2e_fp32"
        )
    results = Results(request.store)
    results.everything  # noqa: B018 - raises before anything is written
    folder = LocalFolder(request.folder, aside="")
    _check_folder(folder, [name.replace(" ", "-") for name in chosen])
    try:
        draws = find_spec("matplotlib") is not None
        if not draws:
            warnings.warn(f"there are no figures without Matplotlib: {install_extra('figures')}", stacklevel=2)
        written = [_problem(name, problem, request, results, folder, draws) for name, problem in chosen.items()]
        folder.put("index.md", _index(written, request).encode())
        for suffix, whole in (("typ", _whole_typst), ("tex", _whole_latex)):
            path = request.folder / f"writeup.{suffix}"
            if not path.exists():
                folder.put(path.name, whole(written).encode())
    except OSError as error:
        raise RequestError(f"cannot write to {request.folder}: {error.strerror}") from error
    return written


def _check_folder(folder: LocalFolder, names: Sequence[str]) -> None:
    """Raise RequestError if the folder has a link, or a file that `export` would replace but has not written.

    A folder whose index begins with _INDEX is from an earlier `export`.
    """
    folder.check((FIGURES, "index.md"))
    index = folder.path / "index.md"
    if index.is_file() and index.read_text("utf-8", "replace").startswith(_INDEX):
        return
    for name in ("index.md", *(f"{name}.{suffix}" for name in names for suffix in ("md", "tex", "typ"))):
        if (folder.path / name).exists():
            raise RequestError(f"{folder.path / name} was not written by `lmsweep export`; give another folder with -o")


def _problem(
    name: str, problem: Problem, request: Request, results: Results, folder: LocalFolder, draws: bool
) -> Written:
    """Write a problem's files; with tables and figures if its trials have results, or it is a published table."""
    trials = request.grids[name]
    of_trials = SomeResults(results, lambda frame: rows_of_trials(frame, trials))
    chosen = results if problem.whole_store else of_trials
    found = found_in(results.everything, trials)
    # `everything` has no rows of devices that the machine lacked; in `attempts` their trials are `unsupported`.
    if found.missing:
        found = found_in(results.attempts, trials)
    written = Written(name=name, problem=problem, found=found)
    bodies: dict[str, list[str]] = {"markdown": [], "latex": [], "typst": []}
    if problem.report or not of_trials.everything.empty:
        _add_tables(written, chosen, bodies)
        if draws:
            _add_figures(written, chosen, folder)
    for output_format, suffix, whole in (
        ("markdown", "md", _markdown),
        ("latex", "tex", _latex),
        ("typst", "typ", _typst),
    ):
        folder.put(f"{written.file}.{suffix}", whole(written, bodies[output_format], request.command(name)).encode())
    return written


def _add_tables(written: Written, chosen: Results, bodies: Mapping[str, list[str]]) -> None:
    """Add the problem's tables to the body of each output format."""
    for name, make in written.problem.tables.items():
        try:
            table = make(chosen)
            for output_format, body in bodies.items():
                body.append(render(table, output_format))
            written.tables.append(table.title)
            if written.problem.report and isinstance(table, Table):
                numbers, counterparts = counted(table)
                written.numbers, written.counterparts = written.numbers + numbers, written.counterparts + counterparts
        except RequestError as error:
            written.not_made.append(f"no table {name}: {error}")


def _add_figures(written: Written, chosen: Results, folder: LocalFolder) -> None:
    from matplotlib import rc_context

    for picture in written.problem.pictures(chosen):
        try:
            figure = picture.draw()
        except RequestError as error:
            written.not_made.append(f"no figure {picture.name}: {error}")
            continue
        image = Image(f"{FIGURES}/{written.file}-{picture.name}", picture.caption)
        png, svg = BytesIO(), BytesIO()
        figure.savefig(png, format="png", dpi=_DPI)
        with rc_context({"svg.hashsalt": "lmsweep"}):  # else names in the file are random
            figure.savefig(svg, format="svg", metadata={"Date": None})  # the same results give the same file
        folder.put(f"{image.file}.png", png.getvalue())
        folder.put(f"{image.file}.svg", svg.getvalue())
        written.figures.append(image)


def _state(found: Found) -> str:
    failed = [f"{count} {status}" for status, count in sorted(found.failed.items())]
    missing = [f"{found.missing} missing"] if found.missing else []
    return ", ".join([f"{found.ok} of {found.asked} measured", *failed, *missing])


def _remarks(written: Written, command: str) -> list[str]:
    rest = [f"{_state(written.found)}. The rest: {command}"] if written.found.missing else [f"{_state(written.found)}."]
    return [*rest, *written.not_made]


def _index(written: Sequence[Written], request: Request) -> str:
    problems = [one for one in written if not one.problem.report]
    published = [one for one in written if one.problem.report]
    lines = [
        *_INDEX.splitlines(),
        f"Of the results in `{request.store}`. `writeup.typ` and `writeup.tex` include all problems.",
    ]
    if problems:
        rows = [[_link(one), len(one.tables), len(one.figures), _state(one.found)] for one in problems]
        lines += _table_lines("problem | tables | figures | measurements", rows)
    for report in dict.fromkeys(one.problem.report for one in published):
        rows = [
            [_link(one), one.problem.answers, _compared([one]), len(one.figures), _state(one.found)]
            for one in published
            if one.problem.report == report
        ]
        lines += ["", f"## Report {report}"]
        lines += _table_lines("table | problem | numbers with a counterpart | figures | measurements", rows)
    if published:
        rows = []
        for problem in sorted({one.problem.answers for one in published}, key=[*ANSWERS].index):
            answering = [one for one in published if one.problem.answers == problem]
            rows.append([problem, _compared(answering), ", ".join(map(_link, answering))])
        lines += ["", "## Problems of the handout"]
        lines += _table_lines("problem | numbers with a counterpart | tables", rows)
    if missing := [one for one in written if one.found.missing]:
        lines += ["", "## Missing", "", "These commands measure what the store does not have:", ""]
        lines += [f"    {request.command(one.name)}" for one in missing]
    if not_made := [f"- {one.name}: {why}" for one in written for why in one.not_made]:
        lines += ["", "## Not made", "", *not_made]
    return "\n".join(lines) + "\n"


def _table_lines(columns: str, rows: Sequence[Sequence[object]]) -> list[str]:
    """Return an empty line and a Markdown table. columns: their names, as `problem | tables`."""
    rule = "|" + "---|" * (columns.count("|") + 1)
    return ["", f"| {columns} |", rule, *(f"| {' | '.join(map(str, row))} |" for row in rows)]


def _link(one: Written) -> str:
    return f"[{one.name}]({one.file}.md)"


def _compared(tables: Sequence[Written]) -> str:
    return f"{sum(one.counterparts for one in tables)} of {sum(one.numbers for one in tables)}"


def _markdown(written: Written, tables: Sequence[str], command: str) -> str:
    images = [f"![{image.caption}]({image.file}.png)\n\n{image.caption}\n" for image in written.figures]
    remarks = "\n".join(f"- {one}" for one in _remarks(written, f"`{command}`"))
    not_measured = "".join(f"- {one}\n" for one in written.found.lacking)
    rest = [f"## Not measured\n\n{not_measured}"] if not_measured else []
    return "\n".join([f"# {written.name}\n\n{written.problem.asks}\n", *tables, *images, f"{remarks}\n", *rest])


def _latex(written: Written, tables: Sequence[str], command: str) -> str:
    images = [
        f"\\begin{{figure}}[htbp]\n\\centering\n\\includegraphics[width=0.6\\linewidth]{{{image.file}.png}}\n"
        f"\\caption{{{escape_latex(image.caption)}}}\n\\end{{figure}}\n"
        for image in written.figures
    ]
    remarks = "".join(f"% {one}\n" for one in _remarks(written, command))
    return f"% {written.problem.asks}\n{remarks}" + "\n".join([*tables, *images])


def _typst(written: Written, tables: Sequence[str], command: str) -> str:
    images = [
        f'#figure(\n  image("{image.file}.svg", width: 60%),\n  caption: [{escape_typst(image.caption)}],\n)\n'
        for image in written.figures
    ]
    remarks = "".join(f"// {one}\n" for one in _remarks(written, command))
    return f"// {written.problem.asks}\n{remarks}" + "\n".join([*tables, *images])


# A table wider than the page is scaled down to it.
_TYPST = """\
#set page(paper: "a4", flipped: true, margin: 1.5cm)
#set text(size: 10pt)
#set table(stroke: none, inset: (x: 4pt, y: 2pt))
#show table: it => layout(size => {
  let width = measure(it).width
  if width > size.width { scale(size.width / width * 100%, reflow: true, it) } else { it }
})
#show figure: set block(breakable: true)

"""

_LATEX = r"""\documentclass{article}
\usepackage[a4paper, landscape, margin=1.5cm]{geometry}
\usepackage[utf8]{inputenc}
\usepackage[T1]{fontenc}
\usepackage{adjustbox, booktabs, etoolbox, graphicx, multirow}
\BeforeBeginEnvironment{tabular}{\begin{adjustbox}{max width=\linewidth, max totalheight=0.8\textheight}}
\AfterEndEnvironment{tabular}{\end{adjustbox}}
\begin{document}

"""


def _whole_typst(written: Sequence[Written]) -> str:
    parts = [
        f'= {escape_typst(one.name)}\n{escape_typst(one.problem.asks)}\n\n_Your answer._\n\n#include "{one.file}.typ"\n'
        for one in written
    ]
    return _TYPST + "\n".join(parts)


def _whole_latex(written: Sequence[Written]) -> str:
    parts = [
        f"\\section*{{{escape_latex(one.name)}}}\n{escape_latex(one.problem.asks)}\n\n\\emph{{Your answer.}}\n\n"
        f"\\input{{{one.file}.tex}}\n\\clearpage\n"
        for one in written
    ]
    return _LATEX + "\n".join(parts) + "\n\\end{document}\n"
