"""Terminal, JSON, page, badge, shared folder and a run's last lines say the same of the same two selections."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

from lmsweep import analysis
from lmsweep.orchestrator.features.report.answers.headline import headline_of
from lmsweep.orchestrator.features.report.answers.store_answers import answers_of
from tests.features.report.grids import grid
from tests.support.command import lmsweep_here
from tests.support.made_up_results import Attempts, gpu

AMOUNT = r"(-?[\d.,]+(?:x| % faster| % slower| % longer| % less| % more| times as fast| times as long))(?!\.?\d)"
INTERVAL = r"(?: time)?(?: (?:than|as) [^()\[\]]*)?(?: ?[\[(](-?[\d.]+)(?:,| to) (-?[\d.]+)[\])])?"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fp32", "bf16"),  # wall and device time
    [
        ([(0.03, 0.012), (0.04, 0.024)], [(0.05, 0.004), (0.06, 0.008)]),
        ([(0.03, 0.012), (0.04, None)], [(0.02, 0.010), (0.01, None)]),
    ],
    ids=["faster-and-by-wall-time-slower", "device-times-of-one-cell"],
)
def test_two_precisions_of_a_store_have_one_number_one_interval_and_one_direction(
    fp32: list[tuple], bf16: list[tuple], attempts: Attempts, tmp_path: Path
) -> None:
    for precision, times in {"fp32": fp32, "bf16": bf16}.items():
        for place, (wall, device) in enumerate(times):
            attempts.step(gpu(context_length=128 * 2**place, precision=precision), wall, device)
    check(sentences(attempts.store.location, tmp_path))


def test_where_one_cell_is_faster_and_one_slower_no_place_has_a_number(tmp_path: Path) -> None:
    said = sentences(grid(tmp_path, {"fp32": [10, 20], "bf16": [5, 40]}, on_gpu=False), tmp_path)
    assert all(re.search("undecided in|cannot tell|slower in", text) for text in said.values()), said
    assert not any(claims_of(said[name]) for name in ("page", "badge", "run"))


@pytest.mark.slow
def test_where_an_option_is_ahead_from_a_size_on_the_number_is_that_of_the_largest_size(
    attempts: Attempts, tmp_path: Path
) -> None:
    for precision, times in (("fp32", (10, 20, 40, 80)), ("tf32", (11, 21, 41, 81)), ("bf16", (12, 19, 30, 50))):
        for place, time in enumerate(times):
            for _ in range(2):  # a lone process would be as uncertain as its table scatters
                attempts.step(gpu(context_length=128 * 2**place, precision=precision), time / 970, time / 1000)
    check(sentences(attempts.store.location, tmp_path, "--where", "context_length=1024"))


def check(said: dict[str, str]) -> None:
    claims = {name: claims_of(text) for name, text in said.items()}
    whole = json.dumps(said, indent=1)
    for clock in ("gain", "beside"):
        numbers = {amount for of_place in claims.values() for which, amount, *_ in of_place if which == clock}
        assert len(numbers) <= 1, whole
    assert len({ends for of_place in claims.values() for *_, ends in of_place if ends}) <= 1, whole
    clocks = {name: {which for which, *_ in of_place} for name, of_place in claims.items()}
    assert all(clocks[name] == clocks["terminal"] for name in {*said} - {"badge", "run"}), whole
    assert "gain" in clocks["run"] <= clocks["terminal"] and set() < clocks["badge"] <= clocks["run"], whole


def sentences(store: str, folder: Path, *conditions: str) -> dict[str, str]:
    """What each place says of two precisions."""
    lmsweep_here("report", store, "--badge", folder / "badge.svg")
    lmsweep_here("report", store, "--share", folder / "shared")
    words = ("compare", store, "--baseline", "precision=fp32", "--contrast", "precision=bf16", *conditions)
    badge = re.findall(r'<title>.*?</title>|aria-label="[^"]*"', (folder / "badge.svg").read_text())
    page = (folder / "shared" / "report.html").read_text()
    answer = re.findall(r'<(?:h2|p)[^>]* id="answer(?:-details)?"[^>]*>(.*?)</', page, re.DOTALL)
    return {
        "terminal": " ".join(lmsweep_here(*words).split("\n\n")[0].split("\n")[1:]),  # below the title
        "json": json.loads(lmsweep_here(*words, "--format", "json"))["title"],
        "page": unescape(". ".join(answer)),
        "share": (folder / "shared" / "README.md").read_text().split("**", 1)[1].split("\n")[0],
        "badge": unescape(" ".join(badge)),
        "run": headline_of(next(answers_of(analysis.load(store, pooled=False))))[0],
    }


def claims_of(text: str) -> set[tuple[str, str, str]]:
    """Return what the text says by each clock: the amount, and its interval, which may be empty."""
    text = re.sub(
        r"\((?:through the host|the hosts explain) [^)]*\)|[,;] each .*? to [\d.]+ (?:%|times as) \w+", "", text
    )
    found = set()
    for one in re.finditer(AMOUNT + INTERVAL, text):
        by_other = re.search(r"wall time $|(?:[,;]|by) device time $|steps take $", text[: one.start()])
        ends = " to ".join(filter(None, one.groups()[1:]))
        found.add(("beside" if by_other else "gain", str(one[1]), ends))
    return found
