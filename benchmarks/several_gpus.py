"""Scaling of a sweep over several GPUs of one host.

python benchmarks/several_gpus.py scaling FOLDER [--gpus 1,2,4] [--sweep FILE] [--set axis=a,b ...]
python benchmarks/several_gpus.py foreign FOLDER [--gpus 2]

`scaling` first runs the sweep on all GPUs to fill an empty compile cache. It then runs it with each number of GPUs
visible, each time into a fresh store under FOLDER, and prints trials per hour and how medians differ from one GPU.
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

import pandas as pd
from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.trials.machine import interpreter

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


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the command, and the rows that it stored."""

    gpus: int
    """Number of visible GPUs."""
    seconds: float
    """Duration of the command."""
    steps: pd.DataFrame
    """The rows of step.time, indexed by CELL."""
    trials: pd.DataFrame
    """Start and end of each trial in seconds, indexed by CELL."""

    @property
    def per_hour(self) -> float:
        """Trials per hour of the whole command."""
        return 3600 * len(self.trials) / self.seconds

    @property
    def trials_seconds(self) -> float:
        """Seconds from the request for the first trial, before its worker starts, to the end of the last trial."""
        return float(self.trials["ended"].max() - self.trials["began"].min())

    def speed_at_work(self, alone: pd.Series) -> float:
        """Speedup over one GPU while all GPUs are busy.

        `alone` holds the seconds of each trial on one GPU. The interval starts when each GPU can have ended its first
        trial, which waits for its worker, and ends when the first GPU has no trial left.
        """
        ends = self.trials["ended"].sort_values()
        since, until = ends.iloc[self.gpus - 1], ends.iloc[-self.gpus]
        inside = self.trials.clip(lower=since, upper=until)
        parts = (inside["ended"] - inside["began"]) / (self.trials["ended"] - self.trials["began"])
        return float((alone * parts).sum() / (until - since))


def run(store: Path, gpus: int, arguments: Sequence[str]) -> Run:
    visible = ",".join(map(str, range(gpus)))
    environment = interpreter.environment() | {
        "CUDA_VISIBLE_DEVICES": visible,
        "TORCHINDUCTOR_CACHE_DIR": str(store.parent / "compile-cache"),
    }
    command = interpreter.command("lmsweep.orchestrator.cli", "run", *arguments, "--store", str(store))
    began = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    (store.parent / f"{store.name}.txt").write_text(done.stdout + done.stderr)
    account = [line for line in done.stdout.splitlines() if ": setup " in line]
    print(f"{store.name}: {seconds:.1f} s, exit code {done.returncode}; {' '.join(account)}", flush=True)
    frame = load(str(store))
    frame["name"] = frame["phase"] + "." + frame["metric"]
    return Run(
        gpus=gpus,
        seconds=seconds,
        steps=frame[frame["name"] == "step.time"].set_index(CELL).sort_index(),
        trials=_trials(frame),
    )


def _trials(frame: pd.DataFrame) -> pd.DataFrame:
    parts = frame[
        (frame["phase"] == "trial")
        & frame["metric"].isin(["setup_time", "compile_time", "warmup_time", "measured_time"])
    ]
    by_cell = parts.groupby(CELL)
    began = by_cell["started_at"].first().map(lambda at: at.timestamp())
    return pd.DataFrame({"began": began, "ended": began + by_cell["median"].sum()})


def alone_seconds(run: Run) -> pd.Series:
    """Seconds from the start of each trial to the start of the next, on one GPU."""
    trials = run.trials.sort_values("began")
    return (trials["began"].shift(-1) - trials["began"]).fillna(trials["ended"] - trials["began"])


def rates(runs: Sequence[Run]) -> str:
    alone = runs[0]
    seconds = alone_seconds(alone)
    lines = [
        [
            one.gpus,
            len(one.trials),
            one.seconds,
            one.per_hour,
            one.per_hour / alone.per_hour,
            alone.trials_seconds / one.trials_seconds,
            one.speed_at_work(seconds),
            one.steps["cores_used"].iloc[0],
        ]
        for one in runs
    ]
    headers = [
        "GPUs",
        "trials",
        "command (s)",
        "trials/h",
        "ratio",
        "first trial to last",
        "all GPUs at work",
        "cores each",
    ]
    return tabulate(lines, headers=headers, floatfmt=("", "", ".1f", ".0f", ".2f", ".2f", ".2f"))


def differences(alone: Run, together: Run) -> str:
    """How each median differs from that on one GPU, separately for host-bound and device-bound trials."""
    columns = ["median", "low", "high", "flags"]
    both = alone.steps[columns].join(together.steps[columns].add_suffix("_2"))
    both["difference"] = both["median_2"] / both["median"] - 1
    both["bound by"] = [
        "host" if "host_bound" in {*one, *other} else "device"
        for one, other in zip(both["flags"], both["flags_2"], strict=True)
    ]
    both["disjoint"] = (both["low_2"] > both["high"]) | (both["high_2"] < both["low"])
    parts = [f"{together.gpus} GPUs against 1"]
    for bound, some in both.groupby("bound by"):
        size = some["difference"].abs()
        parts.append(
            f"  {bound}-bound: {len(some)} cells; |difference| median {size.median():.2%}, largest {size.max():.2%}; "
            f"{(size <= 0.02).sum()} within 2 %; "
            f"{(some['disjoint'] & (size > 0.02)).sum()} beyond it with disjoint intervals"
        )
    worst = both.reindex(both["difference"].abs().sort_values(ascending=False).index).head(8).reset_index()
    worst = worst[
        ["model", "context_length", "precision", "compile", "bound by", "median", "median_2", "difference", "disjoint"]
    ]
    return "\n".join([*parts, tabulate(worst.values.tolist(), headers=list(worst.columns), floatfmt=".4g")])


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


def scaling(folder: Path, counts: Sequence[int], arguments: Sequence[str]) -> None:
    # One measured step compiles the same graphs as twenty.
    run(folder / "cold", counts[-1], [*arguments, "--set", "warmup_steps=1", "--set", "measure_steps=1"])
    runs = [run(folder / f"gpus-{count}", count, arguments) for count in counts]
    print(rates(runs))
    for together in runs[1:]:
        print(f"\n{differences(runs[0], together)}")


def foreign(folder: Path, counts: Sequence[int], sweep: str) -> None:
    print(notices_foreign(folder / "foreign", 1, [sweep, *ONE_TRIAL]))
    if counts[-1] > 1:
        print(notices_foreign(folder / "foreign-rank", 2, ["ddp", *ONE_DATA_PARALLEL]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["scaling", "foreign"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpus", default="1,2,4")
    parser.add_argument("--sweep", default=str(ROOT / "benchmarks" / "end-to-end.yaml"))
    parser.add_argument("--set", action="append", default=[])
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    changes = [word for text in asked.set for word in ("--set", text)]
    counts = sorted(int(count) for count in asked.gpus.split(","))
    if asked.what == "scaling":
        scaling(asked.folder, counts, [asked.sweep, *changes])
    else:
        foreign(asked.folder, counts, asked.sweep)


if __name__ == "__main__":
    main()
