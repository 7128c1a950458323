"""Each picture of the documentation shows what lmsweep says today. `python -m tools.pictures` and `python -m
tools.record_terminal` draw them again."""

import re

import pytest

from tests.support.browser import launch
from tests.support.command import ROOT
from tools.pictures import PICTURES, opened, with_words, words_in, words_of
from tools.record_terminal import RECORDINGS, drawn, last_lines


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_a_report_shows_the_words_and_numbers_of_the_report(name: str) -> None:
    with launch() as browser, opened(browser, PICTURES[name]) as part:
        said = words_of(part)
    assert words_in((ROOT / "docs" / f"{name}.png").read_bytes()) == said, f"python -m tools.pictures {name}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "devices" else pytest.mark.slow) for name in RECORDINGS]
)
def test_a_recording_ends_with_what_the_commands_print(name: str) -> None:
    """Except for how long they took. `devices` is quick; on a busy machine others have more lines."""
    pytest.importorskip("pyte")
    shown, today = (
        [re.sub(r"\d+\.\d+ s\b|\de-\d\d", "-", line) for line in last_lines(picture)]
        for picture in ((ROOT / "docs" / f"{name}.svg").read_text("utf-8"), drawn(RECORDINGS[name]))
    )
    assert len(shown) > 5 and shown == today, f"python -m tools.record_terminal {name}"


def test_a_text_is_read_back_from_a_picture() -> None:
    image = (ROOT / "docs" / "verdicts.png").read_bytes()
    assert words_in(image) == "" and words_in(with_words(image, "11 % faster ·│·")) == "11 % faster ·│·"
