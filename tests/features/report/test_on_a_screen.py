"""Pages on a laptop, on paper, on a phone and to a screen reader: short, quick and never to be scrolled sideways."""

import statistics
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest

from lmsweep.analysis.reference import stores
from lmsweep.orchestrator.features.report.page import write_report
from tests.support.browser import BROWSERS, launch, open_in_scheme, open_page, words_on_screen
from tests.support.made_up_results import H200, Attempts, gpu, samples

WIDTH, HEIGHT = 1168, 800
WORDS, LINES, SHEETS, PIXELS = 90, 8, 12, 8000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(stores()))
def test_a_page_begins_with_90_words_and_of_each_view_the_verdicts_a_chart_and_its_legend_fit_a_screen(
    name: str, tmp_path: Path
) -> None:
    write_report(stores()[name], tmp_path / "report.html")
    with launch() as browser:
        page = open_page(browser, tmp_path / "report.html", viewport={"width": WIDTH, "height": HEIGHT})
        page.wait_for_selector("#chart .main-svg", state="attached")
        assert 20 < len(words_on_screen(page)) <= WORDS
        assert len({*page.locator("#chart .legendtext").all_text_contents()}) <= LINES
        assert page.pdf().count(b"/Type /Page\n") <= SHEETS
        assert_on_the_screen(page.evaluate(_SEEN, "#results"))
        for view in range(page.locator("#view option").count()):
            page.select_option("#view", index=view)
            assert_on_the_screen(page.evaluate(_SEEN, "#results"))
        for section in page.evaluate("[...document.querySelectorAll('details.section')].map(({ id }) => id)"):
            page.evaluate(_OPEN, section)
            page.wait_for_timeout(100)  # charts are drawn when they come into view
            assert_on_the_screen(page.evaluate(_SEEN, f"#{section}"))
        assert page.complaints == []  # type: ignore[attr-defined]
        phone = open_page(
            browser, tmp_path / "report.html", viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True
        )
        assert phone.evaluate("document.documentElement.scrollHeight") < PIXELS
        assert phone.evaluate("document.documentElement.scrollWidth") <= 360


def assert_on_the_screen(seen: dict[str, Any]) -> None:
    assert seen["width"] <= WIDTH
    assert [table for table in seen["tables"] if table["right"] > table["edge"] + 1] == []
    assert [chart for chart in seen["charts"] if chart["height"] > HEIGHT - seen["bar"]] == []
    assert [chart for chart in seen["charts"] if chart["legend"] > chart["height"]] == []


_OPEN = """(id) => {
  const section = document.getElementById(id);
  for (const one of [section, ...section.querySelectorAll("details")]) one.open = true;
  section.scrollIntoView();
}"""

_SEEN = """(within) => {
  const root = document.querySelector(within);
  const box = (element) => element.getBoundingClientRect();
  const verdictOf = (table) => [...(table.tHead?.rows[0]?.cells ?? [])].find((cell) => cell.textContent === "verdict");
  return {
    width: document.documentElement.scrollWidth,
    bar: box(document.querySelector(".bar")).height,
    tables: [...root.querySelectorAll("table")].filter(verdictOf).map((table) => ({
      right: box(verdictOf(table)).right, edge: box(table.closest(".scroll")).right })),
    charts: [...root.querySelectorAll(".chart")].filter((chart) => chart.querySelector(".main-svg")).map((chart) => ({
      height: box(chart).height, top: box(chart).top,
      legend: Math.max(0, ...[...chart.querySelectorAll(".legend .bg")].map((one) => box(one).bottom - box(chart).top)),
    })),
  };
}"""


@pytest.mark.slow
@pytest.mark.parametrize("name", BROWSERS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_with_everything_open(tmp_path: Path, scheme: str, name: str) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="pip install axe-playwright-python adds axe-core")
    rules = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    write_report(stores()["h100-devices"], tmp_path / "report.html", [stores()["h200-devices"], "published"])
    with launch(name) as browser, open_in_scheme(browser, tmp_path / "report.html", scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.name = ''; one.open = true; })")
        page.evaluate(rules)
        page.wait_for_timeout(500)
        assert page.evaluate("axe.run()")["violations"] == []
        page.evaluate("document.querySelectorAll('details.filter').forEach((one) => { one.open = false; })")
        page.locator("#matrix td.opens").first.click()
        page.evaluate("document.querySelectorAll('dialog details').forEach((one) => { one.open = true; })")
        assert page.evaluate("axe.run('dialog')")["violations"] == []


DEVICES = [replace(H200, device_name=f"NVIDIA {name}") for name in ("A100", "H100", "H200")]


def report_of(tmp_path: Path, trials: int) -> Path:
    """The page of this many trials, divided among three devices."""
    attempts = Attempts(tmp_path / f"results-{trials}")
    rows = []
    attempts.store.keep = rows.extend  # type: ignore[method-assign]  # all in one file, written below
    names = ("model", "precision", "compile", "batch_size", "context_length")
    words = (["small", "medium", "large", "xl"], ["fp32", "tf32", "bf16"], ["none", "block", "model"])
    shapes = product(*words, (1, 2, 4, 8), (128, 256, 512, 1024, 2048))
    for count, shape in enumerate(islice(shapes, trials // len(DEVICES))):
        trial = gpu(**dict(zip(names, shape, strict=True)))
        for factor, device in enumerate(DEVICES, 1):
            seconds = trial.context_length * (1 + count % 7) / factor / 1e5
            parts = product((("forward", 0.3), ("backward", 0.6), ("step", 1.0)), ("time", "device_time"))
            values = {f"{phase}.{metric}": samples(seconds * share, seconds / 50) for (phase, share), metric in parts}
            attempts.ok(trial, values, fingerprint=device)  # type: ignore[arg-type]
    del attempts.store.keep
    attempts.store.keep(rows)
    path = tmp_path / f"{trials}.html"
    write_report(attempts.store.location, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", BROWSERS)
def test_two_thousand_trials_of_three_devices_are_a_page_below_6_mb_whose_first_number_comes_within_a_second(
    tmp_path: Path, name: str
) -> None:
    """On a busy machine a second is compared with what a page of six trials takes in the same run."""
    small, large = report_of(tmp_path, 6), report_of(tmp_path, 2000)
    assert large.stat().st_size < 6 * 2**20
    with launch(name) as browser:

        def first_number(path: Path) -> float:
            page = open_page(browser, path, viewport={"width": 1280, "height": 900})
            assert "times as fast" in page.inner_text("#answer")
            painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            assert page.complaints == []  # type: ignore[attr-defined]
            page.context.close()
            return float(painted)

        times = {path: statistics.median(first_number(path) for _ in range(3)) for path in (small, large)}
    assert times[large] < 1000 + times[small], times
