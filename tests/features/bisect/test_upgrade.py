"""The table `upgrade`: what another release brings, cell by cell."""

from dataclasses import replace

import pytest

from lmsweep.analysis.presets import make_preset
from lmsweep.analysis.tables.listing import Listing
from lmsweep.trials.spec.config import RequestError
from tests.support.made_up_results import H200, Attempts, gpu


def measured(attempts: Attempts, software: str | None, version: str, milliseconds: dict[int, float]) -> None:
    """Steps on a GPU; the device is busy for four fifths of each. Context length -> device time."""
    there = replace(H200, torch_version=version)
    for context, device in milliseconds.items():
        trial = gpu(context_length=context, software=software)
        attempts.step(trial, device * 1.25e-3, device * 1e-3, within=1e-4, fingerprint=there)


def table_of(attempts: Attempts) -> Listing:
    found = make_preset("upgrade", attempts.store)
    assert isinstance(found, Listing)
    return found


def test_every_release_is_compared_with_the_oldest_by_device_time(attempts: Attempts) -> None:
    measured(attempts, "torch==2.12.0", "2.12.0+cu130", {256: 10.0, 512: 20.0})
    measured(attempts, None, "2.11.0", {256: 12.0, 512: 20.0})
    measured(attempts, "torch==2.9.1", "2.9.1", {256: 15.0, 512: 21.0})
    table = table_of(attempts)
    assert table.title.startswith("each release (contrast) against torch==2.9.1 (baseline)")
    rows = table.frame.set_index(["software", "context_length"])
    assert set(rows["value"]) == {"step.device_time"}
    newest, installed = rows.loc["torch==2.12.0"], rows.loc["installed (torch 2.11.0)"]
    assert newest["ratio"].to_list() == pytest.approx([10 / 15, 20 / 21], rel=1e-3)
    assert installed["ratio"].to_list() == pytest.approx([12 / 15, 20 / 21], rel=1e-3)
    assert set(newest["verdict"]) == {"faster"}


def test_two_softwares_need_no_column_for_the_software(attempts: Attempts) -> None:
    measured(attempts, "torch==2.9.1", "2.9.1", {256: 10.0})
    measured(attempts, "torch==2.12.0", "2.12.0", {256: 10.05})
    table = table_of(attempts)
    assert "torch==2.12.0 (contrast) against torch==2.9.1 (baseline)" in table.title
    assert table.frame["verdict"].to_list() == ["same"] and "software" not in table.frame


def test_a_release_that_cannot_be_installed_is_a_failed_cell(attempts: Attempts) -> None:
    measured(attempts, None, "2.11.0", {256: 10.0})
    there = replace(H200, torch_version="9.9.9")
    attempts.failed(gpu(context_length=256, software="torch==9.9.9"), "unsupported", fingerprint=there)
    assert table_of(attempts).frame["verdict"].to_list() == ["failed"]


def test_stores_without_the_field_compare_the_versions_of_torch(attempts: Attempts) -> None:
    measured(attempts, None, "2.11.0", {256: 10.0})
    with pytest.raises(RequestError, match=r"one software only \(2\.11\.0\)"):
        table_of(attempts)
    measured(attempts, None, "2.12.0", {256: 8.0})
    assert table_of(attempts).frame["verdict"].to_list() == ["faster"]
