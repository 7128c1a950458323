"""Scaling of a sweep over several GPUs of one host.

python benchmarks/several_gpus.py scaling FOLDER [--gpus 1,2,4,8] [--sweep FILE] [--set axis=a,b ...]
                                                 [--before CHECKOUT] [--repeat N]
python benchmarks/several_gpus.py foreign FOLDER [--gpus 2]

`scaling` first runs the sweep on all GPUs to fill an empty compile cache. It then runs it with each number of GPUs
visible, each time into a fresh store under FOLDER. It prints trials per hour, the device time of every cell against one
GPU, and where the time of each worker goes. With `--before` it alternates with the command of another checkout.
`foreign` shows whether a trial is flagged when another process uses its GPU.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pandas as pd
from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.trials.machine import interpreter
from lmsweep.trials.machine.cpu_affinity import find_gpus

ROOT = Path(__file__).parent.parent
FOREIGN = """
import os
import torch
parent = os.getppid()
a = torch.randn(4096, 4096, device="cuda")
print(flush=True)
while os.getppid() == parent:
    a @ a
    torch.cuda.synchronize()
"""
"""A program that keeps a GPU busy as long as its parent lives."""
ONE_TRIAL = ["--set", "model=large", "--set", "precision=bf16", "--set", "compile=none", "--set", "context_length=256"]
ONE_DATA_PARALLEL = ["--set", "model=large", "--set", "ddp=bucketed", "--set", "bucket_bytes=100000000"]
"""One trial of the sweep `ddp` with two ranks."""

CELL = ["model", "context_length", "precision", "compile"]
"""Columns that distinguish the trials of the sweep."""

PURPOSES = ["precompile", "setup", "compile", "warmup", "measured", "profiled"]
"""What a trial spends time on, in this order."""

CLOCKS_DIFFER = 0.05
"""Seconds by which the start of a trial, of the wall clock, and the sum of its parts may disagree."""


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A version of lmsweep that is run."""

    label: str
    root: Path
    """The folder that contains `lmsweep`."""

    def command(self, *arguments: str) -> list[str]:
        starter = self.root / "lmsweep" / "trials" / "machine" / "interpreter.py"
        return [sys.executable, "-P", str(starter), "lmsweep.orchestrator.cli", *arguments]


HERE = Checkout(label="now", root=ROOT)

COUNTS = [1, 2, 4, 8]
"""Numbers of GPUs that `scaling` tries."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the command, and the rows that it stored."""

    checkout: Checkout
    gpus: int
    """Number of visible GPUs."""
    began: float
    """time.time() at the start of the command."""
    seconds: float
    """Duration of the command."""
    steps: pd.DataFrame
    """The rows of step.device_time, or of step.time without a GPU, indexed by CELL."""
    trials: pd.DataFrame
    """One row per trial, in the order of requests: the seconds of each purpose, and when it `began` and `ended`."""

    @property
    def per_hour(self) -> float:
        """Trials per hour of the whole command."""
        return 3600 * len(self.trials) / self.seconds

    @property
    def trials_seconds(self) -> float:
        """Seconds from the request for the first trial to the end of the last trial."""
        return float(self.trials["ended"].max() - self.trials["began"].min())

    def speed_at_work(self, alone: pd.Series) -> float:
        """Speedup over one GPU while all GPUs are busy.

        `alone` holds the seconds of each trial on one GPU. The interval starts when each GPU can have ended its first
        trial, which waits for its worker, and ends when the first GPU has no trial left.
        """
        ends = self.trials["ended"].sort_values()
        since, until = ends.iloc[self.gpus - 1], ends.iloc[-self.gpus]
        if until <= since:
            return float("nan")
        inside = self.trials[["began", "ended"]].clip(lower=since, upper=until)
        parts = (inside["ended"] - inside["began"]) / (self.trials["ended"] - self.trials["began"])
        return float((alone * parts).sum() / (until - since))

    def workers(self) -> list[pd.DataFrame]:
        """Return the trials of each worker: a trial follows the one that ended last before it began."""
        found: list[list[int]] = []
        for place, (began, precompiled) in enumerate(zip(self.trials["began"], self.trials["precompile"], strict=True)):
            free = [one for one in found if self.trials["ended"].iloc[one[-1]] <= began - precompiled + CLOCKS_DIFFER]
            if free and len(found) >= self.gpus:
                max(free, key=lambda one: self.trials["ended"].iloc[one[-1]]).append(place)
            else:
                found.append([place])
        return [self.trials.iloc[places] for places in found]


def run(store: Path, gpus: int, arguments: Sequence[str], checkout: Checkout = HERE) -> Run:
    visible = ",".join(map(str, range(gpus)))
    environment = interpreter.environment() | {
        "CUDA_VISIBLE_DEVICES": visible,
        "TORCHINDUCTOR_CACHE_DIR": str(store.parent / "compile-cache"),
    }
    command = checkout.command("run", *arguments, "--store", str(store))
    began = time.time()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.time() - began
    (store.parent / f"{store.name}.txt").write_text(done.stdout + done.stderr)
    account = [line for line in done.stdout.splitlines() if ": setup " in line]
    print(f"{store.name}: {seconds:.1f} s, exit code {done.returncode}; {' '.join(account)}", flush=True)
    frame = load(str(store))
    frame["name"] = frame["phase"] + "." + frame["metric"]
    steps = frame[frame["name"] == "step.device_time"]
    if steps["median"].isna().all():
        steps = frame[frame["name"] == "step.time"]
    return Run(
        checkout=checkout,
        gpus=gpus,
        began=began,
        seconds=seconds,
        steps=steps.set_index(CELL).sort_index(),
        trials=_trials(frame),
    )


def _trials(frame: pd.DataFrame) -> pd.DataFrame:
    parts = frame[(frame["phase"] == "trial") & frame["metric"].isin([f"{one}_time" for one in PURPOSES])]
    wide = parts.pivot_table(index=CELL, columns="metric", values="median", aggfunc="sum", fill_value=0.0)
    wide = wide.rename(columns=lambda name: name.removesuffix("_time")).reindex(columns=PURPOSES, fill_value=0.0)
    wide["began"] = parts.groupby(CELL)["started_at"].first().map(lambda at: at.timestamp())
    # Precompilation comes before the request.
    wide["ended"] = wide["began"] + wide[[one for one in PURPOSES if one != "precompile"]].sum(axis=1)
    return wide.sort_values("began")


def alone_seconds(run: Run) -> pd.Series:
    """Seconds from the start of each trial to the start of the next, on one GPU."""
    trials = run.trials.sort_values("began")
    return (trials["began"].shift(-1) - trials["began"]).fillna(trials["ended"] - trials["began"])


def rates(runs: Sequence[Run]) -> str:
    """One row per run. Ratios are against the median of the runs of the same checkout on one GPU."""
    lines = []
    for one in runs:
        alone = [other for other in runs if other.checkout == one.checkout and other.gpus == runs[0].gpus]
        first = alone[0]
        lines.append(
            [
                one.checkout.label,
                one.gpus,
                len(one.trials),
                one.seconds,
                one.per_hour,
                one.per_hour / median(other.per_hour for other in alone),
                median(other.trials_seconds for other in alone) / one.trials_seconds,
                one.speed_at_work(alone_seconds(first)),
                *within(first, one),
                one.steps["cores_used"].iloc[0],
            ]
        )
    headers = [
        "version",
        "GPUs",
        "trials",
        "command (s)",
        "trials/h",
        "ratio",
        "first trial to last",
        "all GPUs at work",
        "cells within 1 %",
        "median difference",
        "largest",
        "cores each",
    ]
    return tabulate(
        lines, headers=headers, floatfmt=("", "", "", ".1f", ".0f", ".2f", ".2f", ".2f", "", ".2%", ".2%", "")
    )


def within(alone: Run, one: Run) -> tuple[str, float, float]:
    """How many of the cells' device times are within 1 % of those on one GPU, the median and the largest difference."""
    size = (one.steps["median"] / alone.steps["median"] - 1).abs().dropna()
    return f"{(size <= 0.01).sum()} of {len(size)}", float(size.median()), float(size.max())


def worker_account(runs: Sequence[Run]) -> str:
    """Where the time of each worker goes, in seconds: the parts of a row add up to the duration of the command."""
    lines = []
    for one in runs:
        last = one.trials["ended"].max()
        for trials in one.workers():
            compiled = trials[trials["compile"] > 0]
            ready = trials["began"].iloc[0] - trials["precompile"].iloc[0]
            busy = trials[PURPOSES].sum()
            between = trials["ended"].iloc[-1] - ready - busy.sum()
            lines.append(
                [
                    one.checkout.label,
                    one.gpus,
                    len(trials),
                    ready - one.began,
                    trials["setup"].iloc[0],
                    busy["setup"] - trials["setup"].iloc[0],
                    trials["setup"].iloc[1:].median(),
                    busy["precompile"],
                    compiled["compile"].iloc[0] if len(compiled) else 0.0,
                    busy["compile"] - (compiled["compile"].iloc[0] if len(compiled) else 0.0),
                    busy["warmup"] + busy["measured"],
                    busy["profiled"],
                    between,
                    last - trials["ended"].iloc[-1],
                    one.began + one.seconds - last,
                ]
            )
    headers = [
        "version",
        "GPUs",
        "trials",
        "until the first request",
        "first set-up: import, context",
        "other set-ups",
        "(median)",
        "precompile",
        "first compile",
        "other compiles",
        "warm-up and steps",
        "traced steps",
        "between trials",
        "idle at the end",
        "end of the command",
    ]
    return tabulate(lines, headers=headers, floatfmt=".2f")


def differences(alone: Run, together: Run) -> str:
    """The cells whose device time differs most from that on one GPU."""
    columns = ["median", "low", "high"]
    both = alone.steps[columns].join(together.steps[columns].add_suffix("_2"))
    both["difference"] = both["median_2"] / both["median"] - 1
    both["disjoint"] = (both["low_2"] > both["high"]) | (both["high_2"] < both["low"])
    worst = both.reindex(both["difference"].abs().sort_values(ascending=False).index).head(8).reset_index()
    worst = worst[[*CELL, "median", "median_2", "difference", "disjoint"]]
    title = f"{together.gpus} GPUs against 1, {together.checkout.label}: the cells that differ most"
    return f"{title}\n{tabulate(worst.values.tolist(), headers=list(worst.columns), floatfmt='.4g')}"


def notices_foreign(store: Path, gpus: int, arguments: Sequence[str]) -> str:
    """Run a trial on `gpus` GPUs while another process uses the last of them; return its flags."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": str(gpus - 1)}
    with subprocess.Popen([sys.executable, "-c", FOREIGN], stdout=subprocess.PIPE, env=environment) as foreign:
        assert foreign.stdout is not None
        foreign.stdout.readline()
        try:
            shared = run(store, gpus, arguments)
        finally:
            foreign.kill()
    return f"beside a foreign process on GPU {gpus - 1}: {shared.steps[['median', 'flags']].to_dict('records')}"


def scaling(
    folder: Path, counts: Sequence[int], arguments: Sequence[str], checkouts: Sequence[Checkout], repeat: int
) -> None:
    for checkout in checkouts:  # each has a cache of predictions of its own
        # One measured step compiles the same graphs as twenty.
        cold = [*arguments, "--set", "warmup_steps=1", "--set", "measure_steps=1"]
        run(folder / f"{checkout.label}-cold", counts[-1], cold, checkout)
    runs = [
        run(folder / f"{checkout.label}-gpus-{count}-{turn}", count, arguments, checkout)
        for turn in range(1, repeat + 1)
        for count in counts
        for checkout in (checkouts if turn % 2 else checkouts[::-1])
    ]
    runs.sort(key=lambda one: (one.gpus, one.checkout.label))
    print(f"\n{rates(runs)}\n\n{worker_account(runs)}")
    for checkout in checkouts:
        of_it = [one for one in runs if one.checkout == checkout]
        together = {one.gpus: one for one in of_it if one.gpus > of_it[0].gpus}
        for one in together.values():
            print(f"\n{differences(of_it[0], one)}")


def foreign(folder: Path, counts: Sequence[int], sweep: str) -> None:
    print(notices_foreign(folder / "foreign", 1, [sweep, *ONE_TRIAL]))
    if counts[-1] > 1:
        print(notices_foreign(folder / "foreign-rank", 2, ["ddp", *ONE_DATA_PARALLEL]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["scaling", "foreign"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpus", help="Numbers of GPUs. Default: 1, 2, 4 and 8, as far as this machine has them.")
    parser.add_argument("--sweep", default=str(ROOT / "benchmarks" / "end-to-end.yaml"))
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--before", type=Path, help="Checkout of another version, which runs in alternation.")
    parser.add_argument("--repeat", type=int, default=1, help="Runs of each version with each number of GPUs.")
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    changes = [word for text in asked.set for word in ("--set", text)]
    present = max(1, len(find_gpus()))
    counts = sorted(int(count) for count in asked.gpus.split(",")) if asked.gpus else COUNTS
    counts = [count for count in counts if count <= present]
    if asked.what == "scaling":
        before = [Checkout(label="before", root=asked.before.resolve())] if asked.before else []
        scaling(folder, counts, [asked.sweep, *changes], [*before, HERE], asked.repeat)
    else:
        foreign(folder, counts, asked.sweep)


if __name__ == "__main__":
    main()
