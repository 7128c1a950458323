"""How long the pages of the shipped sets are: on the first screen, on paper and on a phone."""

from pathlib import Path

import pytest

from lmsweep.analysis.reference import stores
from lmsweep.orchestrator.features.report.page import write_report
from lmsweep.trials.analytic.prices import parse_prices
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


@pytest.mark.slow
def test_two_shipped_sets_with_prices_begin_with_90_words(tmp_path: Path) -> None:
    two = [stores()[name] for name in ("h100-devices", "h200-devices")]
    write_report(two[0], tmp_path / "report.html", two[1:], parse_prices(["H100=2.5", "H200=3.5"]))
    with launch() as browser:
        page = open_page(browser, tmp_path / "report.html", viewport={"width": 1280, "height": 800})
        page.wait_for_selector("#chart .main-svg", state="attached")
        assert 20 < len(words_on_screen(page)) <= WORDS
