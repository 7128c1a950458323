"""A real browser, headless: Debian's Chromium, driven by Playwright."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright


def find_chromium() -> str:
    """Path of Chromium; installs it where that is possible, skips the test where it is not."""
    if not (path := _installed()) and shutil.which("apt-get") and os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True, timeout=120)
        subprocess.run(["apt-get", "install", "-y", "-qq", "chromium"], check=False, capture_output=True, timeout=280)
        path = _installed()
    if not path:
        pytest.skip("there is no Chromium here; `apt-get install chromium` as root adds it")
    return path


@contextmanager
def chromium() -> Iterator[Browser]:
    path = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def open_page(browser: Browser, report: Path, **options: Any) -> Page:
    """The page, of which every complaint is in `page.complaints`."""
    context = browser.new_context(offline=True, **options)
    context.set_default_timeout(5000)
    page = context.new_page()
    page.complaints = []  # type: ignore[attr-defined]
    page.on("console", lambda message: page.complaints.append(message.text))  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: page.complaints.append(str(error)))  # type: ignore[attr-defined]
    page.on("request", lambda request: request.url.startswith(("file:", "blob:", "data:")) or
            page.complaints.append(f"asked for {request.url}"))  # type: ignore[attr-defined]  # fmt: skip
    page.goto(report.as_uri())
    return page


def wait_until(page: Page, condition: str) -> None:
    """Playwright's own way needs an eval, which the page's policy forbids."""
    deadline = time.monotonic() + 5
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


def _installed() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
