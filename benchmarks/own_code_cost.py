"""How much longer a trial takes, from start to row, if its model is a reference: of lmsweep's own transformer.

    python benchmarks/own_code_cost.py [PAIRS]

A copy of the transformer's file in a folder of its own is measured as somebody else's model, in pairs with the built-in
one, each trial in a process of its own, as in a sweep. Which of a pair comes first alternates. The last line is the
median of the pairs' ratios, with the smallest and the largest.
"""

import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.model import transformer
from lmsweep.trials.results.record import records_of
from lmsweep.trials.spec.config import Trial

SETTINGS = ("workloads=timing", "context_length=128", "batch_size=1", "warmup_steps=2", "measure_steps=5")
WRAPPER = """

def make(vocab_size, context_length, d_model, d_ff, num_layers, num_heads, device, dtype):
    from lmsweep.trials.model.attention import naive

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
        built_in = single_trial([*SETTINGS, "model=small"])
        size = ("d_model=768", "d_ff=3072", "num_layers=12", "num_heads=12")
        own = single_trial([*SETTINGS, *size, "model=copied.py:make"], code=folder)
        seconds(runner, built_in)  # the server starts, and moves into huge pages after its first trial
        seconds(runner, own)
        ratios = []
        for i in range(pairs):
            order = (built_in, own) if i % 2 == 0 else (own, built_in)
            taken = {trial is own: seconds(runner, trial) for trial in order}
            ratios.append(taken[True] / taken[False])
            print(
                f"{taken[False]:.2f} s built in, {taken[True]:.2f} s as a reference: {ratios[-1] - 1:+.1%}", flush=True
            )
    low, median, high = min(ratios) - 1, statistics.median(ratios) - 1, max(ratios) - 1
    print(f"median {median:+.1%}, from {low:+.1%} to {high:+.1%}; load average {os.getloadavg()[0]:.0f}")


def seconds(runner: IsolatedRunner, trial: Trial) -> float:
    """Return the seconds from the request to the rows."""
    began = time.monotonic()
    rows = records_of(runner.run(trial, fallback=fingerprint("cpu")))
    taken = time.monotonic() - began
    failures = [row.error for row in rows if row.status != "ok"]
    assert not failures, failures[0]
    return taken


if __name__ == "__main__":
    main()
