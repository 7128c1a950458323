"""The score card of predicted time: published and measured steps against predictions, and how often the interval held.

    python -m benchmarks.score_card FLEET.csv [FACTS.csv] [OTHERS.csv] [--every 4]

FLEET.csv is ../shared/data/published-fleet.csv, FACTS.csv published-2026.csv and OTHERS.csv published-2026-11.csv
there; without them the tables are printed again. Writes trials/analytic/rates/data/residuals.csv, from which
predictions take their intervals, and prints what docs/prediction.md shows. An interval is held against the cells of a
source, and of a GPU, that it was not learned from. A cell that `plan` refuses, or whose source is doubted, is listed
apart. Rates of operators were measured apart from all of these steps.
"""

import argparse
import csv
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

from tabulate import tabulate

from benchmarks.published_fleet import CHIPS, MODELS, TUNED, fleet_cells, rank_operators
from benchmarks.published_others import other_cells
from lmsweep.analysis import load
from lmsweep.analysis.reference import published
from lmsweep.orchestrator.predicting.predicted_step import in_precision
from lmsweep.orchestrator.sweep.sweep import load_sweep, single_trial
from lmsweep.trials.analytic.datasheets import NETWORKS, device_named, find_device
from lmsweep.trials.analytic.rates.intervals import (
    INTERVAL_DEVIATIONS,
    OTHERS,
    RESIDUALS_FILE,
    Residual,
    known_residuals,
    learned,
    spread_of_others,
    widened,
)
from lmsweep.trials.analytic.rates.operators import Operator
from lmsweep.trials.analytic.rates.rank_schedule import rank_time
from lmsweep.trials.analytic.rates.rate_set import Network, rates_of
from lmsweep.trials.analytic.rates.step_time import step_time
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.spec.rules.combination_rules import why_not
from tests.support.published_numbers import public_benchmarks

SETS = ("h200-devices", "h100-devices", "h200-x2-end-to-end", "h100-published-steps", "h100-best-grid", "h100-losses",
        "h100-cs336-2025")  # fmt: skip
PROFILED = ("small", "large")
"""Models of h100-cs336-2025 from whose profiles at PROFILED_CONTEXT the rates of products in fp32 are."""
PROFILED_CONTEXT = 256
SLOW_HOST = 2.6
"""Of an unknown host, over the reference: a step that it would decide is left out."""
UNSEEN = "unseen-steps-measured.csv"
"""Steps of one H200 that were predicted before they ran, 2026-11-25: docs/lab has them."""
PAIRS = ("h200-x2-ddp", "h200-x2-fsdp", "h200-x2-sharded")
"""Measured steps of two ranks."""
COURSE = {"seed3": "NVIDIA A100 80GB PCIe", "seed4": "NVIDIA A100-SXM4-80GB"}
"""Report -> its GPU. Their attention is written out and their code eager."""
UPDATES = ("seed4",)
"""Reports whose "forward and backward" updates the weights: what its times take beyond forward and backward is the
same at all contexts, grows with the weights as AdamW's bytes do, and its profile of that code shows AdamW."""
PARTS = {
    "forward": ("forward",),
    "forward_backward": ("forward", "backward"),
    "step": ("forward", "backward", "optimizer"),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    level: str
    source: str
    device: str
    what: str
    published: float
    """Seconds."""
    predicted: float
    kind: str = "dense 16 bit"

    @property
    def residual(self) -> Residual:
        return Residual(self.level, self.source, self.device, math.log(self.published / self.predicted), self.kind)


def own_cells(every: int) -> Iterator[Cell]:
    """Yield the device time of steps of the shipped sets."""
    for name in SETS:
        rows = load(name)
        rows = rows[(rows["workload"] == "timing") & (rows["metric"] == "device_time") & rows["median"].notna()]
        for _, phases in list(rows.groupby("measurement_id"))[::every]:
            row = phases.iloc[0].to_dict()
            if name == "h100-cs336-2025" and (row["precision"] != "fp32" or _is_profiled(row)):
                continue
            config, device = config_of(row), find_device(str(row["device_name"]), row["device_memory"])
            assert device is not None, "the reference sets are of devices with a datasheet"
            try:
                operators = in_precision(step_operators(config), config)
            except (UnsupportedError, RuntimeError):  # also sizes that no tensor can have
                continue
            took = dict(zip(phases["phase"], phases["median"], strict=True))
            yield Cell(
                level="measured",
                source=name,
                device=device.name,
                what=f"{config.model} {config.context_length} {config.precision} {config.compile}",
                published=float(took["step"]),
                predicted=step_time(operators, rates_of(device)).computing,
                kind="fp32" if config.precision == "fp32" else "dense 16 bit",
            )


def _is_profiled(row: dict[Any, Any]) -> bool:
    return row["model"] in PROFILED and row["context_length"] == PROFILED_CONTEXT


def cells_of_others(path: str) -> Iterator[Cell]:
    """Yield the steps that other trainers published, as `plan` predicts them; print those that it does not."""
    use_code(code_folder(str(MODELS)))
    apart: dict[tuple[str, str], int] = defaultdict(int)
    for cell in other_cells(path):
        device, why = device_named(cell.device), cell.why
        if device is None:
            why = why or f"no datasheet of {cell.device}"
        if why or device is None or cell.config is None:
            apart[cell.source, str(why)] += 1
            continue
        operators, rates = in_precision(step_operators(cell.config), cell.config), rates_of(device)
        time, is_alone = step_time(operators, rates), cell.config.world_size == 1
        known = rates.level(time.product_type)
        level = "ranks" if not is_alone else "others" if known == "measured" else known
        seconds = (time if is_alone else rank_time(operators, rates, cell.config)).at(1.0)
        print(f"{cell.source} {cell.device} {cell.what}: {cell.seconds:.4g} s, operators {seconds:.4g} s", flush=True)
        yield Cell(level=level, source=cell.source, device=device.name, what=cell.what, published=cell.seconds,
                   predicted=seconds, kind=cell.kind)  # fmt: skip
    for (source, why), count in apart.items():
        print(f"apart: {count} of {source}: {why}")


def others_in(path: str) -> list[Cell]:
    return [*cells_of_others(path)]


def unseen_cells() -> list[Cell]:
    """Return the device time of the steps of one process that were predicted before they ran."""
    folder = Path(__file__).parent
    use_code(code_folder(str(folder.parent / "examples")))
    configs = {
        trial_id(one.config): one.config
        for one in load_sweep(str(folder / "unseen-steps.yaml"), code=str(folder.parent / "examples")).trials
    }
    cells = []
    with (folder / UNSEEN).open(newline="") as file:
        for row in csv.DictReader(file):
            config, device = configs[row["trial_id"]], device_named(row["device"])
            assert device is not None
            found = step_time(in_precision(step_operators(config), config), rates_of(device))
            cells.append(Cell(level="measured", source="unseen-steps", device=device.name, what=str(config.model),
                              published=float(row["device_seconds"]), predicted=found.computing))  # fmt: skip
    return cells


def course_cells() -> Iterator[Cell]:
    """Yield the steps of the course's reports on A100 that have no caveat."""
    rows = published()
    rows = rows[rows["source"].isin(list(COURSE)) & rows["workload"].eq("timing") & rows["metric"].eq("time")]
    rows = rows[rows["phase"].isin(list(PARTS)) & rows["status"].eq("ok") & rows["context_length"].notna()]
    rows = rows[rows["batch_size"].notna() & rows["precision"].isin(["fp32", "bf16"]) & rows["model"].notna()]
    caveats = (
        "suspected_tf32",
        "repeated",
        "derived",
        "host_bound",
        "wide_spread",
        "includes_optimizer",
        "not_synchronized",
    )
    for row in rows.to_dict("records"):
        if any(row[name] is True for name in caveats) or row["device"] not in (None, "cuda"):
            continue
        device = find_device(COURSE[row["source"]])
        asked = {"workloads": "timing", "device": "cuda", "attention": "naive", "model": row["model"],
                 "precision": row["precision"], "context_length": int(row["context_length"]),
                 "batch_size": int(row["batch_size"]), "optimizer": "adamw_loop"}  # fmt: skip
        config = single_trial([f"{name}={value}" for name, value in asked.items()]).config
        updates = row["source"] in UPDATES and row["phase"] == "forward_backward"
        phases = PARTS["step" if updates else row["phase"]]
        parts = [one for one in in_precision(step_operators(config), config) if one.phase in phases]
        assert device is not None
        found = step_time(tuple(parts), rates_of(device))
        if SLOW_HOST * found.launching > found.computing:
            continue  # that host is unknown, and may decide
        yield Cell(level=rates_of(device).level(found.product_type), source=row["source"], device=device.name,
                   published=float(row["value"]), what=f"{row['model']} {row['precision']} {row['phase']}",
                   predicted=found.computing,
                   kind="fp32" if row["precision"] == "fp32" else "dense 16 bit")  # fmt: skip


def attention_cells() -> Iterator[Cell]:
    """Yield the published times of PyTorch's attention kernels alone, on an H100."""
    rows = public_benchmarks()
    rows = rows[rows["workload"].eq("attention") & rows["attention"].isin(["sdpa_flash", "sdpa_cudnn"])]
    device = find_device("NVIDIA H100 80GB HBM3")
    assert device is not None
    for row in rows[rows["phase"].isin(["forward", "step"])].to_dict("records"):
        asked = {name: row[name] for name in ("d_model", "context_length", "batch_size", "num_heads", "attention")}
        asked = {name: value if isinstance(value, str) else int(value) for name, value in asked.items()}
        mode = "forward" if row["phase"] == "forward" else "forward_backward"
        more = {
            "workloads": "attention",
            "device": "cuda",
            "precision": "bf16",
            "causal": bool(row["causal"]),
            "mode": mode,
        }
        config = single_trial([f"{name}={value}" for name, value in (asked | more).items()]).config
        operators = step_operators(config, "attention")
        predicted = step_time(operators, rates_of(device)).computing
        yield Cell(level="attention alone", source=str(row["source"]), device=device.name, what=str(row["attention"]),
                   published=float(row["value"]), predicted=predicted)  # fmt: skip


def ranks_cells(path: str) -> Iterator[Cell]:
    use_code(code_folder(str(MODELS)))
    for cell in chain(fleet_cells(path), fleet_cells(str(CHIPS))):
        device = find_device(cell.full_name)
        assert device is not None
        if (why := why_not(cell.config, "ddp")) and cell.source not in TUNED:
            print(f"apart: {cell.source} {device.name} {cell.ranks} x {cell.what}: {why}")
            continue
        in_node = 72 if device.name.startswith("GB") else 8
        adapter = NETWORKS.get(device.name, 0.0)
        network = Network(gpus=8, bytes_per_second=adapter, source="") if cell.ranks > in_node else None
        found = rank_time(rank_operators(cell), rates_of(device, network), cell.config)
        level = "tuned stacks" if cell.source in TUNED else "power limited" if cell.is_limited else "ranks"
        yield Cell(level=level, source=cell.source, device=device.name, what=f"{cell.ranks} x {cell.what}",
                   published=cell.seconds, predicted=found.seconds)  # fmt: skip


def pair_cells() -> Iterator[Cell]:
    """Yield the measured steps of two ranks, where even a slow host does not decide."""
    for name in PAIRS:
        rows = load(name)
        rows = rows[rows["workload"].eq("ddp") & rows["phase"].eq("step") & rows["metric"].eq("time")]
        for row in rows[rows["median"].notna()].to_dict("records"):
            config, device = config_of(row), find_device(str(row["device_name"]), row["device_memory"])
            assert device is not None, "the reference sets are of devices with a datasheet"
            found = rank_time(in_precision(step_operators(config), config), rates_of(device), config)
            if SLOW_HOST * found.launching > found.busy:
                continue
            what = f"{config.model} {config.context_length} {config.ddp} {config.gather} {config.reshard}"
            yield Cell(level="two ranks", source=name, device=device.name, what=what,
                       published=float(row["median"]), predicted=found.seconds)  # fmt: skip


def product_cells(path: str) -> Iterator[Cell]:
    """Yield the fastest product that ml-engineering's search over shapes found on each GPU."""
    with open(path, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "max_matmul_rate"]
    for row in rows:
        found = re.search(r"(\d+)x(\d+)x(\d+)", row["notes"])
        device = device_named(row["hardware"].split(" ", 1)[1].replace("A100 SXM", "A100 SXM 80GB"))
        assert found and device, row
        m, n, k = map(int, found.groups())
        is_float8 = row["precision"].startswith("fp8")
        dtype, flops = "float8_e4m3fn" if is_float8 else "bfloat16", 2 * m * n * k
        size = m * k + k * n if is_float8 else 2 * (m * k + k * n)
        product = Operator(name="_scaled_mm" if is_float8 else "mm", shapes=((m, k), (k, n)), dtype=dtype, flops=flops,
                           bytes=size + 2 * m * n, phase="forward", module="", layout="nt")  # fmt: skip
        yield Cell(level="products alone", source=row["source"], device=device.name, what=dtype,
                   published=flops / float(row["value"]) / 1e12,
                   predicted=rates_of(device).of(product).seconds)  # fmt: skip


def compiled_cells(path: str) -> Iterator[Cell]:
    """Yield the steps of GPT-2 XL that an issue of ROCm's TransformerEngine states as rates of 6 N + 12 L d s. Its
    script states the sizes, and 14 sequences a day later; the batch is assumed to be these."""
    use_code(code_folder(str(MODELS)))
    layers, width, context, batch, vocabulary = 48, 1600, 1024, 14, 50304
    args = json.dumps({"heads": 25, "layers": layers, "width": width}, separators=(",", ":"))
    config = TrialConfig(model="gpt2-xl", model_code="mpt.py:build", model_args=args, vocab_size=vocabulary, d_model=0,
                         context_length=context, batch_size=batch, precision="bf16", attention="sdpa_flash",
                         loss="cross_entropy", compile="block", blocks="blocks", device="cuda")  # fmt: skip
    operators = step_operators(config)
    weights = 12 * layers * width**2 + (vocabulary + context) * width
    flops = batch * context * (6 * weights + 12 * layers * width * context)
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if row["framework"] == "torch.compile nightly":
                device = device_named({"H100": "H100 SXM"}.get(row["hardware"], row["hardware"]))
                assert device is not None
                yield Cell(level="sizes assumed", source=row["source"], device=device.name, what=config.model or "",
                           published=flops / float(row["value"]) / 1e12,
                           predicted=step_time(operators, rates_of(device)).computing)  # fmt: skip


Left = Literal["source", "device"]
"""What an interval is learned without."""


def held(one: Residual, residuals: Sequence[Residual], wider: float, left: Left = "source") -> tuple[float, bool]:
    """Return the relative error of a prediction, and whether its interval held, learned without the cell's source or
    device; NaN if there is no other."""
    spread = learned(one.level, residuals, one.device, lambda other: getattr(other, left) != getattr(one, left))
    if spread is None:
        return math.nan, False
    factor, deviation = spread
    distance = abs(one.log_ratio - math.log(factor))
    return factor / math.exp(one.log_ratio) - 1, distance <= INTERVAL_DEVIATIONS * wider * deviation * (1 + 1e-9)


def by_device(residuals: Sequence[Residual]) -> None:
    """Print a line for each GPU and level: errors and intervals, learned without the source, and without the GPU."""
    groups: dict[tuple[str, str], list[Residual]] = defaultdict(list)
    for one in residuals:
        groups[one.device, one.level].append(one)
    lines = []
    for (device, level), found in sorted(groups.items()):
        wider = widened(level, residuals, device)
        raw = median(math.exp(-one.log_ratio) - 1 for one in found)
        line: list[object] = [device, level, len(found), f"{raw:+.0%}"]
        for left in get_args(Left):
            answers = [held(one, residuals, wider, left) for one in found]
            errors = [abs(error) for error, _ in answers if not math.isnan(error)]
            if not errors:
                line += [None] * 3
                continue
            within, kept = sum(one < 0.25 for one in errors), sum(one for _, one in answers)
            line += [f"{median(errors):.1%}", f"{within / len(errors):.0%}", f"{kept / len(answers):.0%}"]
        lines.append(line)
    columns = ("median", "within 25 %", "interval held")
    headers = ["GPU", "level", "cells", "operators", *columns, *(f"{one}, without this GPU" for one in columns)]
    print(tabulate(lines, headers=headers, tablefmt="github", missingval="-"))


def _factor(one: Residual, residuals: Sequence[Residual]) -> float:
    spread = learned(one.level, residuals, one.device, lambda other: other.source != one.source)
    return spread.factor if spread else 1.0


def ratios(cells: Sequence[Cell]) -> None:
    """Print by context how far the ratio of A100 to H100 is from the published one, in cells of the same ranks,
    model and context; micro-batches may differ."""
    of: dict[tuple[str, str], dict[str, Cell]] = defaultdict(dict)
    for cell in cells:
        if cell.level == "ranks":
            of[cell.source, re.sub(r" x \d+ x \d+ ", " ", cell.what)][cell.device] = cell
    residuals = [cell.residual for cell in cells]
    found: dict[str, list[float]] = defaultdict(list)
    for (_, what), both in of.items():
        if {"H100 SXM", "A100 SXM 80GB"} <= both.keys():
            h100, a100 = both["H100 SXM"], both["A100 SXM 80GB"]
            of_h100, of_a100 = (_factor(one.residual, residuals) for one in (h100, a100))
            context = re.search(r"MPT-\S+ (\d+)", what)
            predicted = of_a100 * a100.predicted / (of_h100 * h100.predicted)
            ratio = predicted * h100.published / a100.published
            found[context[1] if context else "4096 (fms-fsdp)"].append(ratio - 1)
    found = dict(sorted(found.items(), key=lambda item: int(item[0].split()[0]))) | {"all": [*chain(*found.values())]}
    lines = [
        [name, len(errors), f"{median(errors):+.1%}", f"{median(map(abs, errors)):.1%}", f"{max(map(abs, errors)):.1%}"]
        for name, errors in found.items()
    ]
    headers = ["context", "cells on both", "A100 over H100, deviation", "median", "largest"]
    print(tabulate(lines, headers=headers, tablefmt="github"))


def by_ranks(cells: Sequence[Cell]) -> None:
    """Print by source and number of H100 how far training runs are from their prediction."""
    residuals, found = [cell.residual for cell in cells], defaultdict(list)
    for cell in cells:
        if cell.level == "ranks" and cell.device == "H100 SXM":
            found[cell.source, int(cell.what.split(" x ")[0])].append(held(cell.residual, residuals, 1.0)[0])
    lines = [
        [*key, len(errors), f"{median(errors):+.1%}", f"{median(map(abs, errors)):.1%}", f"{max(map(abs, errors)):.1%}"]
        for key, errors in sorted(found.items())
    ]
    print(tabulate(lines, headers=["source", "H100", "cells", "deviation", "median", "largest"], tablefmt="github"))


def tables(residuals: Sequence[Residual]) -> None:
    groups: dict[tuple[str, str, str], list[Residual]] = defaultdict(list)
    wider = {(one.level, one.device): widened(one.level, residuals, one.device) for one in residuals}
    for one in residuals:
        if any(other.level == one.level and other.source != one.source for other in residuals):
            groups[one.level, one.source, one.device].append(one)
    lines = []
    for key, found in sorted(groups.items()):
        raw = median(math.exp(-one.log_ratio) - 1 for one in found)
        answers = [held(one, residuals, wider[one.level, one.device]) for one in found]
        errors = sorted(abs(error) for error, _ in answers)
        within = sum(error < 0.25 for error in errors) / len(errors)
        kept = sum(one for _, one in answers) / len(answers)
        lines.append(
            [
                *key,
                len(found),
                f"{raw:+.0%}",
                f"{median(errors):.1%}",
                f"{errors[-1]:.0%}",
                f"{within:.0%}",
                f"{kept:.0%}",
            ]
        )
    headers = ["level", "source", "GPU", "cells", "operators", "median", "largest", "within 25 %", "interval held"]
    print(tabulate(lines, headers=headers, tablefmt="github"))
    for (level, device), more in sorted(wider.items()):
        spread = learned(level, residuals, device)
        assert spread is not None
        width = math.exp(INTERVAL_DEVIATIONS * more * spread.deviation)
        print(f"{level}, {device}: times {spread.factor:.2f}, interval a factor of {width:.2f} each way")


def card(residuals: Sequence[Residual]) -> None:
    """Print by kind, GPU and source how far the middle of each interval is, and how often it held without the source:
    as this loop runs a step, and as other trainers do."""
    own = [one for one in residuals if one.level not in OTHERS]
    others = [one._replace(level="others") for one in residuals if one.level in OTHERS]
    groups: dict[tuple[str, str, str], list[Residual]] = defaultdict(list)
    for one in residuals:
        if one.level in OTHERS:
            groups[one.kind, one.device, one.source].append(one)
            groups[one.kind, one.device, "all"].append(one)
            groups[one.kind, "all", "all"].append(one)
    lines = []
    for key, found in sorted(groups.items()):
        line: list[object] = [*key, len(found)]
        for is_own in (True, False):
            answers = []
            for one in found:
                level = ("measured" if one.level == "others" else one.level) if is_own else "others"
                among = (own if level == "measured" else residuals) if is_own else others
                wider = widened(level, among, one.device) if among else 1.0
                answers.append((*held(one._replace(level=level), among, wider), level))
            known = [(abs(error), kept) for error, kept, _ in answers if not math.isnan(error)]
            line += (
                [f"{median(error for error, _ in known):.1%}", f"{sum(kept for _, kept in known)} of {len(known)}"]
                if known
                else [None, None]
            )
        lines.append(line)
    headers = ["kind", "GPU", "source", "cells", "this loop: median", "held", "other trainers: median", "held"]
    print(tabulate(lines, headers=headers, tablefmt="github", missingval="-"))
    for device in sorted({one.device for one in others}):
        spread = spread_of_others(device)
        width = math.exp(INTERVAL_DEVIATIONS * spread.deviation)
        print(f"other trainers on {device}: times {spread.factor:.2f}, interval a factor of {width:.2f} each way")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("fleet", nargs="?")
    parser.add_argument("facts", nargs="?")
    parser.add_argument("others", nargs="?")
    parser.add_argument("--every", type=int, default=4, help="of the steps of the shipped sets")
    asked = parser.parse_args()
    if asked.fleet:
        cells = [*ranks_cells(asked.fleet), *pair_cells(), *course_cells(), *attention_cells()]
        cells += own_cells(asked.every)
        with ProcessPoolExecutor(1, get_context("spawn")) as other:  # a process imports the code of one folder
            cells += other.submit(unseen_cells).result()
        cells += [*product_cells(asked.facts), *compiled_cells(asked.facts)] if asked.facts else []
        if asked.others:
            with ProcessPoolExecutor(1, get_context("spawn")) as other:
                cells += other.submit(others_in, asked.others).result()
        with RESIDUALS_FILE.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(Residual._fields)
            writer.writerows(one.residual._replace(log_ratio=round(one.residual.log_ratio, 4)) for one in cells)
        ratios(cells)
        by_ranks(cells)
    known_residuals.cache_clear()  # predictions have read the file as it was
    card(known_residuals())
    tables(known_residuals())
    by_device(known_residuals())


if __name__ == "__main__":
    main()
