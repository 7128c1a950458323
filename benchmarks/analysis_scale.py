"""Time and memory of loading, pivoting and comparing a large store.

python benchmarks/analysis_scale.py generate FOLDER   # 10 000 trials, 1 000 000 samples, through the store; compacted
python benchmarks/analysis_scale.py measure FOLDER
"""

import resource
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import numpy as np

from lmsweep.trials.results.environment import Fingerprint, environment_id
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.identity import measurement_id, trial_id
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.store.store import Store

MODELS = ("small", "medium", "large", "xl", "2.7b")
PHASES = ("forward", "backward", "optimizer", "step")
ITERATIONS = 25
"""Samples of each phase: 10 000 trials of four phases make a million."""


def trials() -> Iterator[TrialConfig]:
    """10 000 configurations."""
    contexts, batches = range(128, 128 * 51, 128), range(1, 6)
    for model, context, batch, precision, compiled, attention in product(
        MODELS, contexts, batches, ("tf32", "bf16"), ("none", "block"), ("naive", "sdpa")
    ):
        size = SIZES[model]
        yield TrialConfig(
            model=model, d_model=size.d_model, d_ff=size.d_ff, num_layers=size.num_layers, num_heads=size.num_heads,
            context_length=context, batch_size=batch, precision=precision, compile=compiled, attention=attention,
            device="cuda",
        )  # fmt: skip


def generate(folder: str) -> None:
    """Write the store."""
    fingerprint = Fingerprint(
        device_name="NVIDIA H200", device_memory=150_000_000_000, driver_version="580", cuda_version="13.0",
        torch_version="2.11.0", triton_version="3.6.0", python_version="3.12", float32_matmul="tf32",
    )  # fmt: skip
    environment, began = environment_id(fingerprint), datetime(2026, 1, 1, tzinfo=UTC)
    random, store = np.random.default_rng(0), Store(folder)
    for number, config in enumerate(trials()):
        base = 1e-3 * (1 + number % 97)
        times = base * np.exp(0.01 * random.standard_normal((len(PHASES), ITERATIONS)))
        store.append(
            [
                Record(
                    trial_id=trial_id(config), measurement_id=measurement_id(config, "timing"),
                    environment_id=environment, attempt_id=f"{number:016x}", sweep="large", workload="timing",
                    status="ok", started_at=began + timedelta(seconds=number), config=config, fingerprint=fingerprint,
                    phase=phase, metric="time", unit="s", samples=tuple(series),
                )
                for phase, series in zip(PHASES, times.tolist(), strict=True)
            ]
        )  # fmt: skip
        if number % 1000 == 999:
            store.compact()
            print(f"{number + 1} trials", flush=True)


def measure(folder: str) -> None:
    """Time each operation on the store, and print the peak of resident memory."""
    from lmsweep import analysis
    from lmsweep.analysis.comparison.compare import compare, select_sides

    def timed(what: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{what:24} {time.perf_counter() - start:5.2f} s, most memory so far {most:.2f} GiB")

    def load_and_pivot() -> None:
        frame = analysis.load(folder)
        rows, cols, values = analysis.default_layout(frame)
        analysis.pivot(frame, rows=rows, cols=cols, values=values, where={})

    def load_and_compare() -> None:
        frame = analysis.load(folder, pooled=False)
        sides = select_sides(frame, {"precision": "tf32"}, {"precision": "bf16"})
        values = [f"{phase}.time" for phase in PHASES]
        found = compare(sides[0], sides[1], between=sides[2], values=values)
        print(f"{len(found.frame)} cells compared")

    timed("load and pivot", load_and_pivot)
    timed("load and compare", load_and_compare)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("generate", "measure"):
        sys.exit(__doc__)
    Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    (generate if sys.argv[1] == "generate" else measure)(sys.argv[2])
