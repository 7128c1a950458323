"""Words and lines on pages are seen: with contrasts of 4.5 and 3 to 1, which WCAG asks for, on every paper."""

import re
from itertools import product

import pytest

from lmsweep.analysis.tables.render import page_css

COLOURS = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}, #\w{6})\)", page_css()))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("inks", "papers", "least"),
    [
        (["ink", "muted", "accent", "failed", "better", "worse"], ["paper", "wash"], 4.5),
        ([name for name in COLOURS if name.startswith("line-")], ["paper"], 3.0),
    ],
    ids=["words", "lines"],
)
def test_words_have_a_contrast_of_4_5_to_1_and_lines_of_3(
    inks: list[str], papers: list[str], least: float, scheme: int
) -> None:
    assert inks
    for ink, paper in product(inks, papers):
        darker, lighter = sorted(luminance(COLOURS[name].split(", ")[scheme]) for name in (ink, paper))
        assert (lighter + 0.05) / (darker + 0.05) >= least, (ink, paper)
