"""A real browser, headless: Debian's Chromium, driven by Playwright."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright


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


def _installed() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
