"""Accepts this machine, or each node of a cluster: measures, stores, and judges what was stored."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console

from lmsweep.analysis.acceptance.acceptance import Acceptance, NodeSeen, accept
from lmsweep.analysis.acceptance.conditions import Condition
from lmsweep.analysis.acceptance.parts import processes_in, shipped
from lmsweep.orchestrator.acceptance.node_trials import Attempted, Measured, Trials, measure_node
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record, records_of
from lmsweep.trials.store.store import Store

SWEEP = "accept"
TELEMETRY = ("sm_clock", "power", "temperature")
ENVIRONMENT = ("host_cpu", "host_cores", "driver_version", "torch_version", "python_version")
SHOWN = "large"
"""Model of the step whose telemetry is shown."""
PATIENCE = 600.0
"""Seconds that a node of a cluster may take."""


@dataclass(frozen=True, kw_only=True)
class AcceptRequest:
    device: Device | None = None
    """What each GPU should be; None: what its name says."""
    store: str
    address: str | None = None
    """Of a Ray cluster."""


def run_acceptance(request: AcceptRequest) -> Acceptance:
    """Measure, store the results, and judge them. Raises RequestError if the store or the cluster is wrong."""
    trials = load_sweep(SWEEP).grids
    store = Store(request.store)
    store.check_writable()
    if request.address:
        measured = _on_cluster(request.address, trials)
    else:
        console = Console(stderr=True)
        with console.status("measuring") as status:  # it shows nothing in a file
            measured = [measure_node(trials, status.update if console.is_terminal else console.print)]
    for node in measured:
        for attempt in node.attempts:
            store.keep(attempt.rows)
    return judge(store, measured, request.device)


def judge(store: Store, measured: Sequence[Measured], device: Device | None) -> Acceptance:
    """Judge the attempts of these nodes, which are in the store; all others there are history."""
    records = {node.node: records_of([row for one in node.attempts for row in one.rows]) for node in measured}
    ours = {record.attempt_id for of_node in records.values() for record in of_node}
    ids = {record.trial_id for of_node in records.values() for record in of_node}
    known = processes_in(store, store.location, ids)
    return accept(
        [one for one in known if one.attempt_id in ours],
        [_seen(node, records[node.node]) for node in measured],
        device,
        shipped=shipped(ids),
        history=[one for one in known if one.attempt_id not in ours],
    )


def _seen(node: Measured, records: Sequence[Record]) -> NodeSeen:
    units = {gpu.uuid: gpu.unit for gpu in node.gpus}
    return NodeSeen(
        node=node.node,
        gpus=units,
        device_name=node.device_name,
        conditions=node.conditions,
        failures=tuple(dict.fromkeys(_failures(node.attempts))),
        telemetry={unit: _telemetry(records, uuid) for uuid, unit in units.items()},
        environment=_environment(records),
    )


def _failures(attempts: Sequence[Attempted]) -> Iterator[Condition]:
    """Yield why trials have no result; that of too little memory or of no support is one."""
    for attempt in attempts:
        for record in records_of(attempt.rows):
            if not Status(record.status).is_final:
                reason = (record.error or record.status).splitlines()[0]
                yield Condition(attempt.unit, f"{record.workload} ended as {record.status}: {reason}")


def _telemetry(records: Sequence[Record], uuid: str) -> dict[str, float]:
    return {
        record.metric: median(record.samples)
        for record in records
        if record.metric in TELEMETRY
        and record.samples
        and record.fingerprint.gpu_uuid == uuid
        and record.config.model == SHOWN
    }


def _environment(records: Sequence[Record]) -> dict[str, str | int | None]:
    """Return what the node runs with, of a trial on a GPU if there was one."""
    prints = sorted((record.fingerprint for record in records), key=lambda one: one.driver_version is None)
    return {name: getattr(prints[0], name) for name in ENVIRONMENT} if prints else {}


def _on_cluster(address: str, trials: Trials) -> list[Measured]:
    """Measure all nodes of a cluster at the same time."""
    from lmsweep.orchestrator.cluster.node_discovery import ask_nodes, nodes_with_cores

    def measure() -> Measured:
        # Ray sets both for a task that asks for neither cores nor GPUs.
        for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
            os.environ.pop(name, None)
        return measure_node(trials)

    return ask_nodes(nodes_with_cores(address), measure, patience=PATIENCE)
