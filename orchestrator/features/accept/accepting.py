"""Accepts this machine, or each node of a cluster: measures, stores, and judges what was stored."""

import os
from collections.abc import Sequence
from functools import cache

from rich.console import Console

from lmsweep.orchestrator.cluster.placement import LiveNode
from lmsweep.orchestrator.features.accept.acceptance import Acceptance, Condition, NodeSeen, accept
from lmsweep.orchestrator.features.accept.node_trials import Measured, Trials, measure_node
from lmsweep.orchestrator.features.accept.parts import processes_in, shipped
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.results.record import records_of
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.store.store import Store

SWEEP = "accept"
PATIENCE = 600.0
"""Seconds that a node of a cluster may take."""


def run_acceptance(location: str, device: Device | None = None, address: str | None = None) -> Acceptance:
    """Measure, store the results, and judge them. Raises RequestError if the store or the cluster is wrong.

    device: what each GPU should be; None: what its name says. address: of a Ray cluster.
    """
    trials = load_sweep(SWEEP).grids
    store = Store(location)
    store.check_writable()
    if address:
        measured = _on_cluster(address, trials)
    else:
        console = Console(stderr=True)
        with console.status("measuring") as status:  # it shows nothing in a file
            measured = [measure_node(trials, status.update if console.is_terminal else console.print)]
    for rows in (rows for node in measured for rows in node.attempts):
        store.keep(rows)
    return judge(store, measured, device)


def judge(store: Store, measured: Sequence[Measured], device: Device | None) -> Acceptance:
    """Judge the attempts of these nodes, which are in the store; all others there are history."""
    records = [record for node in measured for rows in node.attempts for record in records_of(rows)]
    ours, ids = {record.attempt_id for record in records}, {record.trial_id for record in records}
    found = processes_in(store, store.location, ids)
    return accept(
        [one for one in found if one.attempt_id in ours],
        [node.seen for node in measured],
        device,
        shipped=shipped(ids),
        history=[one for one in found if one.attempt_id not in ours],
        operators=operators_of,
    )


@cache
def operators_of(trial: str) -> Operators | None:
    """Return the operators of a step of the sweep, by the trial's identifier; None if it has no step, or they are
    unknown here, as on a head without PyTorch: what was measured is judged without them."""
    trials = [one for one in load_sweep(SWEEP).grids["gpu"] if trial_id(one.config) == trial]
    try:
        found = Predictions(trials, operators=True).operators(trials[0]) if trials else None
    except (RequestError, ImportError):
        return None
    return found if isinstance(found, tuple) else None


def _on_cluster(address: str, trials: Trials) -> list[Measured]:
    """Measure all nodes of a cluster at the same time; of one that is lost meanwhile the reason is known."""
    from lmsweep.orchestrator.cluster.node_discovery import ask_nodes, nodes_with_cores

    def measure() -> Measured:
        # Ray sets both for a task that asks for neither cores nor GPUs.
        for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
            os.environ.pop(name, None)
        return measure_node(trials)

    def lost(node: LiveNode, reason: str) -> Measured:
        return Measured(NodeSeen(node=node.name, failures=(Condition("host", f"the node was lost: {reason}"),)))

    found = ask_nodes(nodes_with_cores(address, waits=True), measure, patience=PATIENCE, lost=lost)
    return sorted(found, key=lambda one: one.seen.node)
