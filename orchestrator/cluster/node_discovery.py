"""Finds the nodes of a Ray cluster: a task on each node reports its environment, and its software must be ours."""

import hashlib
import importlib.metadata
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from lmsweep.orchestrator.cluster.autoscaler import await_promised, startable_nodes
from lmsweep.orchestrator.cluster.joining import connect, line_of
from lmsweep.orchestrator.cluster.nodes import PATIENCE, Node, accelerator_names, this_machine
from lmsweep.orchestrator.cluster.placement import LiveNode, live_nodes
from lmsweep.orchestrator.cluster.ray_session import start_early
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.words import GPU_DEVICES
from lmsweep.trials.spec.workloads import outside_packages

PACKAGES = ("trials", "orchestrator", "analysis")

LIBRARIES = ("torch", "triton", "ray", "numpy", "pyarrow", "nvtx", "nvidia-ml-py")
"""Libraries that take part in measuring, or transport the results."""
MOST_NAMES = 5
"""Differing files that a message names."""

Answer = TypeVar("Answer")


def find_nodes(
    address: str | None, cluster_file: str | None = None, *, waits: bool = False, starts_ray: bool = False
) -> list[Node]:
    """Return this machine; with an address, every node of that cluster with cores to assign, and every kind of node
    that its autoscaler could start.

    waits: for the nodes that `ray up` is starting. starts_ray: without an address, start Ray while this machine
    describes itself. Raises RequestError if the cluster is unreachable, a node does not answer, or its software differs
    from ours.
    """
    if address is None:
        if cluster_file:
            raise RequestError(f"--cluster {cluster_file}: also give the cluster's --address")
        return [this_machine(start_early if starts_ray else lambda: None)]
    with_cores = nodes_with_cores(address, waits=waits)
    started = list(map(_node, with_cores, ask_nodes(with_cores, this_machine)))
    example = started[0] if started else this_machine()
    if found := started + startable_nodes(started, example.environments["cpu"], cluster_file):
        return found
    raise RequestError(f"no node of the cluster at {address} has CPU cores for Ray to assign, and none can be started")


def nodes_with_cores(address: str, *, waits: bool) -> list[LiveNode]:
    """Join the cluster and return its nodes that have cores to assign. Raises RequestError as `find_nodes` does."""
    connect(address)
    await_promised(lambda: len(live_nodes()), waits=waits)
    alive = live_nodes()
    _check_software(alive, ask_nodes(alive, software))
    return [node for node in alive if node.resources.get("CPU", 0) >= 1]


def ask_nodes(
    nodes: Sequence[LiveNode],
    question: Callable[[], Answer],
    *,
    patience: float = PATIENCE,
    lost: Callable[[LiveNode, str], Answer] | None = None,
) -> list[Answer]:
    """Run the function on each node and return its results. lost: returns the answer to use for a node on which it
    fails, given the reason. Without it, raises RequestError."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0, max_retries=0)(question)
    tasks = [
        remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False)).remote()
        for node in nodes
    ]
    answers = []
    for node, task in zip(nodes, tasks, strict=True):
        try:
            answers.append(ray.get(task, timeout=patience))
        except ray.exceptions.RayError as error:
            if lost:
                answers.append(lost(node, line_of(error, -1).partition(". ")[0]))
                continue
            raise RequestError(
                f"the node {node.address} does not answer: {line_of(error, -1)}. Check that lmsweep is installed there"
            ) from error
    return answers


def _node(live: LiveNode, described: Node) -> Node:
    """Return the node as it describes itself, with what Ray may assign there."""
    gpus = int(live.resources.get("GPU", 0))
    names = (accelerator_names(live.resources) or described.names) if gpus else ()
    return replace(
        described,
        cpus=int(live.resources["CPU"]),
        gpus=gpus,
        names=names,
        node_id=live.node_id,
        environments={name: one for name, one in described.environments.items() if gpus or name not in GPU_DEVICES},
    )


def _check_software(alive: Sequence[LiveNode], answers: list[dict[str, str]]) -> None:
    here = software()
    wrong = [
        f"  {node.address}: {'; '.join(found)}"
        for node, there in zip(alive, answers, strict=True)
        if (found := differences(here, there))
    ]
    if wrong:
        begin = "these nodes run different software from this machine, so their results would not be comparable:"
        advice = "install this project, with its constraints.txt, on all of them (with a cluster file: ray up)"
        raise RequestError("\n".join([begin, *wrong, advice]))


def software() -> dict[str, str]:
    """Return the versions of Python and the installed libraries, and a hash of each Python file of PACKAGES by path.
    Suffixes of builds are left out (2.11.0 for 2.11.0+cu130): a head without a GPU may have another build."""
    found = {"Python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in (*LIBRARIES, *sorted(outside_packages())):
        try:
            found[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    root = Path(__file__).parents[2]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
            found[str(path.relative_to(root))] = digest
    return found


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """Return what differs: `torch 2.12.0 instead of 2.13.0`, `different code in trials/timing/clock.py`. A library that
    one side lacks is no difference: a head without a GPU has no triton."""
    libraries = [name for name in here if name in there and not name.endswith(".py")]
    words = [f"{name} {there[name]} instead of {here[name]}" for name in libraries if here[name] != there[name]]
    files = sorted(name for name in {*here, *there} if name.endswith(".py") and here.get(name) != there.get(name))
    if files:
        more = f" and {len(files) - MOST_NAMES} more files" if len(files) > MOST_NAMES else ""
        words.append(f"different code in {', '.join(files[:MOST_NAMES])}{more}")
    return words
