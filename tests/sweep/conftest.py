"""A text as a sweep file, and as one grid of it."""

from pathlib import Path

import pytest

from lmsweep.orchestrator.sweep.sweep import Sweep, load_sweep


@pytest.fixture
def sweep_of(tmp_path, monkeypatch):
    """Loads a text as the file s.yaml."""
    monkeypatch.chdir(tmp_path)

    def load(text: str | bytes, **overrides) -> Sweep:
        Path("s.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_sweep("s.yaml", overrides)

    return load


@pytest.fixture
def grid_of(sweep_of):
    """Loads one grid of timing; its first key is on line 4."""

    def load(text: str, **overrides) -> Sweep:
        lines = "".join(f"    {line}\n" for line in text.splitlines())
        return sweep_of(f"name: s\ngrids:\n  - workloads: [timing]\n{lines}", **overrides)

    return load
