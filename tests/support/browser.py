"""Real browsers, headless, driven by Playwright: Debian's Chromium, and Firefox through WebDriver BiDi."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSERS = ["chromium", pytest.param("firefox", marks=pytest.mark.slow)]
"""For fixtures: each test of the page runs in both, in Firefox where slow tests run."""

NAMES = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "firefox": ("firefox-esr", "firefox"),
}
"""Browser -> its commands; the first is Debian's package."""


def find_browser(name: str) -> str:
    """Path of the browser; installs it where that is possible, skips the test where it is not."""
    package = NAMES[name][0]
    if not (path := _installed(name)) and shutil.which("apt-get") and os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True, timeout=120)
        subprocess.run(["apt-get", "install", "-y", "-qq", package], check=False, capture_output=True, timeout=280)
        path = _installed(name)
    if not path:
        pytest.skip(f"there is no {name.capitalize()} here; `apt-get install {package}` as root adds it")
    return path


@contextmanager
def launch(name: str = "chromium") -> Iterator[Browser]:
    """The browser, in whose `downloads` lies what pages save."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright adds what drives a browser")
    path = find_browser(name)
    with playwright.sync_playwright() as drivers, tempfile.TemporaryDirectory() as folder:
        browser = _launch(getattr(drivers, name), path, folder)
        yield browser
        browser.close()


def _launch(kind: Any, path: str, folder: str, dark: bool | None = None) -> Browser:
    if kind.name == "chromium":
        options: dict[str, Any] = {"args": ["--no-sandbox"]}
    else:
        options = {"channel": "moz-firefox"}  # as Mozilla builds it: Playwright's own protocol needs a patched one
        if dark is not None:
            options["firefox_user_prefs"] = {"layout.css.prefers-color-scheme.content-override": 0 if dark else 1}
    browser: Browser = kind.launch(executable_path=path, downloads_path=folder, **options)
    browser.downloads = Path(folder)  # type: ignore[attr-defined]
    return browser


def open_page(browser: Browser, report: Path, **options: Any) -> Page:
    """The page; every complaint is in `page.complaints`."""
    context = browser.new_context(offline=True, **options)
    context.set_default_timeout(5000)
    context.set_default_navigation_timeout(30_000)  # the first page of a fresh browser on a busy machine
    page = context.new_page()
    page.complaints = []  # type: ignore[attr-defined]
    page.on("console", lambda message: page.complaints.append(message.text))  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: page.complaints.append(str(error)))  # type: ignore[attr-defined]
    page.on("request", lambda request: request.url.startswith(("file:", "blob:", "data:")) or
            page.complaints.append(f"asked for {request.url}"))  # type: ignore[attr-defined]  # fmt: skip
    page.goto(report.as_uri())
    return page


def beyond_a_screen(report: Path, width: int) -> list[str]:
    """What of the page lies right of a screen of this width, in pixels."""
    script = """(width) => [...document.querySelectorAll("main :is(td, th, p, h1, h2, pre, svg)")].filter(
      (one) => one.getBoundingClientRect().right > width + 1).map((one) => one.outerHTML.slice(0, 80))"""
    with launch() as browser:
        found: list[str] = open_page(browser, report, viewport={"width": width, "height": 800}).evaluate(script, width)
    return found


@contextmanager
def open_in_scheme(browser: Browser, report: Path, scheme: str) -> Iterator[Page]:
    """The page for a reader whose system is `light` or `dark`."""
    if browser.browser_type.name == "chromium":
        page = open_page(browser, report, color_scheme=scheme)
        yield page
        page.context.close()
        return
    with tempfile.TemporaryDirectory() as folder:  # this Firefox learns it when it starts
        own = _launch(browser.browser_type, find_browser("firefox"), folder, dark=scheme == "dark")
        yield open_page(own, report)
        own.close()


def saved(page: Page, selector: str) -> tuple[str, bytes]:
    """Click, and return the name and the content of the file that this saves."""
    browser = page.context.browser
    assert browser
    if browser.browser_type.name == "chromium":
        with page.expect_download() as download:
            page.click(selector)
        return download.value.suggested_filename, download.value.path().read_bytes()
    folder: Path = browser.downloads  # type: ignore[attr-defined]  # Playwright reports no download of this Firefox
    for path in folder.iterdir():
        path.unlink()
    page.click(selector)
    deadline = time.monotonic() + 5
    while len(found := list(folder.iterdir())) != 1 or not found[0].stat().st_size:
        assert time.monotonic() < deadline, f"{selector} saved nothing"
        page.wait_for_timeout(20)
    return found[0].name, found[0].read_bytes()


def print_view(page: Page) -> None:
    """Show the page as it is printed."""
    browser = page.context.browser
    assert browser
    if browser.browser_type.name == "chromium":
        page.emulate_media(media="print")
    else:  # has no such option: the rules of print become those of all media
        page.evaluate(
            "[...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])"
            ".filter((rule) => rule.media?.mediaText === 'print').forEach((rule) => { rule.media.mediaText = 'all'; })"
        )
    page.evaluate("dispatchEvent(new Event('beforeprint'))")


def wait_until(page: Page, condition: str) -> None:
    """Playwright's own way needs an eval, which the page's policy forbids."""
    deadline = time.monotonic() + 5
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


def _installed(name: str) -> str | None:
    return next((path for path in map(shutil.which, NAMES[name]) if path), None)


def words_on_screen(page: Page) -> list[str]:
    """All words that are seen without scrolling: of menus, charts and tables, too."""
    found: list[str] = page.evaluate(Path(__file__).with_name("words_on_screen.js").read_text("utf-8"))
    return found
