"""Models how long an iteration takes, from FLOPs and bytes, and how long its graph takes to compile.

An iteration takes as long as the device computes and moves bytes, or as long as the host launches kernels, whichever
is longer. The constants were fitted to one NVIDIA H200 with 16 cores (docs/performance.md). On other devices they are
a first guess, which measured results correct (`lmsweep.orchestrator.planning.time_estimate`).
"""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from lmsweep.trials.analytic.datasheets import DEVICES, CpuRates, Device, device_named, find_device
from lmsweep.trials.analytic.formulas import PASSES
from lmsweep.trials.analytic.roofline_time import FACTORS, attention_parts, busy_time, loss_parts, seconds_of
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.workloads import Workload, workload_named

LAUNCH_SECONDS = {False: 0.65e-3, True: 0.3e-3}
"""Whether the step is compiled -> seconds in which the host launches one layer's forward pass; backward takes twice
as long."""
AUTO_WARMUP_STEPS = 10
AUTO_MEASURE_STEPS = 60
"""Typical number of iterations with `auto`."""

_A100 = next(device for device in DEVICES if device.name == "A100 SXM 80GB")
NOMINAL = {
    "cuda": _A100,
    "xpu": _A100,
    "mps": _A100,
    "cpu": replace(_A100, name="CPU", bytes_per_second=2e10, fp32=1e11, tf32=1e11, bf16=1e11, fp16=1e11),
}
"""Kind of device -> stand-in for a device without a datasheet: good only for comparing trials with one another."""


def cpu_with(rates: CpuRates) -> Device:
    """Return a stand-in for the datasheet of a CPU. Products were measured: FACTORS holds for a datasheet's peak."""
    share = FACTORS["products"]
    fp32, bf16 = share * rates.fp32, share * rates.bf16
    memory = rates.bytes_per_second
    return replace(NOMINAL["cpu"], bytes_per_second=memory, fp32=fp32, tf32=fp32, bf16=bf16, fp16=fp32)


def datasheet_of(environment: Fingerprint) -> Device | None:
    """Return the datasheet of a device, if there is one. A device given by `--for` has the exact name in the table."""
    return _datasheet(environment.device_name, environment.device_memory)


@cache
def _datasheet(name: str, memory: int | None) -> Device | None:
    return find_device(name, memory) or device_named(name)


def is_modelled(config: TrialConfig, workload: Workload) -> bool:
    """Return whether `iterations_seconds` knows what the workload does: not if the user's own code does it."""
    if workload.needs == "model":
        return config.model_code is None and config.step is None
    return not is_reference(workload.name)


def needs_step(config: TrialConfig, workload: Workload) -> bool:
    """Return whether only the operators of a step say how long it takes: those of the user's own code, and of ranks,
    which communicate."""
    return workload.holds == "model" and (config.world_size > 1 or not is_modelled(config, workload))


def needs_operators(trial: Trial) -> bool:
    """Return whether the time of a trial is known only with its operators, which are predicted for GPUs."""
    return trial.config.device_type == "cuda" and any(
        needs_step(trial.config, workload_named(name)) for name in trial.workloads
    )


def iterations_seconds(config: TrialConfig, workload: Workload, device: Device, step: float | None = None) -> float:
    """Return the seconds of all iterations of a workload, warm-up included; of the user's own code, too few. step: of
    one step, if it is known."""
    launching = 3 * LAUNCH_SECONDS[config.compiles]
    match workload.holds or workload.name:
        case "attention":
            once = max(seconds_of(attention_parts(config, device, runs=3)), launching)
        case "loss":
            once = max(seconds_of(loss_parts(config, device)), launching)
        case _:
            once = step_seconds(config, device) if step is None else step
    if workload.iterations is not None:
        return max(workload.iterations * once, workload.least_seconds)
    warmup = AUTO_WARMUP_STEPS if config.warmup_steps == "auto" else config.warmup_steps
    measure = AUTO_MEASURE_STEPS if config.measure_steps == "auto" else config.measure_steps
    series: tuple[float, ...] = (warmup * once, measure * workload.runs_per_step * once)
    if config.max_seconds is not None:
        series = tuple(min(one, config.max_seconds + once) for one in series)
    return max(sum(series), workload.least_seconds)


def graph_seconds(config: TrialConfig) -> float:
    """Return the seconds that one core takes to compile the trial's graph; 0 if it compiles nothing."""
    if not config.compiles:
        return 0.0
    fixed, per_layer = config.compilation.seconds
    return fixed + per_layer * (config.num_layers or 0)


def step_seconds(config: TrialConfig, device: Device) -> float:
    """Return the seconds of one iteration of a whole model; 0 if its work is not known, as of the user's own model."""
    parts = step_parts(config, device)
    return max(parts.computing + parts.updating, parts.launching) if parts else 0.0


class StepParts(NamedTuple):
    computing: float
    """Seconds of the device for forward and backward."""
    updating: float
    """Seconds of the device for the optimizer's update."""
    launching: float
    """Seconds in which the host launches forward and backward."""


def step_parts(config: TrialConfig, device: Device) -> StepParts | None:
    """Return what an iteration of a whole model takes; None if its work is not known, as of the user's own model."""
    busy = busy_time(config, device)
    if busy is None:
        return None
    layers, passes = config.num_layers or 0, PASSES[config.mode]
    launching = 0.0 if config.device_type == "cpu" else LAUNCH_SECONDS[config.compiles] * layers * passes
    return StepParts(computing=busy.computing, updating=busy.updating, launching=launching)
