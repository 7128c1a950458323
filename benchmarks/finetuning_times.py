"""Times of fine-tuning steps that no figure was fitted to: write predictions before they run, then compare.

python benchmarks/finetuning_times.py predict CELLS                          # without a GPU
python benchmarks/finetuning_times.py measure CELLS SECONDS RESULTS.json     # on GPU; starts no step after SECONDS
python benchmarks/finetuning_times.py compare [CELLS RESULTS.json]           # without them: both sets, as measured

CELLS: `first`, predicted before any of them ran; `second`, after prices of adapters and of weights in 4 bits were
fitted to `first`; `third`, after the interval with measured launches was widened to hold both, and operators whose
operands lie apart, AdamW in bfloat16 and weights in 4 bits were measured by themselves. Predictions are in
finetuning-times-CELLS.json, what was measured in finetuning-measured-CELLS.json.

Each cell is timed in a fresh process from random weights: STEPS steps, the first WARMING of them not counted, and two
more that are traced for the device's time. The host's launches are measured as `lmsweep run operators` does it.
`compare` counts how many intervals held, with a host that nobody measured and with those launches; "device off" is
what the device was predicted to take over what it took, in the median of a method, at least and at most. Needs
lmsweep[hf,qlora], and no network.
"""

import json
import multiprocessing
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, Literal, NamedTuple

from finetuning_frontier import GPU, LONGEST, import_before_forks, run
from frontier import device
from tabulate import tabulate

from lmsweep.orchestrator.fitting.fit_request import FULL, FitRequest
from lmsweep.orchestrator.planning.step_estimate import in_precision
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.rates.intervals import Spread, Sure, spread_for
from lmsweep.trials.analytic.rates.rate_set import HOSTS, LAUNCHES, MEASURED_HOSTS, rates_of
from lmsweep.trials.analytic.rates.step_time import StepTime, step_time
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.capacity.device_room import any_batch_step, prepare
from lmsweep.trials.prediction.peak_memory import summary
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.workloads.operators.operator_times import launch_times

SMALL, MEDIUM, LARGE = (f"Qwen/Qwen3-{size}" for size in ("0.6B", "1.7B", "8B"))
LLAMA = "meta-llama/Llama-3.1-8B"
BLOCKS = "checkpointing=block"
Cell = tuple[str, str, tuple[str, ...], int, int]
FIRST: tuple[Cell, ...] = (
    (LLAMA, "lora", (), 4096, 2),
    (SMALL, FULL, (), 2048, 8),
    (MEDIUM, "lora", ("offload=activations",), 2048, 2),
    (LLAMA, "qlora", (), 2048, 4),
    (SMALL, "lora", (BLOCKS,), 1024, 4),
    (MEDIUM, FULL, (), 1024, 8),
    (LARGE, "dora", (), 2048, 2),
    (SMALL, "qlora", (), 512, 2),
    (LLAMA, FULL, (BLOCKS,), 4096, 2),
    (MEDIUM, "qlora", (BLOCKS,), 4096, 2),
    (SMALL, "dora", (), 1024, 2),
    (LARGE, "lora", (BLOCKS,), 1024, 8),
    (SMALL, FULL, ("offload=activations",), 4096, 2),
    (LLAMA, "dora", (BLOCKS,), 2048, 4),
    (MEDIUM, "lora", (), 2048, 4),
    (SMALL, FULL, (), 16384, 1),
    (LARGE, "qlora", (), 8192, 1),
    (SMALL, FULL, ("offload=optimizer",), 1024, 4),
    (LLAMA, "qlora", (BLOCKS,), 1024, 1),
    (MEDIUM, FULL, (BLOCKS,), 2048, 4),
    (LARGE, FULL, (), 1024, 2),
    (MEDIUM, "dora", (), 512, 8),
    (LLAMA, "lora", (BLOCKS,), 8192, 1),
    (SMALL, "lora", (), 256, 4),
    (MEDIUM, "lora", (), 16384, 1),
    ("Qwen/Qwen3-30B-A3B", "lora", (BLOCKS,), 2048, 1),
    ("Qwen/Qwen3-32B", "qlora", (BLOCKS,), 2048, 1),
    ("Qwen/Qwen3-32B", "lora", (), 1024, 1),
)
SECOND: tuple[Cell, ...] = (
    (SMALL, "lora", (), 512, 1),
    (MEDIUM, "qlora", (), 512, 1),
    (MEDIUM, "lora", (BLOCKS,), 1024, 1),
    (LARGE, "qlora", (BLOCKS,), 512, 1),
    (SMALL, "dora", (), 256, 2),
    (LARGE, FULL, (), 512, 2),
    (MEDIUM, "qlora", (), 256, 4),
    (MEDIUM, FULL, (), 256, 2),
    (LARGE, "lora", (), 4096, 2),
    (LARGE, "lora", (BLOCKS,), 512, 2),
    (SMALL, "qlora", (), 2048, 4),
    (LLAMA, "dora", (BLOCKS,), 512, 1),
    (MEDIUM, FULL, (BLOCKS,), 8192, 2),
    (LLAMA, "qlora", (), 256, 1),
    (SMALL, "lora", ("offload=activations",), 2048, 2),
    (MEDIUM, FULL, ("offload=optimizer",), 2048, 4),
    (LLAMA, "lora", (), 512, 1),
    (LARGE, "dora", (), 1024, 1),
    (LLAMA, "qlora", (), 4096, 2),
    (SMALL, "lora", (), 8192, 4),
    (SMALL, FULL, (BLOCKS,), 512, 2),
    (LLAMA, "qlora", (BLOCKS,), 4096, 2),
    (SMALL, FULL, (), 256, 1),
    (SMALL, "qlora", (BLOCKS,), 512, 4),
)
THIRD: tuple[Cell, ...] = (
    (LARGE, "dora", (), 4096, 1),
    (LARGE, "qlora", (), 1024, 2),
    (MEDIUM, FULL, (), 4096, 2),
    (LLAMA, "lora", (), 2048, 2),
    (SMALL, "dora", (), 4096, 2),
    (SMALL, "lora", (BLOCKS,), 512, 1),
    (LARGE, FULL, (), 2048, 1),
    (MEDIUM, "qlora", (), 1024, 1),
    (LLAMA, "dora", (), 1024, 2),
    (SMALL, FULL, (), 1024, 1),
    (LARGE, "lora", (BLOCKS,), 2048, 4),
    (LLAMA, "qlora", (BLOCKS,), 2048, 1),
    (MEDIUM, "dora", (BLOCKS,), 2048, 4),
    (SMALL, "qlora", (), 1024, 8),
    (LLAMA, FULL, (BLOCKS,), 1024, 4),
    (MEDIUM, "lora", (), 256, 1),
    (SMALL, FULL, (BLOCKS,), 4096, 4),
    (LARGE, "qlora", (), 512, 1),
    (MEDIUM, "lora", ("offload=activations",), 4096, 1),
    (SMALL, FULL, ("offload=optimizer",), 2048, 2),
    (LARGE, "dora", (BLOCKS,), 512, 2),
    (SMALL, "lora", (), 1024, 2),
    ("Qwen/Qwen3-32B", "qlora", (BLOCKS,), 4096, 1),
    (LLAMA, "lora", (BLOCKS,), 256, 2),
    (MEDIUM, FULL, (), 512, 1),
    ("Qwen/Qwen3-30B-A3B", "lora", (), 1024, 1),
)
CELLS = {"first": FIRST, "second": SECOND, "third": THIRD}
"""Set -> model, method, settings, tokens of a sequence and batch of its cells; the most important first."""
STEPS = 5
WARMING = 2


def config_of(model: str, method: str, settings: tuple[str, ...], context: int, batch: int) -> TrialConfig:
    chosen = settings if any("checkpointing" in one for one in settings) else (*settings, "checkpointing=none")
    request = FitRequest(f"hf:{model}", context=context, methods=[method], settings=chosen)
    return replace(request.trial().config, batch_size=batch)


@dataclass(frozen=True)
class Stored:
    """The parts of a StepTime."""

    computing: float
    launching: float
    unsure: tuple[float, float]
    """What assumptions about operators change at least and at most, in seconds."""
    hosts: tuple[float, float] = HOSTS

    def at(self, factor: float, end: Literal[0, 1] | None = None) -> float:
        more = 0.0 if end is None else self.unsure[end]
        time = StepTime(
            parts=(), computing=self.computing + more, launching=self.launching, hosts=self.hosts, host_source=""
        )
        return time.at(factor, end)


def spread() -> Spread:
    found = find_device(GPU)
    assert found is not None, "it has a datasheet"
    return spread_for(found.name, rates_of(found).level)


def predicted_of(cells: str) -> Path:
    return Path(__file__).with_name(f"finetuning-times-{cells}.json")


def predict(cells: str) -> None:
    """Write what is predicted of each cell."""
    if code := FitRequest(f"hf:{SMALL}", methods=[FULL]).trial().code:
        use_code(code)
    prepare([config_of(*CELLS[cells][0])], code)
    with multiprocessing.get_context("fork").Pool() as pool, predicted_of(cells).open("w") as file:
        file.write("[")
        for number, cell in enumerate(pool.imap(_predicted, CELLS[cells])):
            file.write((",\n" if number else "\n") + json.dumps(cell))
            file.flush()
        file.write("\n]\n")


def _predicted(cell: tuple[str, str, tuple[str, ...], int, int]) -> dict[str, object]:
    gpu, config = find_device(GPU), config_of(*cell)
    assert gpu is not None, "it has a datasheet"
    step = any_batch_step(config)
    time = step_time(in_precision(step.operators(config.batch_size), config), rates_of(gpu))
    stored = Stored(time.computing, time.launching, (time.unsure(0), time.unsure(1)))
    return {
        "cell": cell,
        "config": vars(config),
        "peak": summary(step.trace.at(config.batch_size), config).on(gpu.name).peak,
        "time": [stored.computing, stored.launching, stored.unsure],
        "seconds": spread().of(stored),
    }


def measure(cells: str, seconds: float, results: Path) -> None:
    """Measure cells until then, and write each at once."""
    began = time.monotonic()
    import_before_forks()
    found: dict[str, Any] = {"gpu": device(), "cells": [], "launches": [_launches()]}
    predicted = json.loads(predicted_of(cells).read_text())
    for one in predicted:
        left = seconds - (time.monotonic() - began)
        if left < 15:
            break
        ran = run(TrialConfig(**one["config"]), STEPS, min(left, LONGEST), warming=WARMING, traces=True)
        found["cells"].append({"cell": one["cell"], **ran._asdict()})
        results.write_text(json.dumps(found, indent=1))
        print(f"{time.monotonic() - began:.0f} s", *one["cell"], ran, "predicted", one["seconds"], flush=True)
    found["launches"].append(_launches())
    results.write_text(json.dumps(found, indent=1))
    compare({cells: results})


def _launches() -> dict[str, float]:
    """Seconds of the launches of a plan's LAUNCHES, in a fresh process."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(_launches_here)


def _launches_here() -> dict[str, float]:
    return {f"launch_{name}": seconds for name, seconds in launch_times("cuda")}


class Compared(NamedTuple):
    """A cell that ran, beside its prediction."""

    cell: Cell
    seconds: float
    device_off: float | None
    """Predicted over measured seconds of the device, less 1; None where the prediction includes what the host does."""
    peak_off: float
    unknown: Sure
    """Predicted before, with a host that nobody measured."""
    known: Sure
    """With the launches of that host, and today's MEASURED_HOSTS."""

    @property
    def method(self) -> str:
        """The method, or what is offloaded."""
        return next((one for one in self.cell[2] if "offload" in one), self.cell[1])

    def holds(self, predicted: Sure) -> bool:
        return predicted.low <= self.seconds <= predicted.high


def measured_of(cells: str) -> Path:
    return Path(__file__).with_name(f"finetuning-measured-{cells}.json")


def compared(cells: str, results: Path) -> list[Compared]:
    """Return the cells of a set that ran, beside their predictions."""
    ran = json.loads(results.read_text())
    # as `plan` takes it from a store
    host = min(geometric_mean(one[name] / usual for name, usual in LAUNCHES.items()) for one in ran["launches"])
    predicted = {json.dumps(one["cell"]): one for one in json.loads(predicted_of(cells).read_text())}
    found = []
    for one in (one for one in ran["cells"] if one["seconds"]):
        known = predicted[json.dumps(one["cell"])]
        computing, launching, unsure = known["time"]
        is_offloaded = any("offload" in setting for setting in one["cell"][2])
        found.append(
            Compared(
                cell=one["cell"],
                seconds=one["seconds"],
                device_off=None if is_offloaded else spread().factor * computing / one["device_seconds"] - 1,
                peak_off=known["peak"] / one["peak"] - 1,
                unknown=Sure(*known["seconds"]),
                known=spread().of(Stored(computing, host * launching, unsure, MEASURED_HOSTS)),
            )
        )
    return found


def compare(results: Mapping[str, Path]) -> None:
    """Print each cell beside its prediction, and by method how far off they are and how many intervals held."""
    found = [one for cells, path in results.items() for one in compared(cells, path)]
    lines = []
    for one in found:
        line = [*one.cell, f"{one.seconds:.4g}", _percent(one.device_off), f"{one.peak_off:+.2%}"]
        for middle, low, high in (one.unknown, one.known):
            held = "" if low <= one.seconds <= high else " no"
            line.append(f"{middle:.4g} ({low:.4g} to {high:.4g}){held}")
        lines.append(line)
    headers = ["model", "method", "settings", "tokens", "batch", "s", "device off", "peak off", "host unknown", "known"]
    print(tabulate(lines, headers=headers, disable_numparse=True, tablefmt="github"))
    lines = []
    for method in (*dict.fromkeys(one.method for one in found), "all"):
        here = [one for one in found if method in (one.method, "all")]
        device = sorted(one.device_off for one in here if one.device_off is not None)
        peak = max(abs(one.peak_off) for one in here)
        held = [sum(one.holds(getattr(one, host)) for one in here) for host in ("unknown", "known")]
        middle, least, most = (median(device), device[0], device[-1]) if device else (None, None, None)
        lines.append([method, len(here), _percent(middle), _percent(least), _percent(most), f"{peak:.2%}", *held])
    headers = ["method", "cells", "device off", "least", "most", "peak off", "host unknown: held", "known: held"]
    print(tabulate(lines, headers=headers, disable_numparse=True, tablefmt="github"))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:+.1%}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["predict", cells]:
            predict(cells)
        case ["measure", cells, seconds, results]:
            measure(cells, float(seconds), Path(results))
        case ["compare", cells, results]:
            compare({cells: Path(results)})
        case ["compare"]:
            compare({cells: measured_of(cells) for cells in CELLS})
        case _:
            sys.exit(__doc__)
