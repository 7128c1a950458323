"""A store that most tests of pages need: steps on a GPU, of each precision at several context lengths."""

from pathlib import Path
from typing import Any

from tests.support.made_up_results import Attempts, config, samples


def grid(tmp_path: Path, times: dict[str, list[float]], **more: Any) -> str:
    """The location of a new store with steps of each precision, which take its times in ms."""
    attempts = Attempts(tmp_path / "results")
    for precision, of_lengths in times.items():
        for length, time in zip((128, 256, 512, 1024), of_lengths, strict=False):
            trial = config(device="cuda", context_length=length, precision=precision)  # type: ignore[arg-type]
            values = {f"step.{metric}": samples(time / 1e3, time / 1e6) for metric in ("time", "device_time")}
            attempts.ok(trial, values, **more)
    return attempts.store.location
