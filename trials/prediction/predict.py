"""Predicting a trial's memory without its device, from what `lmsweep.trials.prediction.meta_run` counts.

Two small models stand for a deep one: all layers are alike, so the allocations of a model of L layers are those of a
smaller one with one layer's repeated. Where two models do not differ by just that, the whole model is run.

``python -m lmsweep.trials.prediction.predict PID`` reads a question about a list of configurations from standard input,
as JSON, and prints the answers as they come, on a line each with the index of its configuration, so that planning can
ask without importing torch. It ends with its parent, the process PID.
"""

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from typing import Any

import torch

from lmsweep.trials.analytic.memory_bounds import bounds_of, family
from lmsweep.trials.analytic.memory_prediction import (
    LARGE_WORKSPACE,
    Dimension,
    Prediction,
    cublas_workspace,
    with_value,
)
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.processes import die_with_parent
from lmsweep.trials.model.training_step import PHASES
from lmsweep.trials.prediction.allocation_trace import Trace, held, runs_within
from lmsweep.trials.prediction.caching_allocator import MIB, CachingAllocator
from lmsweep.trials.prediction.layer_extrapolation import deepen
from lmsweep.trials.prediction.meta_run import (
    FUSED_ATTENTION,
    ITERATIONS,
    UnpredictableError,
    attention_trace,
    leaves_something,
    model_trace,
    one_run_for,
    one_trace_for,
)
from lmsweep.trials.spec.config import Mode, TrialConfig, UnsupportedError
from lmsweep.trials.spec.workloads import Subject

MOST_GRAPHS = 12
"""Graphs of one trace that are given to one process at a time."""

CONTEXT_UNIT = 64
"""Context lengths are tried in multiples of this many tokens."""

UNSURE = 32 * MIB
"""By how much more or less than was measured CUDA and the kernels of other models may take beside the allocator."""

UNSURE_COMPILED = 64 * MIB
"""The same where a part is compiled, whose order of allocations is estimated."""

UNSURE_GAPS = 0.013
"""Share of the budget that gaps between the blocks of compiled code may take beyond what is simulated: of six largest
batches that were tried on an H100 and an H200, one was out of memory where the simulation had 1.2 % to spare.
"""


def predict(config: TrialConfig, subject: Subject = "model", *, run: Mode | None = None) -> Prediction:
    """What the trial will hold.

    `run` is a mode with all phases of the configuration's own, where one run is to serve several predictions. Raises
    UnpredictableError, or UnsupportedError where the trial would.
    """
    trace = _trace(config, subject, run)
    calls_cublas = config.device_type == "cuda" and (subject == "model" or config.attention not in FUSED_ATTENTION)
    phases = held(trace, CachingAllocator() if config.device_type == "cuda" else None, LARGE_WORKSPACE)
    at = max(phases, key=lambda name: phases[name].allocated)
    most = {name: phase.requested for name, phase in phases.items()}
    return Prediction(
        peak=phases[at].allocated,
        at=at,
        requested=max(most.values()),
        reserved=max(phase.reserved for phase in phases.values()),
        after_init=phases["init"].end,
        before_backward=phases["forward"].end,
        peak_forward=most["forward"],
        peak_backward=most.get("backward"),
        peak_optimizer=most.get("optimizer"),
        step_end=phases["dropped"].end,
        workspaces=calls_cublas * (2 if "backward" in phases else 1),
    )


def fits(config: TrialConfig, subject: Subject, budget: int, device_name: str) -> bool | None:
    """Whether the trial runs on this CUDA device where the allocator may have `budget` bytes of it; None where a little
    more or less would decide. Raises as `predict`.
    """
    trace, workspace = _trace(config, subject), cublas_workspace(device_name)
    unsure = UNSURE_COMPILED if config.compiles else UNSURE
    gaps = int(UNSURE_GAPS * budget) if config.compiles else 0
    if runs_within(trace, budget - unsure - gaps, workspace):
        return True
    return None if runs_within(trace, budget + unsure, workspace) else False


def _trace(config: TrialConfig, subject: Subject, run: Mode | None = None) -> Trace:
    """What the trial allocates and frees, in all its iterations."""
    if config.world_size > 1:
        raise UnpredictableError("training on several devices is not predicted")
    if config.capture != "none":
        raise UnpredictableError("the memory that CUDA graphs keep to themselves is not predicted")
    if subject == "attention":
        trace = attention_trace(config)
    elif config.num_layers is None:
        raise UnpredictableError("it has no whole model")
    else:
        trace = _deep_trace(config, config.num_layers, run)
    if subject == "attention" or not leaves_something(config):
        init, *iteration = trace
        trace = [init, *iteration * ITERATIONS]
    return trace


def _deep_trace(config: TrialConfig, num_layers: int, run: Mode | None) -> Trace:
    """The trace of the model's real depth."""
    if num_layers > 3 and config.checkpointing != "sqrt":
        for few in (1, 2):
            small, larger = (model_trace(replace(config, num_layers=few + more), run) for more in (0, 1))
            deep = deepen(small, larger, num_layers - few)
            if deep:
                return deep
    return model_trace(config, run)


def largest_that_fits(config: TrialConfig, dimension: Dimension, budget: int, device_name: str) -> tuple[int, int]:
    """The largest batch_size, or the largest context_length of whole CONTEXT_UNITs, that is sure to fit into `budget`
    bytes of the device, and the largest that may fit; 0 where not even the smallest does. Raises as `predict`.
    """
    unit = CONTEXT_UNIT if dimension == "context_length" else 1

    def peak(units: int) -> int:
        return predict(with_value(config, dimension, units * unit)).on(device_name).peak

    most = _most_by_peak(peak, budget)
    if config.device_type != "cuda" or most == 0:
        return most * unit, most * unit

    def verdict(units: int) -> bool | None:
        return fits(with_value(config, dimension, units * unit), "model", budget, device_name)

    # Free blocks between others leave room for a few per cent less than the peaks would.
    too_many, step = most + 1, 1
    while (sure := too_many - step) > 0 and verdict(sure) is not True:
        too_many, step = sure, 2 * step
    sure = max(sure, 0)
    while too_many - sure > 1:
        middle = (sure + too_many) // 2
        if verdict(middle):
            sure = middle
        else:
            too_many = middle
    possible = sure
    while possible < most and verdict(possible + 1) is not False:
        possible += 1
    return sure * unit, possible * unit


def _most_by_peak(peak: Callable[[int], int], budget: int) -> int:
    """The largest number whose peak is at most `budget` bytes."""
    fitting, low = 1, peak(1)
    if low > budget:
        return 0
    too_many = 8
    while (high := peak(too_many)) <= budget:
        fitting, low = too_many, high
        too_many *= 8
    # Memory is convex in both dimensions: what the chord between two points allows does fit. Where it bends, halve.
    while too_many - fitting > 1:
        chord = fitting + (budget - low) * (too_many - fitting) // (high - low)
        for guess in (chord, chord + 1, (fitting + too_many) // 2):
            if fitting < guess < too_many:
                found = peak(guess)
                if found <= budget:
                    fitting, low = guess, found
                else:
                    too_many, high = guess, found
    return fitting


def side_by_side(work: Callable[..., list[Any]], configs: list[TrialConfig], *more: list[Any]) -> list[Any]:
    """The results of `as_they_come`, in the order of the configurations."""
    found = dict(as_they_come(work, configs, *more))
    return [found[i] for i in range(len(configs))]


def as_they_come(
    work: Callable[..., list[Any]], configs: list[TrialConfig], *more: list[Any]
) -> Iterator[tuple[int, Any]]:
    """The results of `work` on the configurations, each with its index, by a process per core. It is given lists of
    those that one run serves, and one process those that share a trace.
    """
    torch.set_num_threads(1)
    runs: dict[TrialConfig, list[int]] = {}
    for i, config in enumerate(configs):
        runs.setdefault(one_run_for(config), []).append(i)
    traces: dict[TrialConfig, list[list[int]]] = {}
    for run, served in runs.items():
        traces.setdefault(one_trace_for(run), []).append(served)
    # What compiles takes longest and comes first.
    of_traces = [graphs for trace, graphs in traces.items() if trace.compile != "none"]
    jobs = [graphs[i : i + MOST_GRAPHS] for graphs in of_traces for i in range(0, len(graphs), MOST_GRAPHS)]
    jobs += [only for trace, only in traces.items() if trace.compile == "none"]
    if of_traces and len(jobs) > 1:
        import_module("torch._inductor.fx_passes.joint_graph")  # before the fork, so that it is imported once
    yield from _in_pool(partial(_each, work, (configs, *more)), jobs)


def _in_pool(
    do: Callable[[list[list[int]]], list[tuple[int, Any]]], jobs: list[list[list[int]]]
) -> Iterator[tuple[int, Any]]:
    """What is done about the jobs, by a process per core."""
    torch.set_num_threads(1)
    workers = min(len(usable_cores()), len(jobs))
    if workers < 2:
        for job in jobs:
            yield from do(job)
        return
    gc.freeze()  # else the collections of each process go through all of PyTorch
    with ProcessPoolExecutor(
        workers, mp_context=get_context("fork"), initializer=die_with_parent, initargs=(os.getpid(),)
    ) as pool:
        for done in as_completed([pool.submit(do, job) for job in jobs]):
            yield from done.result()


def _each(
    work: Callable[..., list[Any]], columns: tuple[list[Any], ...], job: list[list[int]]
) -> list[tuple[int, Any]]:
    return [
        answered
        for served in job
        for answered in zip(served, work(*([column[i] for i in served] for column in columns)), strict=True)
    ]


def _predictions(configs: list[TrialConfig], subjects: list[Subject]) -> list[dict[str, Any]]:
    """For configurations that one run serves: predictions, or why there are none, by their nature or by mishap."""
    widest = max((config.mode for config in configs), key=lambda mode: len(PHASES[mode]))
    run = widest if configs[0].compile == "none" and configs[0].mode != "forward" else None
    return [_predict_or_reason(config, subject, run) for config, subject in zip(configs, subjects, strict=True)]


def _predict_or_reason(config: TrialConfig, subject: Subject, run: Mode | None) -> dict[str, Any]:
    try:
        return asdict(predict(config, subject, run=run))
    except (UnpredictableError, UnsupportedError) as error:
        return {"reason": str(error)}
    except Exception as error:  # noqa: BLE001 - a plan with one prediction less is better than none
        return {"failure": _failure(error)}


def _frontiers(
    configs: list[TrialConfig], budgets: list[int], device_names: list[str], *, dimension: Dimension
) -> list[dict[str, Any]]:
    return [
        _frontier_or_reason(config, dimension, budget, device_name)
        for config, budget, device_name in zip(configs, budgets, device_names, strict=True)
    ]


def _frontier_or_reason(config: TrialConfig, dimension: Dimension, budget: int, device_name: str) -> dict[str, Any]:
    try:
        sure, possible = largest_that_fits(config, dimension, budget, device_name)
        return {"largest": sure, "possible": possible, "reason": None}
    except (UnpredictableError, UnsupportedError) as error:
        return {"largest": None, "possible": None, "reason": str(error)}
    except Exception as error:  # noqa: BLE001 - a frontier with one row less is better than none
        return {"largest": None, "possible": None, "reason": _failure(error)}


def _verdicts(
    configs: list[TrialConfig], subjects: list[Subject], budgets: list[int], device_names: list[str]
) -> list[dict[str, Any]]:
    """For configurations whose memory is predicted: whether they fit."""
    return [_verdict_or_failure(*one) for one in zip(configs, subjects, budgets, device_names, strict=True)]


def _verdict_or_failure(config: TrialConfig, subject: Subject, budget: int, device_name: str) -> dict[str, Any]:
    try:
        return {"fits": fits(config, subject, budget, device_name)}
    except Exception as error:  # noqa: BLE001 - what is not known to fit runs
        return {"failure": _failure(error)}


def _failure(error: Exception) -> str:
    return f"predicting it failed: {type(error).__name__}: {error}"


def _bounded(
    configs: list[TrialConfig], subjects: list[Subject], rooms: list[int], device_names: list[str], *, most: int
) -> list[dict[str, Any]]:
    """For configurations of one family, that run on one device: predictions of some, and bounds of the others."""
    found: dict[int, dict[str, Any]] = {}

    def peak(index: int) -> int | None:
        found[index] = _predict_or_reason(configs[index], subjects[index], None)
        return Prediction(**found[index]).on(device_names[index]).peak if "peak" in found[index] else None

    bounds = bounds_of(configs, rooms[0], peak, most)
    return [found.get(i, asdict(one)) for i, one in enumerate(bounds)]


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    request = json.load(sys.stdin)
    configs = [TrialConfig(**content) for content in request["configs"]]
    if request["question"] == "predict":
        answers = as_they_come(_predictions, configs, request["subjects"])
    elif request["question"] == "fits":
        columns = (request[name] for name in ("subjects", "budgets", "device_names"))
        answers = as_they_come(_verdicts, configs, *columns)
    elif request["question"] == "bounds":
        asked = (configs, request["subjects"], request["rooms"], request["device_names"])
        families: dict[tuple[TrialConfig, str, int], list[int]] = {}
        for i, config in enumerate(configs):
            families.setdefault((family(config), request["subjects"][i], request["rooms"][i]), []).append(i)
        most = max(2, request["most"] // len(families))
        do = partial(_each, partial(_bounded, most=most), asked)
        answers = _in_pool(do, [[indices] for indices in families.values()])
    else:
        frontiers = partial(_frontiers, dimension=request["dimension"])
        answers = as_they_come(frontiers, configs, request["budgets"], request["device_names"])
    for answered in answers:
        print(json.dumps(answered), flush=True)


if __name__ == "__main__":
    main()
