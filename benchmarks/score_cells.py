"""Published and measured steps, each with its prediction from operators. Rates of operators were measured apart from
all of them. A cell that `plan` refuses, or whose source is doubted, is printed with the reason."""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from math import log
from pathlib import Path
from typing import Any

from benchmarks.divided_layers import divided_cells, operators_of
from benchmarks.prime_rl import as_it_runs, waits
from benchmarks.published_fleet import CHIPS, MODELS, TUNED, fleet_cells, rank_operators
from benchmarks.published_others import DOUBTED, READERS, OtherCell, other_cells
from lmsweep.analysis import load
from lmsweep.analysis.reference import published
from lmsweep.orchestrator.predicting.predicted_step import in_precision
from lmsweep.orchestrator.sweep.sweep import load_sweep, single_trial
from lmsweep.trials.analytic.datasheets import LINKS, NETWORKS, Device, device_named, find_device
from lmsweep.trials.analytic.rates.intervals import Residual
from lmsweep.trials.analytic.rates.operators import Operator, Operators
from lmsweep.trials.analytic.rates.rank_schedule import rank_time
from lmsweep.trials.analytic.rates.rate_set import Network, rates_of
from lmsweep.trials.analytic.rates.step_time import step_time
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.spec.rules.combination_rules import why_not
from lmsweep.trials.spec.words import NAMED_TRAINERS
from tests.support.published_numbers import public_benchmarks

SETS = ("h200-devices", "h100-devices", "h200-x2-end-to-end", "h100-published-steps", "h100-best-grid", "h100-losses",
        "h100-cs336-2025")  # fmt: skip
PROFILED = ("small", "large")
"""Models of h100-cs336-2025 from whose profiles at PROFILED_CONTEXT the rates of products in fp32 are."""
PROFILED_CONTEXT = 256
SLOW_HOST = 2.6
"""Of an unknown host, over the reference: a step that it would decide is left out."""
UNSEEN = "unseen-steps.yaml", "unseen-steps-measured.csv"
"""Steps of one H200 that were predicted before they ran, 2026-11-25: docs/lab has them."""
TITAN = "steps/torchtitan.yaml", "steps/torchtitan-measured.csv"
"""Steps of one and two H200 by torchtitan's own loop (steps/torchtitan_loop.py, 2026-11-28): median wall time."""
PAIRS = ("h200-x2-ddp", "h200-x2-fsdp", "h200-x2-sharded")
"""Measured steps of two ranks."""
COURSE = {"seed3": "NVIDIA A100 80GB PCIe", "seed4": "NVIDIA A100-SXM4-80GB"}
"""Report -> its GPU. Their attention is written out and their code eager."""
UPDATES = ("seed4",)
"""Reports whose "forward and backward" updates the weights: what its times take beyond forward and backward is the
same at all contexts, grows with the weights as AdamW's bytes do, and its profile of that code shows AdamW."""
COMPILED = {"torch.compile nightly": 14, "bf16 autocast + compile": 12}
"""Framework of a row -> sequences in a batch."""
TRAINERS = {name: name for name in NAMED_TRAINERS} | {"torchao": "torchtitan", "torchtitan 0.2.2": "torchtitan"}
TRAINERS |= dict.fromkeys(("Megatron-Bridge", "Megatron-LM", "SimuMax", "vTrain"), "Megatron")
"""Source -> the trainer that ran its steps."""
MODEL_NAME = re.compile(r"(?:\d+ x )?((?:(?:Llama|Megatron|GPT) (?:[\d.]+ )?)?[^\s,]+)")
"""How the words of a cell begin."""
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
    roofline: float | None = None
    """Seconds by the roofline of the GPU's datasheet."""

    @property
    def residual(self) -> Residual:
        ratio, name = round(log(self.published / self.predicted), 4), MODEL_NAME.match(self.what)
        trainer, model = TRAINERS.get(self.source, ""), name[1] if name else ""
        return Residual(self.level, self.source, self.device, ratio, self.kind, trainer, model if trainer else "")


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


def cells_of_others(folder: Path, sources: Collection[str]) -> Iterator[Cell]:
    """Yield the steps and peaks that other trainers published, as `plan` predicts them; print others."""
    use_code(code_folder(str(MODELS)))
    apart: Counter[tuple[str, str]] = Counter()
    for cell in other_cells(folder, sources):
        device, why = device_named(cell.device), cell.why
        why = why or ("" if device else f"no datasheet of {cell.device}")
        if device and cell.config and not why:
            try:
                level, predicted, roofline = _peak(cell.config, device) if cell.is_peak else _step(cell, device)
            except (UnpredictableError, UnsupportedError) as error:
                why = str(error)
        if why or device is None:
            apart[cell.source, why] += 1
            continue
        if level == "host":
            apart[cell.source, "its host is not known, and may decide"] += 1
            continue
        level = "others" if cell.is_rl and level != "PCIe" else level
        print(f"{cell.source} {device.name} {cell.what}: {cell.published:.4g}, predicted {predicted:.4g}", flush=True)
        yield Cell(level=level, source=cell.source, device=device.name, what=cell.what,
                   published=cell.published, predicted=predicted, kind=cell.kind, roofline=roofline)  # fmt: skip
    for (source, why), count in apart.items():
        print(f"apart: {count} of {source}: {why}")


_operators = cache(step_operators)
_predicted = cache(predict)


def _peak(config: TrialConfig, device: Device) -> tuple[str, float, None]:
    return "memory", _predicted(config).on(device.name).peak, None


def _step(cell: OtherCell, device: Device) -> tuple[str, float, float]:
    """Return the level, the seconds of the operators of a step, and those by the roofline."""
    assert cell.config, "others are apart"
    config, rates = cell.config, rates_of(device)
    operators, waiting = in_precision(_operators(config), config), 0.0
    if cell.source == "prime-rl":
        operators = as_it_runs(operators, config, device, cell.is_rl)
        waiting = waits(config, cell.is_rl, cell.measured)
    elif cell.source == "NeuSight" and config.tp == 1:
        operators = as_collected(operators)
    alone, least = step_time(operators, rates), sum(_least(one, device) for one in operators)
    if config.world_size > 1:
        ranks = rank_time(operators, rates, config).elsewhere
        linked = "ranks" if device.name in LINKS else "PCIe"  # how such cards are connected is not known
        linked = "TP" if config.tp > 1 else linked  # another model stands for what ran: nothing is learned from it
        return "host" if SLOW_HOST * ranks.launching > ranks.busy else linked, ranks.at(1.0) + waiting, least
    known = rates.level(alone.product_type)
    level = "host" if SLOW_HOST * alone.launching > alone.computing else "others" if known == "measured" else known
    return level, alone.computing + waiting, least


def as_collected(operators: Operators) -> Operators:
    """Return the operators that NeuSight's collector times (neusight/Tracing/trace.py): the loss is computed between
    forward and backward, and as gradients are never set to zero, backward adds to them."""
    kept = [one for one in operators if one.phase == "backward" or one.module != "loss"]
    found = [one for one in kept if one.phase == "backward" and one.name == "mm" and one.layout == "tn"]
    weights = sum(one.count * one.shapes[0][0] * one.shapes[1][-1] for one in found)
    return (
        *kept,
        replace(found[0], name="add_", shapes=((weights,),), bytes=12 * weights, flops=0, layout="", count=1),
    )


def _least(one: Operator, device: Device) -> float:
    """Return the seconds of an operator at the peaks of the datasheet; none of a collective."""
    peak = {"bfloat16": device.bf16, "tf32": device.tf32, "float8_e4m3fn": device.fp8}.get(one.dtype) or device.fp32
    return one.count * (one.stream == "compute") * max(one.flops / peak, one.bytes / device.bytes_per_second)


def measured_cells(sweep: str, table: str, level: str, source: str) -> Iterator[Cell]:
    """Yield the steps of a sweep, as a table has them: of a trainer, or the device time of one process of our own."""
    folder = Path(__file__).parent
    use_code(code_folder(str(folder.parent / "examples")))
    configs = {
        trial_id(one.config): one.config
        for one in load_sweep(str(folder / sweep), code=str(folder.parent / "examples")).trials
    }
    with (folder / table).open(newline="") as file:
        for row in csv.DictReader(file):
            config, device = configs[row["trial_id"]], device_named(row["device"])
            assert device is not None
            operators, rates = in_precision(step_operators(config), config), rates_of(device)
            if config.world_size > 1:
                predicted = rank_time(operators, rates, config).elsewhere.at(1.0)
            else:
                predicted = step_time(operators, rates).computing
            yield Cell(level=level, source=source, device=device.name, what=str(config.model),
                       published=float(row["device_seconds"]), predicted=predicted)  # fmt: skip


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
        time = step_time(tuple(parts), rates_of(device))
        if SLOW_HOST * time.launching > time.computing:
            continue  # that host is unknown, and may decide
        yield Cell(level=rates_of(device).level(time.product_type), source=row["source"], device=device.name,
                   published=float(row["value"]), what=f"{row['model']} {row['precision']} {row['phase']}",
                   predicted=time.computing,
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


def ranks_cells(folder: Path) -> Iterator[Cell]:
    use_code(code_folder(str(MODELS)))
    for cell in chain(fleet_cells(str(folder / "published-fleet.csv")), fleet_cells(str(CHIPS))):
        device = find_device(cell.full_name)
        assert device is not None
        if (why := why_not(cell.config, "ddp")) and cell.source not in TUNED:
            print(f"apart: {cell.source} {device.name} {cell.ranks} x {cell.what}: {why}")
            continue
        in_node = 72 if device.name.startswith("GB") else 8
        adapter = NETWORKS.get(device.name, 0.0)
        network = Network(gpus=8, bytes_per_second=adapter, source="") if cell.ranks > in_node else None
        time = rank_time(rank_operators(cell), rates_of(device, network), cell.config)
        level = "tuned stacks" if cell.source in TUNED else "power limited" if cell.is_limited else "ranks"
        yield Cell(level=level, source=cell.source, device=device.name, what=f"{cell.ranks} x {cell.what}",
                   published=cell.seconds, predicted=time.seconds)  # fmt: skip


def tensor_parallel_cells() -> Iterator[Cell]:
    """Yield the steps with divided layers. Where the host of the trainer may decide, they are listed apart."""
    for cell, network in divided_cells():
        device, why = device_named(cell.device), cell.why
        assert device is not None
        if cell.config and not why:
            operators = operators_of(cell)
            time = rank_time(operators, rates_of(device, network), cell.config)
            time = time if cell.source == "torchtitan" else time.elsewhere
            why = "its host is not known, and may decide" if SLOW_HOST * time.launching > time.busy else None
        if why or cell.config is None:
            print(f"apart: {cell.source} {device.name} {cell.what}: {why}")
            continue
        yield Cell(level="TP", source=cell.source, device=device.name, what=cell.what, published=cell.published,
                   predicted=time.at(1.0), kind=cell.kind,
                   roofline=sum(_least(one, device) for one in operators))  # fmt: skip


def pair_cells() -> Iterator[Cell]:
    """Yield the measured steps of two ranks, where even a slow host does not decide."""
    for name in PAIRS:
        rows = load(name)
        rows = rows[rows["workload"].eq("ddp") & rows["phase"].eq("step") & rows["metric"].eq("time")]
        for row in rows[rows["median"].notna()].to_dict("records"):
            config, device = config_of(row), find_device(str(row["device_name"]), row["device_memory"])
            assert device is not None, "the reference sets are of devices with a datasheet"
            time = rank_time(in_precision(step_operators(config), config), rates_of(device), config)
            if SLOW_HOST * time.launching > time.busy:
                continue
            what = f"{config.model} {config.context_length} {config.ddp} {config.gather} {config.reshard}"
            yield Cell(level="two ranks", source=name, device=device.name, what=what,
                       published=float(row["median"]), predicted=time.seconds)  # fmt: skip


def product_cells(folder: Path) -> Iterator[Cell]:
    """Yield the fastest product that ml-engineering's search over shapes found on each GPU."""
    with (folder / "published-2026.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "max_matmul_rate"]
    for row in rows:
        shape = re.search(r"(\d+)x(\d+)x(\d+)", row["notes"])
        device = device_named(row["hardware"].split(" ", 1)[1].replace("A100 SXM", "A100 SXM 80GB"))
        assert shape and device, row
        m, n, k = map(int, shape.groups())
        is_float8 = row["precision"].startswith("fp8")
        dtype, flops = "float8_e4m3fn" if is_float8 else "bfloat16", 2 * m * n * k
        size = m * k + k * n if is_float8 else 2 * (m * k + k * n)
        product = Operator(name="_scaled_mm" if is_float8 else "mm", shapes=((m, k), (k, n)), dtype=dtype, flops=flops,
                           bytes=size + 2 * m * n, phase="forward", module="", layout="nt")  # fmt: skip
        yield Cell(level="products alone", source=row["source"], device=device.name, what=dtype,
                   published=flops / float(row["value"]) / 1e12,
                   predicted=rates_of(device).of(product).seconds)  # fmt: skip


def compiled_cells(folder: Path) -> Iterator[Cell]:
    """Yield the steps of GPT-2 XL that two issues state as rates of 6 N + 12 L d s. A script states the sizes of those
    in COMPILED, and the batch of the first a day later."""
    use_code(code_folder(str(MODELS)))
    layers, width, context, vocabulary = 48, 1600, 1024, 50304
    args = json.dumps({"heads": 25, "layers": layers, "width": width}, separators=(",", ":"))
    weights = 12 * layers * width**2 + (vocabulary + context) * width
    with (folder / "published-2026.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["framework"] in COMPILED and "TFLOP" in row["unit"]]
    for row in rows:
        batch, name = COMPILED[row["framework"]], row["hardware"].split(" ")[0]
        device = device_named({"H100": "H100 SXM"}.get(name, name))
        config = TrialConfig(model="gpt2-xl", model_code="mpt.py:build", model_args=args, vocab_size=vocabulary,
                             d_model=0, context_length=context, batch_size=batch, precision="bf16",
                             attention="sdpa_flash", loss="cross_entropy", compile="block", blocks="blocks",
                             device="cuda")  # fmt: skip
        assert device is not None
        flops = batch * context * (6 * weights + 12 * layers * width * context)
        yield Cell(level="sizes assumed", source=row["source"], device=device.name, what=f"gpt2-xl x {batch}",
                   published=flops / float(row["value"]) / 1e12,
                   predicted=step_time(step_operators(config), rates_of(device)).computing)  # fmt: skip


GROUPS: dict[str, Callable[[Path, int], Iterator[Cell]]] = {
    "ranks": lambda folder, _: ranks_cells(folder),
    "own": lambda _, every: own_cells(every),
    "course": lambda _, __: course_cells(),
    "attention": lambda _, __: attention_cells(),
    "pairs": lambda _, __: pair_cells(),
    "tensor-parallel": lambda _, __: tensor_parallel_cells(),
    "unseen": lambda _, __: measured_cells(*UNSEEN, "measured", "unseen-steps"),
    "torchtitan-steps": lambda _, __: measured_cells(*TITAN, "run here", "torchtitan 0.2.2"),
    "products": lambda folder, _: product_cells(folder),
    "compiled": lambda folder, _: compiled_cells(folder),
    "doubted": lambda folder, _: cells_of_others(folder, DOUBTED),
    **{name.replace(" ", "-"): lambda folder, _, name=name: cells_of_others(folder, (name,)) for name in READERS},
}
"""Name -> its cells, from a folder with the published numbers and of each `every`-th step of the shipped sets. A
process imports the code of one folder, so each is for a process of its own."""


def cells_in(group: str, folder: Path, every: int) -> list[Cell]:
    return [*GROUPS[group](folder, every)]
