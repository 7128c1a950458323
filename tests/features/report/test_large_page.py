"""The page of a large store: small enough to send, and quick to its first number."""

import statistics
from dataclasses import replace
from itertools import islice, product
from pathlib import Path

import pytest

from lmsweep.orchestrator.features.report.page import write_report
from tests.support.browser import BROWSERS, launch, open_page
from tests.support.made_up_results import H200, Attempts, gpu, samples

MOST_BYTES = 6 * 2**20
LENGTHS = (128, 256, 512, 1024, 2048)
DEVICES = [replace(H200, device_name=f"NVIDIA {name}") for name in ("A100", "H100", "H200")]


def report_of(tmp_path: Path, trials: int) -> Path:
    """The page of this many trials, divided among three devices."""
    attempts = Attempts(tmp_path / f"results-{trials}")
    rows = []
    attempts.store.keep = rows.extend  # type: ignore[method-assign]  # all in one file, written below
    names = ("model", "precision", "compile", "batch_size", "context_length")
    shapes = product(
        ("small", "medium", "large", "xl"), ("fp32", "tf32", "bf16"), ("none", "block", "model"), (1, 2, 4, 8), LENGTHS
    )
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
    assert large.stat().st_size < MOST_BYTES
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
