"""Knows the nodes that the autoscaler could start, from the cluster file and from earlier results."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import yaml

from lmsweep.orchestrator.cluster.nodes import Node, accelerator_names
from lmsweep.orchestrator.terminal import format_seconds, say
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store

ON_THE_HEAD = Path("~/ray_bootstrap_config.yaml")
"""The copy of the cluster file, as JSON, that `ray up` puts on the head node."""

SOFTWARE_FIELDS = ("torch_version", "python_version", "measuring_version")
"""Fields of an environment that are known before a node starts: all nodes run the same software."""

JOIN_SECONDS = 600.0
"""How long after `ray up` the nodes that it starts may take to join: each installs lmsweep first."""
LOOK_SECONDS = 1.0
"""Seconds between two counts of the nodes that have joined."""


@dataclass(frozen=True, kw_only=True)
class NodeType:
    resources: dict[str, float]
    """Resources of a node, from the file or from the cloud provider."""
    most: int
    """How many such nodes may run at once."""
    least: int
    """How many workers of this type `ray up` starts, whether or not a trial needs them."""


def await_promised(count: Callable[[], int], *, waits: bool) -> None:
    """Wait until as many nodes have joined as `ray up` starts, and say how many are there if some are missing.

    `ray up` returns when the head is ready, seconds to minutes before its workers have joined. count: returns the
    number of live nodes, the head included. waits: False says at once which are there.
    """
    promised = 1 + sum(kind.least for kind in node_types())  # the head, and workers
    if promised == 1:
        return
    until = ON_THE_HEAD.expanduser().stat().st_mtime + JOIN_SECONDS  # the file is as old as `ray up`
    said = None
    while (there := count()) < promised:
        words = f"{there} of the {promised} nodes of the cluster file are there"
        left = until - time.time()
        if not waits or left <= 0:
            say(f"{words}; `ray status` says why others are missing", error=True)
            return
        if there != said:
            say(f"{words}; waiting for the others, at most {format_seconds(left)}", error=True)
            said = there
        time.sleep(LOOK_SECONDS)


def startable_nodes(started: Sequence[Node], some: Fingerprint, cluster_file: str | None = None) -> list[Node]:
    """Return a node for each node type of the cluster file that could start, as far as its environment is known. some:
    the CPU environment of a node that runs. Raises RequestError if the file cannot be read."""
    found = []
    for kind in node_types(cluster_file):
        cpus, gpus = int(kind.resources.get("CPU", 0)), int(kind.resources.get("GPU", 0))
        names = accelerator_names(kind.resources) if gpus else ()
        more = kind.most - sum(node.cpus == cpus and names == node.names for node in started)
        if cpus and more > 0:
            environments = {"cpu": _unseen(some, f"a node with {cpus} cores (not started)", cpus, None)}
            if gpus:
                name = names[-1] if names else "GPU"  # the most specific one
                environments["cuda"] = _unseen(some, f"{name} (not started)", cpus, name)
            found.append(Node(cpus=cpus, gpus=gpus, names=names, environments=environments, started=False, count=more))
    return found


def node_types(cluster_file: str | None = None) -> list[NodeType]:
    """Return the node types of this cluster file; on the head, by default, of the file given to `ray up`, if any."""
    path = Path(cluster_file) if cluster_file else ON_THE_HEAD.expanduser()
    if not (cluster_file or path.exists()):
        return []
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise RequestError(f"cannot read the cluster file {path}: {error}") from error
    if not isinstance(content, dict):
        raise RequestError(f"{path} is not a cluster file: it has no keys")
    kinds = content.get("available_node_types") or {}
    most = content.get("max_workers", 0)
    head = content.get("head_node_type")
    return [
        NodeType(
            resources=kind.get("resources") or {},
            most=kind.get("max_workers", 0 if name == head else most),  # as Ray: by default no worker is like the head
            least=kind.get("min_workers", 0),
        )
        for name, kind in kinds.items()
    ]


def recall(nodes: Sequence[Node], store: Store) -> list[Node]:
    """Return the nodes; one that has not started gets the newest stored environment of its device and software. So
    results from nodes that have since been shut down count as stored. A new driver shows when a node has started."""
    if all(node.started for node in nodes):
        return list(nodes)
    met = _met(store)
    return [node if node.started else _as_met(node, met) for node in nodes]


def _as_met(node: Node, met: Sequence[Fingerprint]) -> Node:
    environments = dict(node.environments)
    for device, unseen in node.environments.items():
        alike = (
            one
            for one in met
            if all(getattr(one, name) == getattr(unseen, name) for name in SOFTWARE_FIELDS)
            and (_is_gpu_of(node, one) if device == "cuda" else one.device_name.endswith(f" ({node.cpus} cores)"))
        )
        environments[device] = next(alike, unseen)
    return replace(node, environments=environments)


def _is_gpu_of(node: Node, met: Fingerprint) -> bool:
    if met.accelerator_type not in node.names:
        return False
    size = re.search(r"-(\d+)G$", node.accelerator_type or "")  # Ray's name where one product has two sizes: A100-80G
    # CUDA reports a few percent less than the name says; the product's other size is half or twice as large.
    return size is None or met.device_memory is None or abs(met.device_memory / 2**30 / int(size[1]) - 1) < 0.1


def _met(store: Store) -> list[Fingerprint]:
    """Return the environments of results in the store, each once, the last one measured first."""
    names = [f.name for f in fields(Fingerprint)]
    rows = store.rows(["environment_id", "started_at", *names], status=["ok"])
    newest = {row["environment_id"]: row for row in rows}  # the last row is the newest
    newest_first = sorted(newest.values(), key=lambda row: row["started_at"], reverse=True)
    return [Fingerprint(**{name: row[name] for name in names}) for row in newest_first]


def _unseen(some: Fingerprint, name: str, cores: int, accelerator: str | None) -> Fingerprint:
    known = {field: getattr(some, field) for field in (*SOFTWARE_FIELDS, "lmsweep_version", "lmsweep_commit")}
    return Fingerprint(**known, device_name=name, accelerator_type=accelerator, host_cores=cores)
