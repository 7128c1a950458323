"""The report in a real browser: what it shows, what it downloads, and that nothing in a store can break it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lmsweep import analysis
from lmsweep.analysis.presets import make_preset
from lmsweep.orchestrator.features.report.page import write_report
from lmsweep.trials.results.measurement import Measurement, Timeline
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.results.record import Attempt
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.store.store import Store
from tests.support.browser import open_in_scheme, open_page, saved, wait_until
from tests.support.command import answer_here, lmsweep, lmsweep_here
from tests.support.made_up_results import H200, LAPTOP, Attempts, config, gpu, kernel, samples

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = """</script><script>window.broken = 1</script><img src=x onerror="window.broken = 1">&amp; 'a,"b"'"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every kind of cell there is, on a GPU, on a laptop and on a device with a hostile name."""
    attempts = Attempts(tmp_path_factory.mktemp("report") / "results")

    def both(forward: float, step: float, half: float) -> dict[str, tuple[float, ...] | None]:
        return {"forward.time": samples(forward, half / 2), "step.time": samples(step, half)}

    in_bf16 = replace(H200, autocast_dtype="bfloat16")
    for times, length in enumerate((128, 256, 512), start=1):
        host_bound = both(0.0123 * times, 0.0456789 * times, 0.0004)
        attempts.ok(gpu(context_length=length), host_bound, flags=(Flag.HOST_BOUND,))
        attempts.ok(gpu(compile="block", context_length=length), both(0.004 * times, 0.0131 * times, 0.00015))
        attempts.ok(gpu(precision="bf16", context_length=length), both(0.015, 0.05, 0.02), fingerprint=in_bf16)
        attempts.ok(config("small", context_length=length), both(0.9, 3.1, 0.2), fingerprint=LAPTOP)
    attempts.failed(gpu("2.7b", context_length=1024), "oom")
    attempts.failed(gpu("2.7b", context_length=512), "timeout")
    attempts.ok(gpu("2.7b"), {"forward.time": (0.15,), "step.time": (0.45,)})
    attempts.ok(config("medium"), {"step.time": None}, fingerprint=LAPTOP, reason='its clock stood, "twice", they say')
    hostile = replace(config("tiny"), model=HOSTILE)
    attempts.ok(hostile, both(1e-7, 2.5e-7, 1e-9), fingerprint=replace(LAPTOP, device_name=HOSTILE))
    return attempts.store.location


@pytest.fixture(scope="module")
def report(store: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    said = lmsweep_here("report", store, "-o", path, "--with", "published")
    assert said == f"{path} ({path.stat().st_size / 2**20:.3g} MiB); open it in a browser\n"
    return path


def measured(page: Page) -> None:
    """Show the medians, not the answer."""
    page.select_option("#view", label="How long does a training step take?")


def test_the_page_opens_offline_without_a_complaint_and_draws_within_seconds(page: Page) -> None:
    assert page.evaluate("performance.now()") < 10_000  # 1.5 s on an idle machine; this is a guard against minutes
    assert page.title() == "results · lmsweep"
    measured(page)
    assert page.locator("#chart .scatterlayer .trace").count() > 4
    matrix = page.text_content("#matrix") or ""
    assert "2.7b" in matrix and "oom" in matrix


@pytest.mark.slow
def test_every_control_is_reached_and_worked_by_keyboard(page: Page) -> None:
    measured(page)
    left = {"theme", "copy-link", "view", "Filter", "log-y", "Download CSV"}
    for _ in range(150):
        page.keyboard.press("Tab")
        left -= {page.evaluate("document.activeElement.id || document.activeElement.textContent.slice(0, 20)")}
        if not left:
            break
    assert not left
    rows = page.locator("#matrix tbody tr:visible").count()
    page.focus("details.filter summary")
    page.keyboard.press("Enter")
    wait_until(page, "document.querySelectorAll('details.filter[open]').length === 1")
    page.focus("details.filter fieldset:has(legend:text-is('model')) input")
    page.keyboard.press("Space")
    assert page.locator("#matrix tbody tr:visible").count() < rows
    page.keyboard.press("Space")
    page.keyboard.press("Escape")
    wait_until(page, "document.querySelectorAll('details.filter[open]').length === 0")


def test_names_in_a_store_are_text_and_never_run(page: Page) -> None:
    assert page.evaluate("window.broken") is None
    measured(page)
    assert HOSTILE in page.inner_text("#matrix")
    assert HOSTILE in (page.text_content("#environments") or "")
    assert page.locator("#chart img, #chart script").count() == 0
    assert page.evaluate("window.broken") is None


def test_a_device_whose_name_looks_like_a_tag_keeps_it_in_a_legend(page: Page) -> None:
    names = ["GPU <b>, bf16", "A&lt;B, bf16"]
    page.evaluate(
        """(names) => {
            const target = element("div", { id: "made", class: "chart" });
            document.querySelector("main").append(target);
            const of = { type: "scatter", mode: "markers", colour: 0, x: [1, 2], y: [1, 2], lines: [["one"], ["two"]] };
            drawFigure(target, { title: "", traces: names.map((name) => ({ ...of, name })), layout: {} }, "Made");
        }""",
        names,
    )
    page.wait_for_selector("#made .legendtext")
    assert page.locator("#made .legendtext").all_text_contents() == names


def test_a_downloaded_csv_is_that_of_the_command(page: Page) -> None:
    measured(page)
    run = answer_here(*shlex.split(page.inner_text("#matrix .command"))[1:], "--format", "csv")
    _, content = saved(page, "#matrix button[data-table]")
    assert content.decode("utf-8") + "\n" == run.stdout


def test_tables_that_have_a_name_are_in_the_page_and_their_csv_is_that_of_the_command(page: Page, store: str) -> None:
    page.wait_for_selector("#chart .main-svg")  # the page moves while it is drawn, and a click would miss
    page.locator("details.table:has(summary:has-text('end-to-end'))").first.evaluate("one => { one.open = true }")
    page.locator("#tables").evaluate("one => { one.open = true }")
    opened = "#tables details.table[open]"
    page.wait_for_selector(f"{opened} .caption", timeout=30_000)
    assert "Times of a training step and of its parts" in page.inner_text(f"{opened} .caption")
    assert "oom" in page.inner_text(f"{opened} tbody")
    name, content = saved(page, "button[data-table=end-to-end]")
    assert name == "end-to-end.csv"
    assert content.decode("utf-8") == analysis.render(make_preset("end-to-end", store), "csv")


def test_published_times_stand_beside_the_readers_and_steps_under_the_limits_of_their_device(page: Page) -> None:
    text = page.text_content("#beside") or ""
    assert "A100" in text and "not stated" in text and "suspected_tf32" in text
    page.click("header a[href='#roofline']")
    page.wait_for_selector("[data-figures=roofline] .main-svg")
    legend = page.text_content("[data-figures=roofline] .legend") or ""
    assert legend.startswith("precision") and "fp32: limit" in legend


def test_a_chart_has_log_axes_a_legend_that_hides_lines_and_is_kept_as_a_picture_and_sent_nowhere(page: Page) -> None:
    buttons = page.eval_on_selector_all("#chart .modebar-btn", "all => all.map(one => one.dataset.title)")
    assert buttons and not [title for title in buttons if "hare" in title or "loud" in title]
    page.hover("#chart")
    assert saved(page, "#chart .modebar-btn[data-title*=PNG]")[1].startswith(b"\x89PNG")
    measured(page)
    assert page.evaluate("chart.layout.yaxis.type") == "log"
    page.uncheck("#log-y")
    assert page.evaluate("chart.layout.yaxis.type") == "linear"
    page.locator("#chart .legendtoggle").first.click()
    wait_until(page, "chart._fullData.some(trace => trace.visible === 'legendonly')")


def brightness(page: Page, selector: str, property_: str) -> float:
    colour = page.eval_on_selector(selector, f"element => getComputedStyle(element).{property_}")
    return sum(float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]) / 3


@pytest.mark.slow
def test_it_is_dark_where_the_reader_likes_it_dark_and_light_by_choice(browser: Browser, report: Path) -> None:
    with open_in_scheme(browser, report, "dark") as page:
        assert brightness(page, "body", "backgroundColor") < 60 and brightness(page, "body", "color") > 180
        assert brightness(page, "#chart .xtick text", "fill") > 180
        page.select_option("#theme", "light")
        assert brightness(page, "body", "backgroundColor") > 240
        wait_until(page, "getComputedStyle(document.querySelector('#chart .xtick text')).fill === 'rgb(27, 31, 36)'")


@pytest.mark.slow
def test_memory_over_an_iteration_and_kernels_by_range_are_drawn(browser: Browser, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "results"))
    for context_length, held in ((128, 3 * 2**30), (256, 5 * 2**30)):
        trial = Trial(config=config(context_length=context_length), workloads=("memory", "profile"), sweep="made-up")
        attempt = Attempt.begin(trial)
        points = {"weights": (held, held), "activations": (0, 2**30)}
        timelines = [Timeline(phase="forward", category=name, positions=(0, 9), bytes=points[name]) for name in points]
        peak = Measurement(phase="step", metric="peak_allocated", unit="B", samples=(held + 2.0**30,))
        store.keep(attempt.rows("memory", [*timelines, peak], H200))
        kernels = [kernel("attention", "sgemm<1>", held / 1e12), kernel("backward of attention", HOSTILE, 0.004)]
        time_ = Measurement(phase="attention", metric="kernel_time", unit="s", samples=(held / 1e12,))
        store.keep(attempt.rows("profile", [*kernels, time_], H200))
    write_report(store.location, tmp_path / "report.html")
    page = open_page(browser, tmp_path / "report.html", viewport={"width": 360, "height": 740})
    tops = {}
    for section in ("memory", "kernels"):
        target = f"document.querySelector('[data-figures={section}]')"
        axis = "yaxis" if section == "memory" else "xaxis"
        page.click(f"header a[href='#{section}']")
        page.wait_for_selector(f"[data-figures={section}] .main-svg")
        for length in (128, 256):
            page.select_option(f"#choose-{section}", label=f"model small, context_length {length}")
            tops[section, length] = page.evaluate(f"{target}._fullLayout.{axis}.range[1]")
    assert 4 <= tops["memory", 128] < 4.6 and 6 <= tops["memory", 256] < 6.6  # GiB
    assert tops["kernels", 128] >= 2 and tops["kernels", 256] > 2.6  # ms of one step
    assert "weights" in (page.text_content("[data-figures=memory] .legend") or "")
    assert "peak 6 GiB, 4 % of the device" in (page.text_content("[data-figures=memory]") or "")
    assert "ms, " in (page.text_content("[data-figures=kernels] .annotation") or "")
    page.select_option("#other-memory", label="model small, context_length 128")
    charts = ("document.querySelector('[data-figures=memory]')", "document.querySelector('#second-memory')")
    ends = [page.evaluate(f"{chart}._fullLayout.yaxis.range[1]") for chart in charts]
    assert ends[0] == ends[1] >= 6
    assert "backward of" in page.inner_text("[data-figures=kernels]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.complaints == []  # type: ignore[attr-defined]
    page.context.close()


def test_a_store_that_cannot_be_reported_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty" / "measurements").mkdir(parents=True)
    with pytest.raises(RequestError, match="holds no results"):
        write_report(str(tmp_path / "empty"), tmp_path / "report.html")
    attempts = Attempts(tmp_path / "small")
    attempts.failed(config(), "oom")
    with pytest.raises(RequestError, match=r"cannot be written \(No such file or directory\)"):
        write_report(attempts.store.location, tmp_path / "no" / "folder" / "report.html")


@pytest.mark.parametrize("more", [(), ("--charts", "charts")])
def test_fields_that_no_result_has_are_refused_with_the_nearest_one(
    more: tuple[str, ...], attempts: Attempts, here: Path
) -> None:
    attempts.step(config(), 0.1)
    refused = answer_here("report", attempts.store.location, *more, "--across", "model,warmup")
    assert refused.returncode == 2
    assert "--across warmup: no such column; did you mean warmup_steps?" in refused.stderr
    assert [one.name for one in here.iterdir()] == ["results"]


@pytest.mark.slow
def test_the_page_goes_to_standard_output(attempts: Attempts, here: Path) -> None:
    attempts.step(config(), 0.1)
    run = lmsweep("report", attempts.store.location, "-o", "-", PYTHONIOENCODING="ascii")
    assert run.stdout.startswith("<!doctype html>") and run.stdout.rstrip().endswith("</html>")
    assert "×" in run.stdout and [one.name for one in here.iterdir()] == ["results"]


@pytest.mark.slow
def test_a_store_in_which_everything_failed_still_has_a_page(browser: Browser, tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "results")
    attempts.failed(gpu("2.7b"), "oom")
    attempts.failed(gpu("xl"), "timeout")
    write_report(attempts.store.location, tmp_path / "report.html")
    page = open_page(browser, tmp_path / "report.html")
    assert page.inner_text("#matrix tbody").split() == ["xl", "256", "timeout", "2.7b", "256", "oom"]
    assert page.complaints == []  # type: ignore[attr-defined]
    assert not page.is_visible("#chart .main-svg")
    assert "why it failed" in (page.text_content("#flags") or "")
    page.context.close()
