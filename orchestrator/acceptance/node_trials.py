"""What `lmsweep accept` runs on one node, and what there distorts it. Needs no Ray: each GPU has a trial server."""

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

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


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one node measured."""

    node: str
    """Its network name."""
    gpus: tuple[GpuHere, ...]
    device_name: str | None
    """What the driver calls its GPUs."""
    attempts: tuple[tuple[Row, ...], ...]
    conditions: tuple[Condition, ...]


def measure_node(trials: Trials) -> Measured:
    """Run the trials here: those of the cores, then those of each GPU beside the others, then those of all GPUs."""
    found = find_gpus()
    gpus = gpus_here(found)
    conditions = disturbances(gpus)  # before anything of ours runs
    attempts: list[tuple[Row, ...]] = []
    with ExitStack() as stack:
        standby = Standby()
        stack.callback(standby.close)
        alone = [[gpu.visible] for gpu in gpus]
        together = [gpu.visible for gpu in gpus]
        slots = [[], *alone, *([together] if len(gpus) > 1 else [])]

        def start() -> None:
            if gpus:
                stack.callback(ReadyCudaDriver().close)
            for slot in slots:
                standby.add(slot, compiles=False)

        node = this_machine(start)
        run = partial(_run, standby, node, found)
        attempts += run(trials["host"], [])
        if gpus:
            with ThreadPoolExecutor(len(gpus)) as pool:
                attempts += [one for each in pool.map(partial(run, trials["gpu"]), alone) for one in each]
        if len(gpus) > 1:
            of_all = [replace(one, config=replace(one.config, world_size=len(gpus))) for one in trials["node"]]
            attempts += run(of_all, together)
    on_gpu = node.environments.get("cuda")
    return Measured(
        node=socket.gethostname(),
        gpus=gpus,
        device_name=on_gpu.device_name if on_gpu else None,
        attempts=tuple(attempts),
        conditions=tuple(conditions),
    )


def _run(
    standby: Standby, node: Node, gpus: Sequence[Gpu], trials: Sequence[Trial], gpu_ids: list[str]
) -> list[tuple[Row, ...]]:
    """Run the trials in the slot of these GPUs, or of the cores, each in as many processes as it asks for."""
    cores = cores_of(gpu_ids, gpus, find_cores())
    server = ServerProcess.take(standby.folder, slot_name(gpu_ids))
    attempts: list[tuple[Row, ...]] = []
    with IsolatedRunner(cores=cores, server=server) as runner:
        for trial in trials:
            for _ in range(trial.config.processes):
                fallback = node.environments.get(trial.config.device_type) or node.environments["cpu"]
                attempts.append(tuple(runner.run(trial, fallback=fallback)))
                if any(record.status == Status.LOST for record in records_of(attempts[-1])):
                    return attempts  # a new server would not know its GPU
    return attempts
