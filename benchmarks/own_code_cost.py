"""How much longer a trial takes, from start to row, if its model is a reference: of lmsweep's own transformer.

    python benchmarks/own_code_cost.py [PAIRS]

A copy of the transformer's file in a folder of its own is measured as somebody else's model, in pairs with the built-in
one, each trial in a process of its own, as in a sweep. Which of a pair comes first alternates. The last lines are the
medians of the pairs' ratios, with the smallest and the largest. On busy cores, CPU time says more than wall time.
"""

import os
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.model.transformer import transformer
from lmsweep.trials.results.record import records_of
from lmsweep.trials.spec.config import Trial

SETTINGS = (
    *("d_model=256", "d_ff=768", "num_layers=8", "num_heads=8", "vocab_size=1024", "context_length=64", "batch_size=1"),
    *("workloads=timing", "warmup_steps=2", "measure_steps=10"),
)
WRAPPER = """

def make(vocab_size, context_length, d_model, d_ff, num_layers, num_heads, device, dtype):
    from functools import partial

    from lmsweep.trials.model.transformer.attention_functions import naive
    from lmsweep.trials.spec.model_sizes import ModelSize

    size = ModelSize(d_model=d_model, d_ff=d_ff, num_layers=num_layers, num_heads=num_heads)
    attention = partial(naive, causal=True)
    shape = {"vocab_size": vocab_size, "context_length": context_length}
    return Transformer(size, **shape, attention=attention, device=device, dtype=dtype)
"""


def main() -> None:
    """Measure the pairs and print each."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with TemporaryDirectory() as folder, IsolatedRunner() as runner:
        Path(folder, "copied.py").write_text(Path(transformer.__file__ or "").read_text() + WRAPPER)
        built_in = single_trial(SETTINGS)
        own = single_trial([*SETTINGS, "model=copied.py:make"], code=folder)
        own = replace(own, flops=Predictions([own]).flops(own))  # planning counts them before the trial
        cost(runner, built_in)  # the server starts, and moves into huge pages after its first trial
        cost(runner, own)
        ratios = []
        for i in range(pairs):
            order = (built_in, own) if i % 2 == 0 else (own, built_in)
            taken = {trial is own: cost(runner, trial) for trial in order}
            ratios.append(taken[True].over(taken[False]))
            print(f"built in {taken[False]}, as a reference {taken[True]}", flush=True)
    for what, values in (("wall time", [one.wall for one in ratios]), ("CPU time", [one.cpu for one in ratios])):
        low, median, high = (value - 1 for value in (min(values), statistics.median(values), max(values)))
        print(f"{what}: median {median:+.1%}, from {low:+.1%} to {high:+.1%}")
    print(f"load average {os.getloadavg()[0]:.0f}")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one trial took, or the ratio of two such."""

    wall: float
    """Seconds from the request to the rows."""
    cpu: float
    """CPU seconds of its process."""

    def over(self, other: "Cost") -> "Cost":
        """Return the ratios to another."""
        return Cost(wall=self.wall / other.wall, cpu=self.cpu / other.cpu)

    def __str__(self) -> str:
        return f"{self.wall:.2f} s ({self.cpu:.2f} s of CPU)"


def cost(runner: IsolatedRunner, trial: Trial) -> Cost:
    """Run the trial and return what it took."""
    began = time.monotonic()
    rows = records_of(runner.run(trial, fallback=fingerprint("cpu")))
    wall = time.monotonic() - began
    failures = [row.error for row in rows if row.status != "ok"]
    assert not failures, failures[0]
    return Cost(wall=wall, cpu=cpu_of_ended_child())


def cpu_of_ended_child() -> float:
    """CPU seconds of the trial's process, which the server has killed and waits for only before the next one begins."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for child in (child for server in psutil.Process().children() for child in server.children()):
            if child.status() == psutil.STATUS_ZOMBIE:
                return child.cpu_times().user + child.cpu_times().system
        time.sleep(0.05)
    raise TimeoutError("no process of a trial has ended")


if __name__ == "__main__":
    main()
