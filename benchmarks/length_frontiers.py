"""The largest batch with which memory lasts for 300 batches of different lengths: predicted, then measured.

python -m benchmarks.length_frontiers predict --for H100 --code FOLDER --out FOLDER
lmsweep run FOLDER/frontiers.yaml --no-predict --store STORE
python -m benchmarks.length_frontiers judge STORE FOLDER/predictions.json

`predict` writes, for each combination of model, lengths, batching and allocator, the largest size that lasts with the
trial's own batches and the next one, which does not, before anything runs. `judge` prints for each whether that came
true, the step in which memory ran out, and peaks beside the predicted ones. Exits with 1 if more than one is wrong.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import yaml
from tabulate import tabulate

from lmsweep.orchestrator.planning.memory_budget import CUDA_RESERVE, device_memory
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.analytic.memory_prediction import cublas_workspace
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.many_steps.varied_steps import VariedSteps, varied_steps
from lmsweep.trials.prediction.peak_memory import UNSURE_BYTES
from lmsweep.trials.spec.identity import trial_id

STEPS = 300
MOST_WRONG = 1
SLACK = (2**30, 2**29, 2**28, UNSURE_BYTES, 0)
"""Bytes more or less that should not change an answer."""
COMMON = {"device": "cuda", "loss": "cross_entropy", "mode": "train_step", "batches": STEPS, "precision": "bf16", "attention": "sdpa"}
WIDE = {"d_model": 512, "d_ff": 1536, "num_layers": 4, "num_heads": 8, "vocab_size": 50257}
DEEP = {"d_model": 1024, "d_ff": 2816, "num_layers": 12, "num_heads": 16, "vocab_size": 16384}
CHATS, CODE, EVEN = "lognormal(400, 0.8, 4096)", "lognormal(900, 0.7, 8192)", "uniform(16, 2048)"
LONGEST = {CHATS: 4096, CODE: 8192, EVEN: 2048}
COMBINATIONS: tuple[dict[str, object], ...] = (
    WIDE | {"lengths": CHATS},
    WIDE | {"lengths": CODE, "allocator": "expandable_segments", "vocab_size": 46000},
    WIDE | {"lengths": EVEN, "attention": "naive", "seed": 3},
    WIDE | {"lengths": CODE, "batching": "grouped"},
    WIDE | {"lengths": CHATS, "precision": "fp32", "seed": 2},
    WIDE | {"lengths": EVEN, "checkpointing": "block", "allocator": "expandable_segments"},
    WIDE | {"lengths": CHATS, "batching": "token_budget", "allocator": "expandable_segments", "vocab_size": 46000},
    DEEP | {"lengths": CODE},
    DEEP | {"lengths": CODE, "allocator": "expandable_segments"},
    DEEP | {"lengths": CHATS, "attention": "naive", "batching": "grouped", "allocator": "expandable_segments"},
    DEEP | {"lengths": EVEN, "batching": "token_budget"},
    {"model": "hf:Qwen/Qwen3-0.6B", "lengths": CHATS, "precision": "bf16_pure"},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """What is predicted of one combination."""

    fields: dict[str, object]
    dimension: str
    safe: int
    next: int
    trials: tuple[str, str]
    """Identifiers of the trials of both sizes."""
    fails_at: int | None
    """The step, from 1, in which memory runs out with the next size."""
    safe_with_less: int
    """Bytes that the device may lack with the same answer for the safe size."""
    fails_with_more: int
    peak_allocated: int
    peak_reserved: int
    retries: int


def predicted(fields: dict[str, object], name: str, memory: int, code: str | None) -> Frontier:
    """Return the frontier of a combination on a device. Raises what `varied_steps` does."""
    fields = COMMON | {"context_length": LONGEST[str(fields["lengths"])]} | fields
    is_budget = fields.get("batching") == "token_budget"
    sized = {"batch_tokens": fields["context_length"]} if is_budget else {"batch_size": 1}
    trial = single_trial([f"{key}={value}" for key, value in (fields | sized).items()], code=code)
    if trial.code:
        use_code(trial.code)
    steps, limit, workspace = varied_steps(trial.config), memory - CUDA_RESERVE, cublas_workspace(name)

    def failed(units: int, room: int) -> int | None:
        return steps.run(steps.sized(units), room, workspace, STEPS).failed_at

    least = int(str(fields["context_length"])) // steps.unit if is_budget else 1
    safe = _largest(least, lambda units: failed(units, limit - UNSURE_BYTES) is None)
    run = steps.run(steps.sized(safe), limit, workspace, STEPS)
    fails_at = failed(safe + 1, limit)
    less = next((one for one in SLACK if failed(safe, limit - one) is None), -1)
    more = next((one for one in SLACK if failed(safe + 1, limit + one) is not None), -1)
    return Frontier(
        fields=fields,
        dimension="batch_tokens" if is_budget else "batch_size",
        safe=safe * steps.unit,
        next=(safe + 1) * steps.unit,
        trials=(trial_id(steps.sized(safe)), trial_id(steps.sized(safe + 1))),
        fails_at=None if fails_at is None else fails_at + 1,
        safe_with_less=less,
        fails_with_more=more,
        peak_allocated=run.peak_allocated,
        peak_reserved=run.peak_reserved,
        retries=run.retries,
    )


def _largest(least: int, is_safe: Callable[[int], bool]) -> int:
    fits, too_many = least - 1, least
    while is_safe(too_many):
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if is_safe(middle) else (fits, middle)
    return fits


def write(found: list[Frontier], out: Path) -> None:
    """Write the predictions, and a sweep that measures them."""
    grids = [
        {"workloads": ["memory"], "axes": {one.dimension: [one.safe, one.next]}, "fixed": one.fields} for one in found
    ]
    sweep = {"name": "length-frontiers", "description": "Predicted frontiers, measured.", "grids": grids}
    out.mkdir(parents=True, exist_ok=True)
    (out / "frontiers.yaml").write_text(yaml.safe_dump(sweep, sort_keys=False))
    (out / "predictions.json").write_text(json.dumps([asdict(one) for one in found], indent=1))


def judge(store: Path, found: list[dict[str, object]]) -> int:
    """Print what came true; return how many frontiers did not, or were not measured."""
    rows = pd.read_parquet(store / "measurements")
    rows = rows[rows.workload == "memory"]
    lines, wrong = [], 0
    for one in found:
        safe, more = (rows[rows.trial_id == trial] for trial in one["trials"])  # type: ignore[attr-defined]
        lasted, ran_out = set(safe.status) == {"ok"}, set(more.status) == {"oom"}
        wrong += not (lasted and ran_out)
        said = re.search(r"step (\d+)", " ".join(map(str, more.error.dropna())))
        line = {key: one["fields"][key] for key in ("lengths", "batching", "allocator") if key in one["fields"]}  # type: ignore[operator, index]
        line |= {one["dimension"]: one["safe"], "lasted": lasted, "next ran out": ran_out}  # type: ignore[dict-item]
        line |= {"at step": said and said[1], "predicted step": one["fails_at"]}
        for metric in ("peak_allocated", "peak_reserved"):
            peaks = safe[(safe.phase == "run") & (safe.metric == metric)].samples
            if len(peaks):
                line[f"{metric}, predicted"] = f"{one[metric] / peaks.iloc[0][0] - 1:+.2%}"  # type: ignore[operator]
        lines.append(line)
    print(tabulate(pd.DataFrame(lines).fillna(""), headers="keys", showindex=False))
    print(f"{len(found) - wrong} of {len(found)} frontiers came true")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    predict = verbs.add_parser("predict")
    predict.add_argument("--for", dest="device", default="H100")
    predict.add_argument("--code")
    predict.add_argument("--out", type=Path, default=Path())
    judging = verbs.add_parser("judge")
    judging.add_argument("store", type=Path)
    judging.add_argument("predictions", type=Path)
    asked = parser.parse_args()
    if asked.verb == "judge":
        sys.exit(judge(asked.store, json.loads(asked.predictions.read_text())) > MOST_WRONG)
    name, memory = device_memory(asked.device)
    found = [predicted(one, name, memory, asked.code) for one in COMBINATIONS]
    write(found, asked.out)
    print(tabulate([asdict(one) | {"fields": "", "trials": ""} for one in found], headers="keys"))


if __name__ == "__main__":
    main()
