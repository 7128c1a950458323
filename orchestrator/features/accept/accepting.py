"""Accepts this machine, or each node of a cluster: measures, stores, judges what was stored, writes the page."""

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from lmsweep import trials
from lmsweep.analysis.data.open_store import open_store
from lmsweep.analysis.tables.render import answer_page
from lmsweep.orchestrator.cluster.placement import LiveNode
from lmsweep.orchestrator.features.accept import accept_text
from lmsweep.orchestrator.features.accept.acceptance import Acceptance, Condition, NodeSeen, accept
from lmsweep.orchestrator.features.accept.node_trials import Measured, Trials, measure_node
from lmsweep.orchestrator.features.accept.parts import Process, processes_in, shipped
from lmsweep.orchestrator.planning.memory_budget import devices_meant
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.predicting.predicted_step import PredictedStep, predicted_step
from lmsweep.orchestrator.running.store_writer import writable_store
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.analytic.memory_prediction import subject_of
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.isolation.standby import visible_gpus
from lmsweep.trials.machine.cpu_affinity import find_gpus
from lmsweep.trials.machine.gpu.nvml import why_no_nvml
from lmsweep.trials.machine.scratch import cache_folder
from lmsweep.trials.results.record import records_of
from lmsweep.trials.results.record_json import json_of
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.store.store import Store

SWEEP = "accept"
PATIENCE = 600.0
"""Seconds that a node of a cluster may take."""


def accepted(device: str | None = None, *, store: str | None = None, address: str | None = None) -> "AcceptOutput":
    """Measure within a minute or two whether this machine, or each node of a cluster, is as fast as one of its kind.

    device: what each GPU should be, `H200`; None: what its name says. store: where results are kept, by default a
    folder in ~/.cache. address: of a Ray cluster. `.verdict` of the result is pass, slow or cannot tell. Raises
    RequestError, a ValueError, for an unknown GPU, and if the store or the cluster is wrong.
    """
    named = devices_meant(device, "device")[0] if device else None
    return output_of(run_acceptance(store or usual_store(), named, address))


def usual_store() -> str:
    return str(cache_folder() / "accept")


def run_acceptance(location: str, device: Device | None = None, address: str | None = None) -> Acceptance:
    """Measure, store the results, and judge them. Raises RequestError if the store or the cluster is wrong.

    device: what each GPU should be; None: what its name says. address: of a Ray cluster.
    """
    grids = load_sweep(SWEEP).grids
    store = writable_store(location)
    if device and not address and not visible_gpus(find_gpus()):
        why = why_no_nvml() or "CUDA_VISIBLE_DEVICES hides all"
        raise RequestError(
            f"--as {device.name}: no NVIDIA GPU is visible here ({why}); nvidia-smi must list it. For the host alone: "
            "lmsweep accept. For the nodes of a cluster: --address"
        )
    if address:
        measured = _on_cluster(address, grids)
    else:
        console = Console(stderr=True)
        with console.status("measuring") as status:  # it shows nothing in a file
            measured = [measure_node(grids, status.update if console.is_terminal else console.print)]
    for node in measured:
        for rows in node.attempts:
            store.keep(rows)
    return judge(store, measured, device)


def judge(store: Store, measured: Sequence[Measured], device: Device | None) -> Acceptance:
    """Judge the attempts of these nodes, which are in the store; all others there are history."""
    records = [record for node in measured for rows in node.attempts for record in records_of(rows)]
    ours, ids = {record.attempt_id for record in records}, {record.trial_id for record in records}
    processes = processes_in(store, store.location, ids)
    return accept(
        [one for one in processes if one.attempt_id in ours],
        [node.seen for node in measured],
        device,
        shipped=shipped(ids),
        history=[one for one in processes if one.attempt_id not in ours],
        predicted=predicted_phase,
    )


def answer_of(location: str) -> tuple[str, list[str]]:
    """Judge what a store holds, without measuring: return the advice, and the explanations. A shipped set is compared
    with the other shipped sets."""
    ids = {trial_id(trial.config) for trial in load_sweep(SWEEP).trials}
    processes = processes_in(open_store(location), location, ids)
    others = [one for one in shipped(ids) if one.source != location]
    acceptance = accept(processes, _nodes_of(processes), shipped=others, predicted=predicted_phase)
    return accept_text.advice(acceptance), accept_text.explanations(acceptance)


def _nodes_of(processes: Sequence[Process]) -> list[NodeSeen]:
    """Return the nodes that measured, with their GPUs numbered in the order of the results."""
    gpus: dict[str, dict[str, str]] = defaultdict(dict)  # node -> UUID -> what the driver calls it
    for one in processes:
        of_node = gpus[one.node]
        if one.gpu and one.judged.unit != "host":  # a GPU with launches alone is not judged
            of_node[one.gpu] = one.device_name
    return [
        NodeSeen(
            node=node,
            gpus={uuid: f"GPU {index}" for index, uuid in enumerate(names)},
            device_name=next(iter(names.values()), None),
        )
        for node, names in gpus.items()
    ]


def predicted_phase(trial: str, phase: str, device: Device) -> PredictedStep | None:
    """Return what a phase of a trial should take on such a GPU, by the times of its operators on others of the kind.

    trial: its identifier. phase: `step` means all phases. None if the trial has no step, or if its operators cannot be
    listed here, as on a head node without PyTorch: then the part is judged without a prediction.
    """
    step = _step_of(trial)
    operators = tuple(one for one in step.operators if phase in ("step", one.phase)) if step else ()
    if not step or not operators:
        return None
    return predicted_step(operators, step.trial.config, rates_of(device), subject=subject_of(step.trial) or "model")


class _Step(NamedTuple):
    trial: Trial
    operators: Operators


@cache
def _step_of(trial: str) -> _Step | None:
    trials = [one for one in load_sweep(SWEEP).grids["gpu"] if trial_id(one.config) == trial]
    try:
        operators = Predictions(trials, operators=True).operators(trials[0]) if trials else None
    except (RequestError, ImportError):
        return None
    return _Step(trials[0], operators) if isinstance(operators, tuple) else None


def _on_cluster(address: str, trials: Trials) -> list[Measured]:
    """Measure all nodes of a cluster at the same time. A node that is lost meanwhile counts as failed, with the
    reason."""
    from lmsweep.orchestrator.cluster.node_discovery import ask_nodes, nodes_with_cores

    def measure() -> Measured:
        # Ray sets both for a task that asks for neither cores nor GPUs.
        for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
            os.environ.pop(name, None)
        return measure_node(trials)

    def lost(node: LiveNode, reason: str) -> Measured:
        return Measured(NodeSeen(node=node.name, failures=(Condition("host", f"the node was lost: {reason}"),)))

    measured = ask_nodes(nodes_with_cores(address, waits=True), measure, patience=PATIENCE, lost=lost)
    return sorted(measured, key=lambda one: one.seen.node)


@dataclass(frozen=True, kw_only=True)
class AcceptOutput(Acceptance):
    """`accept`, and the file beside its page"""

    advice: str
    made_at: str
    lmsweep_version: str


def output_of(acceptance: Acceptance) -> AcceptOutput:
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    advice = accept_text.advice(acceptance)
    return AcceptOutput(**vars(acceptance), advice=advice, made_at=made_at, lmsweep_version=trials.__version__)


def write_page(acceptance: Acceptance, path: Path) -> str:
    """Write the page and the JSON beside it, and return that. Raises RequestError if they cannot be written."""
    output = output_of(acceptance)
    text = json_of(output)
    try:
        path.write_text(page_of(acceptance, made_at=output.made_at), "utf-8")
        path.with_suffix(".json").write_text(text + "\n", "utf-8")
    except OSError as error:
        raise RequestError(f"-o {path}: cannot be written ({error.strerror})") from error
    return text


def page_of(acceptance: Acceptance, *, made_at: str) -> str:
    values = {"a": acceptance, "say": accept_text, "title": accept_text.title_of(acceptance), "made_at": made_at}
    return answer_page(__package__, "accept.html", **values)
