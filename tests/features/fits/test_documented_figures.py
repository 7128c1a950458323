"""docs/memory.md prints what `lmsweep fits` answers, and how wide intervals are: figures that drift are found here."""

import re
import shlex

import pytest

from lmsweep.trials.analytic.rates.intervals import peak_of_others, spread_for, spread_of_others
from tests.support.command import ROOT, lmsweep_here

PAGE = (ROOT / "docs" / "memory.md").read_text("utf-8")

Row = dict[str, str]


def documented() -> tuple[list[str], list[Row]]:
    """The page's command, and the rows of the table below it, by column."""
    command, below = re.search(r"^    (lmsweep fits [^\n]*)$(.*?)^- ", PAGE, re.MULTILINE | re.DOTALL).groups()
    heads, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in re.findall(r"^\|.*$", below, re.M))
    return shlex.split(command)[1:], [dict(zip(heads, row, strict=True)) for row in rows]


def printed(text: str) -> dict[tuple[str, str], Row]:
    """The rows of the table that the command prints, by GPU and method."""
    head, rule, *lines = text[text.index("GPU  ") :].split("\n\n")[0].splitlines()
    spans = [(one.start(), one.end()) for one in re.finditer("-+", rule)]
    rows = [{head[start:end].strip(): line[start:end].strip() for start, end in spans} for line in lines]
    return {(one["GPU"], one["method"]): one for one in rows}


@pytest.mark.slow
def test_the_page_shows_the_figures_that_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    command, rows = documented()
    today = printed(lmsweep_here(*command, "--store", "none"))
    assert len(rows) >= 4
    for row in rows:
        assert row == {name: today[row["GPU"], row["method"]][name] for name in row}


def test_the_page_shows_the_widths_of_intervals() -> None:
    own = {
        "1.09": ("H100 SXM", "measured", 1),
        "1.29": ("A100 SXM 80GB", "public", 1),
        "1.57": ("B200 SXM", "public", 1),
        "2.7": ("B200 SXM", "datasheet", 1),
        "two ranks 1.21": ("H100 SXM", "measured", 2),
    }
    for said, (device, level, ranks) in own.items():
        digits = len(said.partition(".")[2])
        assert f"{said} |" in PAGE or f"{said};" in PAGE, said
        assert f"{spread_for(device, level, ranks).width:.{digits}f}" == said.split()[-1], said

    for row, trainer in (("`by other trainers`", None), ("`by LLM-Foundry`", "LLM-Foundry")):
        line = re.search(rf"^\| {row}.*$", PAGE, re.MULTILINE)[0]
        factor = re.search(r"([\d.]+) times the operators", line)[1]
        assert factor == f"{spread_of_others('H100 SXM', trainer=trainer).factor:.2f}"
    of_gpus = re.search(r"(H100, H200 .*?) \|$", PAGE, re.MULTILINE)[1]
    for names, width in re.findall(r"([A-Z][\w, ]*?) (\d\.\d\d)", of_gpus):
        for name in names.split(", "):
            device = {"A100": "A100 SXM 80GB"}.get(name, f"{name} SXM" if name[1:].isdigit() else name)
            assert f"{spread_of_others(device).width:.2f}" == width, name
    of_trainers = re.search(r"H100 (1\.\d\d); (fms-fsdp .*?) \|$", PAGE, re.MULTILINE)
    named = [("LLM-Foundry", of_trainers[1]), *re.findall(r"([\w-]+) (\d\.\d\d)", of_trainers[2])]
    assert len(named) == 6
    for trainer, width in named:
        assert f"{spread_of_others('H100 SXM', trainer=trainer).width:.2f}" == width, trainer
    peak = peak_of_others(100)
    assert f"Other trainers need {peak.low} to {peak.high} % of predicted memory" in PAGE
