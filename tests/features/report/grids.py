"""A store that most tests of pages need: steps on a GPU, of each precision at several context lengths."""

from pathlib import Path
from typing import Any

from tests.support.made_up_results import Attempts, gpu


def grid(tmp_path: Path, times: dict[str, list[float]], *, on_gpu: bool = True, **more: Any) -> str:
    """The location of a new store with steps of each precision, which take its times in ms, on the GPU as by the wall.

    on_gpu: whether the store has the times of the GPU, too.
    """
    attempts = Attempts(tmp_path / "results")
    for precision, of_lengths in times.items():
        for length, time in zip((128, 256, 512, 1024), of_lengths, strict=False):
            trial, seconds = gpu(context_length=length, precision=precision), time / 1e3
            attempts.step(trial, seconds, seconds if on_gpu else None, **more)
    return attempts.store.location
