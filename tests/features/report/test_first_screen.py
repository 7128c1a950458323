"""The page of several devices in a real browser: its answer, what is behind each number, and links that keep a view."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.identity import measurement_id
from tests.support import made_up_results
from tests.support.browser import open_page, print_view, wait_until, words_on_screen
from tests.support.command import lmsweep_here
from tests.support.made_up_results import LAPTOP, Attempts, config, gpu

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

H200 = replace(made_up_results.H200, accelerator_type="H200")
H100 = replace(made_up_results.H100, accelerator_type="H100", device_memory=80_000_000_000, driver_version="580.1")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve cells on two GPUs: the device time of one is half the other's; memory that fits one of them."""
    attempts = Attempts(tmp_path_factory.mktemp("two") / "results")
    more: dict[str, Any] = {"flags": (Flag.HOST_BOUND,), "warmup_samples": (0.3, 0.2)}
    for fingerprint, factor in ((H100, 2.0), (H200, 1.0)):
        for model, precision, length in product(("small", "medium"), ("fp32", "bf16"), (256, 512, 1024)):
            trial = gpu(model, precision=precision, context_length=length)
            attempts.step(trial, 0.1, factor * length / 1e5, fingerprint=fingerprint, **more)
        for length in (256, 512, 1024):
            large = gpu("large", context_length=length)
            if fingerprint is H100 and length == 1024:
                attempts.failed(large, "oom", fingerprint=fingerprint, workload="memory")
            else:
                attempts.peak(large, length * 2.0**26, fingerprint=fingerprint)
    path = tmp_path_factory.mktemp("page") / "report.html"
    lmsweep_here("report", attempts.store.location, "-o", path, "--price", "H100=2")
    return path


def test_the_first_screen_has_the_answer_a_chart_and_at_most_90_words(page: Page) -> None:
    said = page.inner_text("#answer")
    assert said.startswith("Training step: H200 is 2 times as fast as H100 [")
    details = page.inner_text("#answer-details")
    assert details.startswith("Faster in 12 of 12 comparisons.") and "by wall time 0.0 % faster" in details
    box = page.locator("#chart .main-svg").first.bounding_box()
    assert box and box["y"] < 400
    cells = page.locator("#matrix td.gain").all_inner_texts()
    assert len(cells) == 12 and {text.strip()[:15] for text in cells} == {"2 times as fast"}
    assert set(page.locator("#matrix td.verdict").all_inner_texts()) == {"▲ faster"}
    assert 20 < len(words_on_screen(page)) <= 90
    page.click("header a[href='#differences']")
    assert "driver_version" in page.inner_text("#differences") and "580.1" in page.inner_text("#differences")


def test_prices_are_edited_on_the_page(page: Page) -> None:
    assert page.input_value("#price-0") == "2"  # given with --price
    rows = page.locator(".prices tbody tr")
    assert rows.nth(1).inner_text().split()[-1] == "$2.00/h"  # its steps take as long: wall time is what is paid for
    assert "1×; 2× by device time" in rows.nth(1).inner_text()  # here the host makes the rest
    page.click("#price-1")
    page.keyboard.type("3")
    page.keyboard.press("Tab")
    second = "document.querySelectorAll('.prices tbody tr')[1]"
    wait_until(page, f"{second}.innerText.includes('1.50×, cheaper in 0 of 12 combinations')")


def test_a_cell_opens_its_samples_flags_environment_and_the_command_that_repeats_it(page: Page) -> None:
    page.locator("#matrix td.opens").first.click()
    text = page.inner_text("#drill")
    assert "step.device_time: small, context_length 256, fp32" in text
    assert "2.56" in text and "5.12" in text and "H100 5.12 ms, H200 2.56 ms: faster" in text
    assert page.locator("#drill-chart .scatterlayer .trace").count() == 4  # samples and warm-up of both devices
    assert "10 samples after 2 warm-up iterations" in text
    commands = page.locator("#drill code").all_inner_texts()
    assert len(commands) == 2
    trial = single_trial(shlex.split(commands[0])[2:])
    assert measurement_id(trial.config, "timing") == measurement_id(gpu(context_length=256), "timing")
    page.click("#drill summary:has-text('Environment') >> nth=0")
    assert "580.1" in page.inner_text("#drill")
    page.keyboard.press("Escape")
    page.wait_for_url(lambda url: "result=" not in url)  # the dialog's close event comes later


def test_a_point_of_the_chart_opens_its_result_and_cells_are_walked_and_opened_by_keyboard(page: Page) -> None:
    page.locator("#chart").scroll_into_view_if_needed()
    page.evaluate("chart.emit('plotly_click', { points: [{ curveNumber: 1, pointIndex: 0 }] })")
    assert page.locator("#drill[open]").count() == 1
    page.keyboard.press("Escape")
    page.focus("#matrix td.opens")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "context_length 256" in page.inner_text("#drill-title") and "bf16" in page.inner_text("#drill-title")
    page.keyboard.press("Escape")


def test_tables_are_sorted_searched_and_copied(page: Page) -> None:
    page.click("#matrix th button:has-text('precision')")
    first = page.locator("#matrix tbody tr:not([hidden]) th:nth-child(3)").first
    assert first.inner_text() == "bf16"
    page.fill("#matrix input[type=search]", "medium 1024 fp32")
    assert page.locator("#matrix tbody tr:not([hidden])").count() == 1
    markdown = page.evaluate("markdownOf(document.querySelector('#matrix table'))")
    assert markdown.splitlines()[0].startswith("| model | context_length | precision | H100 | H200 | faster |")
    assert "| medium | 1024 | fp32 |" in markdown and "▲ faster" in markdown
    latex = page.evaluate("latexOf(document.querySelector('#matrix table'))")
    assert latex.startswith("\\begin{tabular}") and latex.endswith("\\end{tabular}\n")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#matrix button[aria-label*='as Markdown']")
    wait_until(page, "document.querySelector(\"#matrix button[aria-label*='as Markdown']\").textContent === 'Copied'")
    page.fill("#matrix input[type=search]", "")


def test_the_axis_of_differences_holds_zero_and_every_interval(page: Page) -> None:
    for values, ends in (([-24, 7], (-24, 7)), ([3, 9], (0, 9)), ([-5, -2], (-5, 0))):
        low, high = page.evaluate("values => yAxisOf(values, false, true).range", values)
        assert low <= ends[0] and ends[1] <= high and (0 in (low, high) or low < 0 < high)


def test_each_workload_has_a_view_with_the_table_of_the_command(page: Page) -> None:
    names = page.locator("#view option").all_inner_texts()
    assert names[0] == "Devices: training step"
    assert names[-2:] == ["How long does a training step take?", "How much memory does a step need?"]
    page.select_option("#view", label="How much memory does a step need?")
    assert page.inner_text("#matrix .command").endswith("--value step.peak_allocated --where workload=memory")
    assert page.inner_text("#chart-note").startswith("1 result ran out of memory, drawn as crosses at the memory of")
    oom = page.evaluate("chart.data.find((trace) => trace.name.startsWith('oom'))")
    assert "1 of 6 trials of the workload memory did not fit into 74.5" in (page.text_content("#fits") or "")
    assert oom["y"] == [pytest.approx(80e9 / 2**30, rel=1e-4)] and oom["x"] == [1024]


@pytest.mark.slow
def test_the_address_keeps_view_filter_axis_prices_and_the_open_cell(page: Page) -> None:
    page.select_option("#view", label="How long does a training step take?")
    page.uncheck("#log-y")
    page.click("#filters summary")
    page.locator("#filters fieldset:has(legend:text-is('model')) input").first.uncheck()
    assert page.locator("#matrix tbody tr:visible").count() == 6
    page.locator("#price-1").select_text()
    page.keyboard.type("4")
    page.keyboard.press("Tab")
    page.locator("#matrix td.opens:visible").first.click()
    opened = page.inner_text("#drill-title")
    address = page.evaluate("location.href")
    page.goto("about:blank")
    page.goto(address)
    assert page.inner_text("#drill-title") == opened != ""
    page.keyboard.press("Escape")
    assert page.locator("#matrix tbody tr:visible").count() == 6 and not page.is_checked("#log-y")
    assert page.inner_text("#filters summary") == "Filter: model"
    assert page.input_value("#price-1") == "4"
    page.click("header a[href='#flags']")
    assert page.evaluate("document.getElementById('flags').open")


def rightmost(page: Page, selector: str) -> float:
    """Where the last of these elements ends, in pixels."""
    ends = "(all) => Math.max(...all.map((one) => one.getBoundingClientRect().right))"
    return float(page.eval_on_selector_all(selector, ends))


def test_on_paper_is_what_is_open_and_nothing_is_clipped(page: Page) -> None:
    print_view(page)
    clips = "[...document.querySelectorAll('.scroll')].map((one) => getComputedStyle(one).overflowX)"
    assert {*page.evaluate(clips)} == {"visible"}
    assert rightmost(page, "main *:not(svg *)") <= rightmost(page, "main") + 1
    assert not page.is_visible("#tables") and page.is_visible("#matrix")


@pytest.mark.slow
def test_a_phone_shows_every_number_without_scrolling_sideways(browser: Browser, report: Path) -> None:
    page = open_page(browser, report, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    assert rightmost(page, "#matrix td, .prices td") <= 360
    captions = "[...document.querySelectorAll('caption')].map((one) => getComputedStyle(one).display)"
    assert set(page.evaluate(captions)) == {"none"}  # a line above each table says the same
    chart = page.locator("#chart .main-svg").first.bounding_box()
    assert chart and chart["x"] >= 0 and chart["x"] + chart["width"] <= 360
    legend = page.locator("#chart .legend").bounding_box()
    plot = page.locator("#chart .cartesianlayer").bounding_box()
    assert legend and plot and legend["y"] >= plot["y"] + plot["height"] - 20
    page.context.close()


@pytest.mark.slow
def test_of_stores_without_a_common_cell_the_page_names_the_fields_between(browser: Browser, tmp_path: Path) -> None:
    desk = replace(LAPTOP, device_name="Desk CPU")
    for name, fingerprint, warmup_steps in (("mine", LAPTOP, 5), ("theirs", desk, 0)):
        attempts = Attempts(tmp_path / name)
        attempts.step(config(warmup_steps=warmup_steps), 0.2, fingerprint=fingerprint, sweep=f"of {name}")
    arguments = ("report", tmp_path / "mine", "--with", tmp_path / "theirs", "-o", tmp_path / "report.html")
    lmsweep_here(*arguments)
    page = open_page(browser, tmp_path / "report.html")
    assert page.inner_text("#answer") == "Desk CPU against Laptop CPU (8 cores): no combination in common"
    details = page.inner_text("#answer-details")
    assert "Laptop CPU (8 cores) ran of mine; Desk CPU ran of theirs. Run one of them on both." in details
    assert "allow the difference with --across warmup_steps" in details
    assert page.inner_text(".apart tbody").split() == ["warmup_steps", "5", "0"]
    lmsweep_here(*arguments, "--across", "warmup_steps")
    page.reload()
    assert page.inner_text("#answer").startswith("Training step: Desk CPU")
    assert page.complaints == []  # type: ignore[attr-defined]
    page.context.close()
