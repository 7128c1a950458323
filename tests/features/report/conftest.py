"""A browser for the tests of a file, and the page that its fixture `report` has written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import BROWSERS, launch, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module", params=BROWSERS)
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    with launch(request.param) as browser:
        yield browser


@pytest.fixture(scope="module")
def page(browser: Browser, report: Path) -> Iterator[Page]:
    """One page for all tests of the file. Each closes what it has opened."""
    page = open_page(browser, report, viewport={"width": 1280, "height": 900})
    yield page
    assert page.complaints == []  # type: ignore[attr-defined]
    page.context.close()
