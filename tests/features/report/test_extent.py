"""How long the pages of the shipped sets are: on the first screen, on paper and on a phone."""

from pathlib import Path

import pytest

from lmsweep.analysis.reference import stores
from lmsweep.orchestrator.features.report.page import write_report
from tests.support.browser import launch, open_page, words_on_screen

WORDS, LINES, SHEETS, PIXELS = 90, 8, 12, 8000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(stores()))
def test_a_shipped_set_begins_with_90_words_and_fits_on_twelve_sheets_and_in_8000_pixels_of_a_phone(
    name: str, tmp_path: Path
) -> None:
    write_report(stores()[name], tmp_path / "report.html")
    with launch() as browser:
        page = open_page(browser, tmp_path / "report.html", viewport={"width": 1280, "height": 800})
        page.wait_for_selector("#chart .main-svg", state="attached")
        assert 20 < len(words_on_screen(page)) <= WORDS
        assert len({*page.locator("#chart .legendtext").all_text_contents()}) <= LINES
        assert page.pdf().count(b"/Type /Page\n") <= SHEETS
        phone = open_page(
            browser, tmp_path / "report.html", viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True
        )
        assert phone.evaluate("document.documentElement.scrollHeight") < PIXELS
        assert phone.evaluate("document.documentElement.scrollWidth") <= 360
