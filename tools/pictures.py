"""Draws the pictures of the documentation: parts of reports about the reference sets, in headless Chromium.

``python -m tools.pictures`` draws all of them into docs/; ``python -m tools.pictures report`` draws one. A picture
holds the text that it shows, so that a test can tell whether the report still says it.
"""

from __future__ import annotations

import re
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lmsweep.orchestrator.features.report.page import write_report
from lmsweep.trials.analytic.prices import parse_prices
from tests.support.browser import launch, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

ROOT = Path(__file__).parents[1]
MARGIN = 4
"""CSS pixels around a part."""


class Picture(NamedTuple):
    """A part of a report."""

    store: str
    """A reference set."""
    part: str
    """A CSS selector."""
    says: str
    """A piece of the report that the caption repeats."""
    section: str = ""
    """The identifier of the section that is opened for it."""
    view: str = ""
    """The view that is chosen; the first if empty."""
    beside: tuple[str, ...] = ()
    """Other reference sets."""
    prices: tuple[str, ...] = ()
    """Dollars per hour: `H100=2.5`."""
    width: int = 1280
    """Of the window, in CSS pixels."""
    zoom: float = 1.0


H200 = ("h200-devices",)
PICTURES = {
    "devices": Picture("h100-devices", "#chart", "% faster than H100", beside=H200, width=1180, zoom=0.62),
    "report": Picture(
        "h100-devices", "main", "11.5 % faster", beside=H200, prices=("H100=2.5", "H200=3.5"), width=1180
    ),
    "fsdp": Picture("h200-x2-sharded", "main", "18 % faster", width=1000),
    "memory-timeline": Picture("h200-memory", "#memory .chart", "activations", "memory", width=1000),
    "kernels": Picture("h200-profile", "#kernels .chart", "kernel time", "kernels", width=1000),
    "roofline": Picture("h200-end-to-end", "#roofline .chart", "roofline", "roofline", width=1000),
    "attention-time": Picture("h200-attention", "#chart", "d_model", view="How long does attention take?", width=1000),
}
"""Name of the file in docs/, without .png -> what it shows."""

MOST = 820
"""Height of a picture in CSS pixels."""


def drawn_part(page: Page, picture: Picture) -> Locator:
    """Return the part of the open report, once its chart is there. Raises TimeoutError if the report lacks it."""
    if picture.view:
        page.select_option("#view", label=picture.view)
    if picture.section:
        page.click(f"header a[href='#{picture.section}']")
    part = page.locator(picture.part).first
    page.locator(f"{picture.part} .main-svg").first.wait_for()
    # The bar at the top stays in view while the page scrolls; in a picture it would cover what is below it.
    page.add_style_tag(content=f"header, .modebar, .pictures {{ display: none }} body {{ zoom: {picture.zoom} }}")
    page.wait_for_timeout(500)  # Plotly draws the last of its text a moment after the lines
    return part


def words_of(part: Locator) -> str:
    """Return the text that is seen in it, except when the page was written."""
    return " ".join(re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", part.inner_text()).split())


def draw(part: Locator, picture: Picture, path: Path) -> None:
    """Write the picture of a part. Raises ValueError if the report does not say what the caption repeats."""
    page, text = part.page, words_of(part)
    if picture.says.lower() not in text.lower():
        raise ValueError(f"{path.name}: the report does not say {picture.says!r}: {text}")
    box = part.bounding_box()
    assert box, f"{picture.part} is not visible"
    page.set_viewport_size({"width": picture.width, "height": min(int(box["height"]), MOST) + 2 * MARGIN})
    part.scroll_into_view_if_needed()
    box = part.bounding_box()
    assert box
    top = page.evaluate("scrollY")
    clip = {"x": box["x"] - MARGIN, "y": top + box["y"] - MARGIN}
    page.screenshot(
        path=path,
        full_page=True,
        clip={**clip, "width": box["width"] + 2 * MARGIN, "height": min(box["height"], MOST) + 2 * MARGIN},  # type: ignore[typeddict-item]
    )
    path.write_bytes(with_words(path.read_bytes(), text))


KEYWORD = b"Description\0\0"
"""Of a compressed text in a PNG (zTXt), and its method of compression."""


def with_words(image: bytes, text: str) -> bytes:
    """Return a PNG that holds this text, before its end."""
    chunk = b"zTXt" + KEYWORD + zlib.compress(text.encode())
    return image[:-12] + struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) + image[-12:]


def words_in(image: bytes) -> str:
    """Return the text that a PNG holds; nothing if it holds none."""
    start = image.find(b"zTXt" + KEYWORD) + 4 + len(KEYWORD)
    return zlib.decompressobj().decompress(image[start:]).decode() if start > 16 else ""


@contextmanager
def opened(browser: Browser, picture: Picture) -> Iterator[Locator]:
    """Write the report of a picture, and open it at its part."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.html")
        write_report(picture.store, report, list(picture.beside), parse_prices(list(picture.prices)))
        page = open_page(browser, report, viewport={"width": picture.width, "height": 900})
        yield drawn_part(page, picture)
        page.context.close()


def main(names: list[str]) -> None:
    with launch() as browser:
        for name in names or PICTURES:
            path = ROOT / "docs" / f"{name}.png"
            with opened(browser, PICTURES[name]) as part:
                draw(part, PICTURES[name], path)
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
