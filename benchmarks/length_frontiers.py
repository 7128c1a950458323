"""The largest batch with which memory lasts for 300 batches of different lengths: predicted, then measured.

python -m benchmarks.length_frontiers predict --for H100 --out FOLDER
lmsweep run FOLDER/frontiers.yaml --no-predict --store STORE
python -m benchmarks.length_frontiers judge STORE FOLDER/predictions.json

`predict` writes, for each combination of model, lengths, batching and allocator, the largest size that lasts with the
trial's own batches and the next one, which does not, before anything runs. `judge` prints for each whether that came
true, the step in which memory ran out, and predicted peaks over measured ones. Exits with 1 if two are wrong.
"""

import argparse
import json
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from tabulate import tabulate

from lmsweep.orchestrator.planning.memory_budget import CUDA_RESERVE, device_memory
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.analytic.memory_prediction import cublas_workspace
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.many_steps.lasting_memory import largest_by, varied_memory
from lmsweep.trials.prediction.peak_memory import UNSURE_BYTES
from lmsweep.trials.spec.identity import trial_id

MOST_WRONG = 1
SLACK = (2**30, 2**29, 2**28, UNSURE_BYTES, 0)
"""Bytes more or less that should not change an answer."""
COMMON = {"device": "cuda", "loss": "cross_entropy", "batches": 300, "precision": "bf16", "attention": "sdpa"}
WIDE = {"d_model": 512, "d_ff": 1536, "num_layers": 4, "num_heads": 8, "vocab_size": 50257}
DEEP = {"d_model": 1024, "d_ff": 2816, "num_layers": 12, "num_heads": 16, "vocab_size": 16384}
CHATS, CODE, EVEN = "lognormal(400, 0.8, 4096)", "lognormal(900, 0.7, 8192)", "uniform(16, 2048)"
LONGEST = {CHATS: 4096, CODE: 8192, EVEN: 2048}
EXPANDABLE = {"allocator": "expandable_segments"}
COMBINATIONS: tuple[dict[str, object], ...] = (
    WIDE | {"lengths": CHATS},
    WIDE | EXPANDABLE | {"lengths": CODE, "vocab_size": 46000},
    WIDE | {"lengths": EVEN, "attention": "naive", "seed": 3},
    WIDE | {"lengths": CODE, "batching": "grouped"},
    WIDE | {"lengths": CHATS, "precision": "fp32", "seed": 2},
    WIDE | EXPANDABLE | {"lengths": EVEN, "checkpointing": "block"},
    WIDE | EXPANDABLE | {"lengths": CHATS, "batching": "token_budget", "vocab_size": 46000},
    DEEP | {"lengths": CODE},
    DEEP | EXPANDABLE | {"lengths": CODE},
    DEEP | EXPANDABLE | {"lengths": CHATS, "attention": "naive", "batching": "grouped"},
    DEEP | {"lengths": EVEN, "batching": "token_budget"},
    {"model": "hf:Qwen/Qwen3-0.6B", "lengths": CHATS, "precision": "bf16_pure"},
)


@dataclass(frozen=True, kw_only=True)
class Frontier:
    fields: dict[str, object]
    dimension: str
    safe: int
    next: int
    trials: tuple[str, str]
    """Identifiers of the trials of both sizes."""
    fails_at: int | None
    """The step, from 1, in which memory runs out with the next size."""
    safe_with_less: int
    """Bytes that the device may lack with the same answer for the safe size; -1 if none."""
    fails_with_more: int
    peak_allocated: int
    peak_reserved: int
    retries: int


def predicted(chosen: dict[str, object], device: str) -> Frontier:
    """Return the frontier of a combination on a device. Raises what a prediction of its steps does."""
    name, memory = device_memory(device)
    fields = COMMON | {"context_length": LONGEST[str(chosen["lengths"])]} | chosen
    dimension = "batch_tokens" if "budget" in str(fields.get("batching")) else "batch_size"
    sized = {dimension: fields["context_length"] if dimension == "batch_tokens" else 1}
    trial = single_trial([f"{key}={value}" for key, value in (fields | sized).items()])
    if trial.code:
        use_code(trial.code)
    steps, limit, workspace = varied_memory(trial.config), memory - CUDA_RESERVE, cublas_workspace(name)

    def failed(units: int, room: int) -> int | None:
        return steps.run(steps.sized(units), room, workspace, trial.config.batches).failed_at

    safe = largest_by(steps.least, lambda units: failed(units, limit - UNSURE_BYTES) is None)
    run, fails_at = steps.run(steps.sized(safe), limit, workspace, trial.config.batches), failed(safe + 1, limit)
    return Frontier(
        fields=fields,
        dimension=dimension,
        safe=safe * steps.unit,
        next=(safe + 1) * steps.unit,
        trials=(trial_id(steps.sized(safe)), trial_id(steps.sized(safe + 1))),
        fails_at=None if fails_at is None else fails_at + 1,
        safe_with_less=next((one for one in SLACK if failed(safe, limit - one) is None), -1),
        fails_with_more=next((one for one in SLACK if failed(safe + 1, limit + one) is not None), -1),
        peak_allocated=run.peak_allocated,
        peak_reserved=run.peak_reserved,
        retries=run.retries,
    )


def write(found: list[Frontier], out: Path) -> None:
    """Write the predictions, and a sweep that measures them."""
    grids = [{"workloads": ["memory"], "axes": {f.dimension: [f.safe, f.next]}, "fixed": f.fields} for f in found]
    sweep = {"name": "length-frontiers", "description": "Predicted frontiers, measured.", "grids": grids}
    out.mkdir(parents=True, exist_ok=True)
    (out / "frontiers.yaml").write_text(yaml.safe_dump(sweep, sort_keys=False))
    (out / "predictions.json").write_text(json.dumps([asdict(one) for one in found], indent=1))


def judge(store: Path, found: list[dict[str, Any]]) -> int:
    """Print what came true; return how many frontiers did not, or were not measured."""
    rows = pd.read_parquet(store / "measurements")
    rows, lines, wrong = rows[rows.workload == "memory"], [], 0
    for one in found:
        safe, more = (rows[rows.trial_id == trial] for trial in one["trials"])
        lasted, ran_out = set(safe.status) == {"ok"}, set(more.status) == {"oom"}
        wrong += not (lasted and ran_out)
        said = re.search(r"step (\d+)", " ".join(map(str, more.error.dropna())))
        line = [one["fields"].get(name, "") for name in ("lengths", "batching", "allocator")]
        line += [one["dimension"], one["safe"], lasted, ran_out, said[1] if said else "", one["fails_at"]]
        for metric in ("peak_allocated", "peak_reserved"):
            peaks = safe[(safe.phase == "run") & (safe.metric == metric)].samples
            line.append(f"{one[metric] / peaks.iloc[0][0] - 1:+.2%}" if len(peaks) else "")
        lines.append(line)
    names = ["lengths", "batching", "allocator", "size", "safe", "lasted", "next ran out", "in step", "predicted"]
    print(tabulate(lines, headers=[*names, "allocated", "reserved"]))
    print(f"{len(found) - wrong} of {len(found)} frontiers came true")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("predict", "judge"))
    parser.add_argument("paths", type=Path, nargs="*", help="Of judge: the store, and predictions.json.")
    parser.add_argument("--for", dest="device", default="H100")
    parser.add_argument("--out", type=Path, default=Path())
    asked = parser.parse_args()
    if asked.verb == "judge":
        store, predictions = asked.paths
        sys.exit(judge(store, json.loads(predictions.read_text())) > MOST_WRONG)
    write([predicted(one, asked.device) for one in COMBINATIONS], asked.out)


if __name__ == "__main__":
    main()
