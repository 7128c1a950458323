"""Runs the trials of `lmsweep accept` on one node, and finds what disturbs them. Needs no Ray: each GPU has a trial
server."""

import os
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import lmsweep
from lmsweep.orchestrator.cluster.nodes import this_machine
from lmsweep.orchestrator.features.accept.acceptance import Condition, NodeSeen
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.isolation.server_process import ServerProcess
from lmsweep.trials.isolation.standby import Standby, slot_name, visible_gpus
from lmsweep.trials.machine.cpu_affinity import Gpu, cores_of, find_cores, find_gpus, usable_cores
from lmsweep.trials.machine.gpu.cuda_keepalive import ReadyCudaDriver
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record, Row, records_of
from lmsweep.trials.spec.config import Trial

Trials = Mapping[str, Sequence[Trial]]
"""host, gpu, node -> the trials for the cores, for each GPU by itself, and for all GPUs together."""
TELEMETRY = ("sm_clock", "power", "temperature")
ENVIRONMENT = ("host_cpu", "host_cores", "driver_version", "torch_version", "python_version")
TELEMETRY_MODEL = "large"
"""Model of the step whose telemetry is shown."""
HOST_CONDITIONS = {
    "busy cores": "other processes use {} cores",
    "cores": "it has few cores ({})",
    "container CPU quota": "a quota limits it to {}",
}
"""Check of the machine -> the condition that slows the host, in words for a user."""
GPU_CONDITIONS = {
    "other processes": "another process uses this GPU ({})",
    "MIG": "it is partitioned (MIG {})",
    "power limit": "its power limit is {}",
    "temperature": "it is hot before anything runs ({})",
    "ECC": "ECC is {}",
}
OTHER_PROCESS_CHECKS = ("busy cores", "other processes")
"""Checks that detect other processes."""
COLLECTIVE_SETTINGS = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_P2P_LEVEL", "NCCL_ALGO", "NCCL_PROTO")
"""Environment variables that make NCCL choose another transport or algorithm."""


class Measured(NamedTuple):
    """What one node measured."""

    seen: NodeSeen
    attempts: tuple[Sequence[Row], ...] = ()


class _Slot(NamedTuple):
    """Hardware that is measured by itself, and its trials."""

    unit: str
    """`GPU 0`, `links` for all GPUs together, or `host`."""
    gpus: Sequence[str]
    """GPUs as CUDA_VISIBLE_DEVICES names them; empty: the cores."""
    trials: Sequence[Trial]


class _Attempt(NamedTuple):
    unit: str
    rows: Sequence[Row]


def measure_node(trials: Trials, progress: Callable[[str], object] = lambda words: None) -> Measured:
    """Run the trials here: those of each GPU beside the others, then those of all GPUs, then those of the cores."""
    gpus = find_gpus()
    # As CUDA_VISIBLE_DEVICES names a GPU, by index or UUID -> its index and UUID.
    visible = {name: gpu.names for name in visible_gpus(gpus) for gpu in gpus if name in gpu.names}
    units = {uuid: f"GPU {index}" for index, uuid in visible.values()}
    conditions = _disturbances([*units.values()])  # before anything of ours runs
    stages = _stages(trials, visible)
    with ExitStack() as stack:
        standby = Standby()
        stack.callback(standby.close)

        def start_servers() -> None:
            if units:
                stack.callback(ReadyCudaDriver().close)
            for slot in (slot for stage in stages for slot in stage):
                standby.add([*slot.gpus], compiles=False)

        progress("describing this machine")
        # The trial servers start, and import torch, while another process describes the machine.
        environments = this_machine(start_servers).environments
        attempts = _run_stages(stages, standby, environments, gpus, progress)
    records = [record for one in attempts for record in records_of(one.rows)]
    failures = [one for attempt in attempts for one in _failures(*attempt)]
    # The first one knows the driver, if any does.
    fingerprints = sorted((record.fingerprint for record in records), key=lambda one: one.driver_version is None)
    seen = NodeSeen(
        node=socket.gethostname(),
        gpus=units,
        device_name=environments["cuda"].device_name if "cuda" in environments else None,
        conditions=tuple(conditions),
        failures=tuple(dict.fromkeys(failures)),
        telemetry={unit: _telemetry(records, uuid) for uuid, unit in units.items()},
        environment={name: getattr(fingerprints[0], name) for name in ENVIRONMENT} if fingerprints else {},
    )
    return Measured(seen, tuple(one.rows for one in attempts))


def _stages(trials: Trials, visible: Mapping[str, tuple[str, ...]]) -> list[list[_Slot]]:
    """Return the slots that run at the same time, stage by stage. visible: name of a GPU -> its index and UUID."""
    alone = [_Slot(f"GPU {index}", [name], trials["gpu"]) for name, (index, *_) in visible.items()]
    together: list[_Slot] = []
    if len(visible) > 1 and trials["node"]:
        of_all = [replace(one, config=replace(one.config, world_size=len(visible))) for one in trials["node"]]
        together = [_Slot("links", [*visible], of_all)]
    # The cores come last, when no server still imports torch.
    return [stage for stage in (alone, together, [_Slot("host", [], trials["host"])]) if stage]


def _run_stages(
    stages: Sequence[Sequence[_Slot]],
    standby: Standby,
    environments: Mapping[str, Fingerprint],
    gpus: Sequence[Gpu],
    progress: Callable[[str], object],
) -> list[_Attempt]:
    """Run one stage after the other, and the slots of a stage side by side."""
    stop = threading.Event()

    def run(slot: _Slot) -> list[_Attempt]:
        """Run the trials of a slot, each in as many processes as it asks for."""
        server = ServerProcess.take(standby.folder, slot_name(slot.gpus))
        attempts: list[_Attempt] = []
        with IsolatedRunner(cores=cores_of(slot.gpus, gpus, find_cores()), server=server) as runner:
            for trial in (one for one in slot.trials for _ in range(one.config.processes)):
                fallback = environments.get(trial.config.device_type) or environments["cpu"]
                rows = runner.run(trial, fallback=fallback, is_cancelled=stop.is_set)
                attempts.append(_Attempt(slot.unit, rows))
                if not rows or any(one.status == Status.LOST for one in records_of(rows)):
                    break  # cancelled; or its server died, and a new one would not know its GPU
        return attempts

    attempts: list[_Attempt] = []
    with ThreadPoolExecutor(max(map(len, stages))) as pool:
        try:
            for place, stage in enumerate(stages, 1):
                progress(f"measuring {', '.join(slot.unit for slot in stage)} ({place} of {len(stages)})")
                for of_slot in pool.map(run, stage):
                    attempts += of_slot
        finally:
            stop.set()  # else the pool's exit waits for all trials, after Ctrl-C as well
    return attempts


def _disturbances(gpus: Collection[str]) -> list[Condition]:
    """Return what is wrong here while nothing of ours runs. gpus: units that will be measured."""
    # Only launches for GPUs suffer from few cores: without a GPU, times are compared with those of as many cores.
    few_cores_matter = bool(gpus)
    of_host = {check: words for check, words in HOST_CONDITIONS.items() if few_cores_matter or check != "cores"}
    conditions_of = {"host": of_host, **dict.fromkeys(gpus, GPU_CONDITIONS)}
    conditions = []
    findings = lmsweep.machine_findings() if hasattr(lmsweep, "machine_findings") else ()  # of the feature `doctor`
    for unit, finding in findings:
        words = conditions_of.get(unit, {}).get(finding.check)
        if words is None or not finding.advice:
            continue  # without advice nothing is wrong
        shown = finding.finding
        if finding.check == "other processes":
            shown = shown.partition(", ")[2]  # of `2 processes, 3 GiB` without their number, which a container hides
        conditions.append(Condition(unit, words.format(shown), disturbs=finding.check in OTHER_PROCESS_CHECKS))
    usable, there = len(usable_cores()), os.cpu_count() or 1
    if usable < there:
        says = f"this process may use {usable} of {there} cores"
        conditions.append(Condition("host", says, disturbs=few_cores_matter))
    for name in COLLECTIVE_SETTINGS if len(gpus) > 1 else ():
        if value := os.environ.get(name):
            conditions.append(Condition("links", f"{name}={value} is set here", disturbs=True))
    return conditions


def _failures(unit: str, rows: Sequence[Row]) -> Iterator[Condition]:
    """Yield why trials have no result. That a trial does not fit in memory, or is not supported, is a result."""
    for record in records_of(rows):
        if not Status(record.status).is_final:
            reason = (record.error or record.status).splitlines()[0]
            yield Condition(unit, f"{record.workload} ended as {record.status}: {reason}")


def _telemetry(records: Sequence[Record], uuid: str) -> dict[str, float]:
    """Return metric -> its median on this GPU while TELEMETRY_MODEL trained."""
    shown = [one for one in records if one.fingerprint.gpu_uuid == uuid and one.config.model == TELEMETRY_MODEL]
    return {one.metric: median(one.samples) for one in shown if one.metric in TELEMETRY and one.samples}
