"""docs/memory.md prints what `lmsweep fits` answers, and how wide intervals are: figures that drift are found here."""

import re
import shlex
from typing import Any

import pytest

from lmsweep.trials.analytic.rates.intervals import peak_of_others, spread_for, spread_of_others
from tests.support.command import ROOT, answer_here

PAGE = (ROOT / "docs" / "memory.md").read_text("utf-8")


def documented() -> tuple[list[str], list[dict[str, str]]]:
    """The page's command, and the rows of the table below it, by column."""
    command, below = re.search(r"^    (lmsweep fits [^\n]*)$(.*?)^- ", PAGE, re.MULTILINE | re.DOTALL).groups()
    heads, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in re.findall(r"^\|.*$", below, re.M))
    return shlex.split(command)[1:], [dict(zip(heads, row, strict=True)) for row in rows]


def printed_by_gpu_and_method(text: str) -> dict[tuple[str, str], dict[str, str]]:
    head, rule, *lines = text[text.index("GPU  ") :].split("\n\n")[0].splitlines()
    spans = [(one.start(), one.end()) for one in re.finditer("-+", rule)]
    rows = [{head[start:end].strip(): line[start:end].strip() for start, end in spans} for line in lines]
    return {(one["GPU"], one["method"]): one for one in rows}


@pytest.mark.slow
def test_the_page_shows_the_figures_that_the_command_prints() -> None:
    command, rows = documented()
    today = printed_by_gpu_and_method(answer_here(*command, "--store", "none", COLUMNS="400").stdout)
    assert len(rows) >= 4
    assert rows == [{name: today[row["GPU"], row["method"]][name] for name in row} for row in rows]


def width(device: str, level: Any, ranks: int = 1, *, form: str = ".2f") -> str:
    return format(spread_for(device, level, ranks).width, form)


def test_the_page_shows_the_widths_of_intervals() -> None:
    one, two = (width("H100 SXM", "measured", ranks) for ranks in (1, 2))
    assert f"operators of this chip measured | {one}; two ranks {two} |" in PAGE
    assert f"steps of others; A100 | {width('A100 SXM 80GB', 'public')} |" in PAGE
    assert f"published products of another GPU | {width('B200 SXM', 'public')} |" in PAGE
    assert f"a datasheet alone (assumed) | {width('B200 SXM', 'datasheet', form='.1f')} |" in PAGE
    assert "Other trainers need {0.low} to {0.high} % of predicted memory".format(peak_of_others(100)) in PAGE


def test_the_page_shows_the_widths_and_factors_of_other_trainers() -> None:
    trainers = ("LLM-Foundry", "fms-fsdp", "torchtitan", "Megatron", "nanotron", "prime-rl")
    of_trainers = {name: spread_of_others("H100 SXM", trainer=name) for name in trainers}
    first, *others = (f"{one.width:.2f}" for one in of_trainers.values())
    named = ", ".join(f"{name} {other}" for name, other in zip(trainers[1:], others, strict=True))
    assert f"; {of_trainers['LLM-Foundry'].factor:.2f} times the operators | H100 {first}; {named} |" in PAGE
    shown = re.search(rf"an H100 {spread_of_others('H100 SXM').factor:.2f} times the operators \| (.*) \|", PAGE)[1]
    for names, of_gpus in re.findall(r"([A-Z][\w, ]*?) (\d\.\d\d)", shown):
        for name in names.split(", "):
            device = {"A100": "A100 SXM 80GB"}.get(name, f"{name} SXM" if name[1:].isdigit() else name)
            assert f"{spread_of_others(device).width:.2f}" == of_gpus, name
