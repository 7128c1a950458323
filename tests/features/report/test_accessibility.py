"""The page is read by screen readers and keyboards: axe-core finds no violation with everything open."""

from pathlib import Path

import pytest

from lmsweep.analysis.reference import stores
from lmsweep.orchestrator.features.report.page import write_report
from tests.support.browser import BROWSERS, launch, open_in_scheme


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
        assert violations(page.evaluate("axe.run()")) == []
        page.evaluate("document.querySelectorAll('details.filter').forEach((one) => { one.open = false; })")
        page.locator("#matrix td.opens").first.click()
        page.evaluate("document.querySelectorAll('dialog details').forEach((one) => { one.open = true; })")
        assert violations(page.evaluate("axe.run('dialog')")) == []


def violations(found: dict[str, list[dict[str, object]]]) -> list[tuple[object, object]]:
    return [(rule["id"], rule["nodes"]) for rule in found["violations"]]
