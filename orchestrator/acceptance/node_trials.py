"""What `lmsweep accept` runs on one node, and what there distorts it. Needs no Ray: each GPU has a trial server."""

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from lmsweep.analysis.acceptance.conditions import Condition
from lmsweep.orchestrator.acceptance.disturbances import GpuHere, disturbances, gpus_here
from lmsweep.orchestrator.cluster.nodes import Node, this_machine
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.isolation.server_process import ServerProcess
from lmsweep.trials.isolation.standby import Standby, slot_name
from lmsweep.trials.machine.cpu_affinity import Gpu, cores_of, find_cores, find_gpus
from lmsweep.trials.machine.gpu.cuda_keepalive import ReadyCudaDriver
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Row, records_of
from lmsweep.trials.spec.config import Trial

Trials = Mapping[str, Sequence[Trial]]
"""host, gpu, node -> the trials for the cores, for each GPU by itself, and for all GPUs together."""


class Attempted(NamedTuple):
    unit: str
    """GPU 0, links, host."""
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one node measured."""

    node: str
    """Its network name."""
    gpus: tuple[GpuHere, ...]
    device_name: str | None
    """What the driver calls its GPUs."""
    attempts: tuple[Attempted, ...]
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, kw_only=True)
class _Slot:
    unit: str
    gpu_ids: list[str]
    """As CUDA_VISIBLE_DEVICES names them; none: the cores."""
    trials: Sequence[Trial]


def measure_node(trials: Trials, progress: Callable[[str], object] = lambda words: None) -> Measured:
    """Run the trials here: those of each GPU beside the others, then those of all GPUs, then those of the cores."""
    found = find_gpus()
    gpus = gpus_here(found)
    conditions = disturbances(gpus)  # before anything of ours runs
    stop = threading.Event()
    alone = [_Slot(unit=gpu.unit, gpu_ids=[gpu.visible], trials=trials["gpu"]) for gpu in gpus]
    links = [
        _Slot(
            unit="links",
            gpu_ids=[gpu.visible for gpu in gpus],
            trials=[replace(one, config=replace(one.config, world_size=count)) for one in trials["node"]],
        )
        for count in ([len(gpus)] if len(gpus) > 1 else [])
    ]
    # Last, when no server still imports torch.
    cores = _Slot(unit="host", gpu_ids=[], trials=trials["host"])
    with ExitStack() as stack:
        standby = Standby()
        stack.callback(standby.close)

        def start() -> None:
            if gpus:
                stack.callback(ReadyCudaDriver().close)
            for slot in (*alone, *links, cores):
                standby.add(slot.gpu_ids, compiles=False)

        progress("describing this machine")
        node = this_machine(start)
        run = partial(_run, standby, node, found, stop)
        attempts: list[Attempted] = []
        stages = [stage for stage in (alone, links, [cores]) if stage]
        with ThreadPoolExecutor(max(1, len(gpus))) as pool:
            try:
                for place, stage in enumerate(stages, 1):
                    progress(f"measuring {', '.join(slot.unit for slot in stage)} ({place} of {len(stages)})")
                    attempts += [one for each in pool.map(run, stage) for one in each]
            finally:
                stop.set()  # else leaving waits for the trials after Ctrl-C
    on_gpu = node.environments.get("cuda")
    return Measured(
        node=socket.gethostname(),
        gpus=gpus,
        device_name=on_gpu.device_name if on_gpu else None,
        attempts=tuple(attempts),
        conditions=tuple(conditions),
    )


def _run(
    standby: Standby,
    node: Node,
    gpus: Sequence[Gpu],
    stop: threading.Event,
    slot: _Slot,
) -> list[Attempted]:
    """Run the trials of a slot, each in as many processes as it asks for."""
    server = ServerProcess.take(standby.folder, slot_name(slot.gpu_ids))
    attempts: list[Attempted] = []
    repeated = [trial for trial in slot.trials for _ in range(trial.config.processes)]
    with IsolatedRunner(cores=cores_of(slot.gpu_ids, gpus, find_cores()), server=server) as runner:
        for trial in repeated:
            fallback = node.environments.get(trial.config.device_type) or node.environments["cpu"]
            rows = runner.run(trial, fallback=fallback, is_cancelled=stop.is_set)
            attempts.append(Attempted(slot.unit, tuple(rows)))
            if not rows or any(record.status == Status.LOST for record in records_of(rows)):
                break  # cancelled; or its server died, and a new one would not know its GPU
    return attempts
