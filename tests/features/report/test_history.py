"""The page over time: states of the user's code, stores and days in order, and where something changed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lmsweep.orchestrator.features.report.content import content_of, histories_of
from lmsweep.orchestrator.features.report.history import headline_of_history, histories
from lmsweep.orchestrator.features.report.joined import joined
from lmsweep.orchestrator.features.report.page import page_with
from lmsweep.orchestrator.features.report.views import view_of_answer
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.statistics.variation import PRIORS, Kind
from tests.support.made_up_results import H200, Attempts, gpu

BEGAN = datetime(2026, 11, 2, tzinfo=UTC)


def measured(attempts: Attempts, factor: float, day: int, **fields: Any) -> None:
    """Steps at two context lengths, each for 10 ms times the factor and the length / 128."""
    for place, length in enumerate((128, 256)):
        seconds, began = factor * length / 12800, BEGAN + timedelta(days=day, minutes=place)
        attempts.step(gpu(context_length=length), seconds, seconds, started_at=began, **fields)


def test_days_of_one_store_are_stages_and_a_change_has_its_day_and_its_size(attempts: Attempts) -> None:
    for day, factor in enumerate((1.0, 1.0, 1.25, 1.0)):
        measured(attempts, factor, day, fingerprint=replace(H200, driver_version=f"570.{day}"))
    [found] = histories_of(joined(attempts.store.location, history=True), ())
    assert list(found.changes) == ["2026-11-04", "2026-11-05"]
    headline, details = headline_of_history(found)
    assert headline.startswith("Training step: 2026-11-05 is 25") and "% faster than 2026-11-04 [" in headline
    assert details[0] == "2 changes in 4 dates." and "20" in details[1] and "% slower than 2026-11-02" in details[1]
    [chart] = view_of_answer(found, {}).charts.values()
    assert chart["x"] == "date" and chart["ordered"]
    assert chart["labels"] == ["2026-11-03", "▼ 2026-11-04", "▲ 2026-11-05"]


@pytest.mark.slow
def test_states_of_code_and_stores_are_stages(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "own")
    for day, (digest, factor) in enumerate((("a" * 16, 1.0), ("b" * 16, 0.5), ("c" * 16, 0.5))):
        measured(attempts, factor, day, fingerprint=replace(H200, code_digest=digest))
    [found] = histories_of(joined(attempts.store.location, history=True), ())
    assert list(found.changes) == ["bbbbbbbb, 2026-11-03"]
    assert "2 times as fast as aaaaaaaa, 2026-11-02" in headline_of_history(found)[0]
    locations = []
    for day, name in enumerate(("monday", "tuesday")):
        of_day = Attempts(tmp_path / name)
        measured(of_day, 1.0, 0 if day else 1)
        locations.append(of_day.store.location)
    [found] = histories_of(joined(locations[0], locations[1:], history=True), ())
    assert [one.name for one in found.question.options] == ["tuesday, 2026-11-02", "monday, 2026-11-03"]
    assert "change" in headline_of_history(found)[0] and not found.changes
    page = "".join(page_with(content_of(locations[0], locations[1:], history=True)))
    assert "in 2 stores" in page and "Preset tables" not in page


def test_one_day_is_no_history(attempts: Attempts) -> None:
    measured(attempts, 1.0, 0)
    with pytest.raises(RequestError, match="no device has a combination in two states of the code"):
        content_of(attempts.store.location, history=True)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """A process for each of two cells on each of 8 days; a test multiplies what they measured."""
    attempts = Attempts(tmp_path_factory.mktemp("days"))
    for day in range(8):
        measured(attempts, 1.0, day)
    return joined(attempts.store.location, history=True).attempts


def varied(frame: pd.DataFrame, kind: Kind, draw: np.random.Generator, **later: float) -> pd.DataFrame:
    """What processes measure that vary as the model says, each cell in its own way; later: how many times as long from
    a day of November on."""
    cells, each = pd.factorize(frame["measurement_id"])
    freedom, (attempts, names) = PRIORS[kind].freedom, pd.factorize(frame["attempt_id"])
    deviation = PRIORS[kind].scale * np.sqrt(freedom / draw.chisquare(freedom, len(each)))
    factor = np.exp(deviation[cells] * draw.standard_normal(len(names))[attempts])
    for day, change in later.items():
        factor = np.where(frame["started_at"].dt.day >= int(day[1:]), change * factor, factor)
    scaled = ("median", "low", "high", "mean", "std", "min", "max")
    return frame.assign(**{name: frame[name].astype(float) * factor for name in scaled})


@pytest.mark.slow
def test_at_most_one_history_of_twenty_without_a_change_names_one(days: pd.DataFrame) -> None:
    frame, draw, count = days[days["metric"] == "time"], np.random.default_rng(7), 40
    found = [list(histories(varied(frame, "wall", draw), ())) for _ in range(count)]
    assert sum(bool(one.changes) for [one] in found) <= 0.05 * count


@pytest.mark.slow
def test_a_change_by_a_twentieth_is_found_on_its_day(days: pd.DataFrame) -> None:
    [found] = histories(varied(days, "device", np.random.default_rng(1), d6=1.05), ())
    assert list(found.changes) == ["2026-11-06"]
