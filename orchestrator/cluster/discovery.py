"""The nodes of a Ray cluster, each asked for its environment and its software by a small task that runs there."""

import os
import subprocess
from collections.abc import Callable
from typing import Any

from lmsweep.orchestrator.cluster.autoscaler import startable_nodes
from lmsweep.orchestrator.cluster.doctor import Finding, examine
from lmsweep.orchestrator.cluster.grpc_probe import check_speaks_grpc
from lmsweep.orchestrator.cluster.nodes import (
    PATIENCE,
    Node,
    accelerator_names,
    look_at_machine,
    node_from_json,
    this_machine,
)
from lmsweep.orchestrator.cluster.ray_session import start_ray
from lmsweep.orchestrator.cluster.software import differences, software
from lmsweep.trials.machine.interpreter import environment
from lmsweep.trials.spec.config import RequestError

PORT_PATIENCE = 5.0
"""Seconds in which the head has to answer."""


def find_nodes(
    address: str | None, cluster_file: str | None = None, meanwhile: Callable[[], object] = lambda: None
) -> list[Node]:
    """The nodes of the cluster at this address and those that its file lets the autoscaler start, or this machine;
    `meanwhile` is done while it is looked at.
    """
    if address is not None:
        return cluster_nodes(address, cluster_file)
    if cluster_file:
        raise RequestError(f"--cluster {cluster_file} is about the nodes of a cluster: give its --address too")
    return [this_machine(meanwhile)]


def cluster_nodes(address: str, cluster_file: str | None = None) -> list[Node]:
    """Every node that has cores to give, and every kind of node that the autoscaler could start.

    Raises RequestError where the cluster cannot be reached, a node does not answer, or its software differs from ours.
    """
    import ray

    connect(address)
    alive = [node for node in ray.nodes() if node["Alive"]]
    _check_software(alive, ask_nodes(alive, software))
    with_cores = [node for node in alive if node["Resources"].get("CPU", 0) >= 1]
    told = ask_nodes(with_cores, describe)
    started = [_node(one["NodeID"], one["Resources"], text) for one, text in zip(with_cores, told, strict=True)]
    some = started[0] if started else this_machine()
    found = started + startable_nodes(started, some.environments["cpu"], cluster_file)
    if not found:
        raise RequestError(f"no node of the cluster at {address} has cores to give, and none could be started")
    return found


def examine_nodes(address: str) -> dict[str, list[Finding]]:
    """What the doctor finds on each node, by its address. Raises RequestError as `cluster_nodes` does."""
    import ray

    connect(address)
    alive = [node for node in ray.nodes() if node["Alive"]]
    return dict(zip([node["NodeManagerAddress"] for node in alive], ask_nodes(alive, examine), strict=True))


def connect(address: str) -> None:
    """Joins the cluster. Raises RequestError where that is not possible."""
    import ray

    host_and_port = _host_and_port(address)
    try:
        if host_and_port and os.environ.get("RAY_USE_TLS", "0") == "0":
            check_speaks_grpc(*host_and_port, patience=PORT_PATIENCE)
        start_ray(address, cpus=0, gpus=0)
    except (OSError, ray.exceptions.AuthenticationError) as error:
        raise RequestError(
            f"no Ray cluster answers at {address}: {_first_line(error)}. Is it up, and is its token here "
            "(RAY_AUTH_MODE=token, ~/.ray/auth_token)? On its head the address is: auto"
        ) from error
    except (RuntimeError, ValueError) as error:  # other versions of Ray or Python; an address that is none
        raise RequestError(f"cannot join the Ray cluster at {address}: {_first_line(error)}") from error


def _host_and_port(address: str) -> tuple[str, int] | None:
    """None for auto: Ray knows. Raises RequestError for what is no address."""
    if address == "auto":
        return None
    if address.startswith("ray://"):
        raise RequestError(f"{address}: lmsweep runs on a node of the cluster itself; run it on the head, with auto")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise RequestError(f"{address!r} is no address of a Ray cluster; write HOST:PORT, or auto on its head")
    return host, int(port)


def ask_nodes(nodes: list[dict[str, Any]], question: Any) -> list[Any]:
    """What the function returns on each of these nodes. Raises RequestError where it does not run on one."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0, max_retries=0)(question)
    tasks = [
        remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in nodes
    ]
    answers = []
    for node, task in zip(nodes, tasks, strict=True):
        try:
            answers.append(ray.get(task, timeout=PATIENCE))
        except ray.exceptions.RayError as error:
            name = node["NodeManagerAddress"]
            raise RequestError(
                f"the node {name} cannot tell what it is: {_last_line(error)}. Is lmsweep installed there as here?"
            ) from error
    return answers


def describe() -> str:
    """What a node is, as JSON; runs there."""
    done = subprocess.run(
        look_at_machine(), capture_output=True, env=environment(), text=True, check=False, timeout=PATIENCE
    )
    if done.returncode:
        raise RuntimeError(f"python -m lmsweep.trials.bench.fingerprint: {done.stderr.strip()[-500:]}")
    return done.stdout


def _node(node_id: str, resources: dict[str, float], told: str) -> Node:
    described = node_from_json(told)
    gpus = int(resources.get("GPU", 0))
    names = (accelerator_names(resources) or [*described.names]) if gpus else []
    return Node(
        cpus=int(resources["CPU"]),
        gpus=gpus,
        accelerator_type=names[-1] if names else None,
        also_called=tuple(names[:-1]),
        node_id=node_id,
        environments={
            device: environment for device, environment in described.environments.items() if device != "cuda" or gpus
        },
    )


def _check_software(alive: list[dict[str, Any]], answers: list[dict[str, str]]) -> None:
    here = software()
    wrong = [
        f"  {node['NodeManagerAddress']}: {'; '.join(found)}"
        for node, there in zip(alive, answers, strict=True)
        if (found := differences(here, there))
    ]
    if wrong:
        raise RequestError(
            "the nodes do not have the software of this machine, and what they measured would not compare:\n"
            + "\n".join(wrong)
            + "\nbring this project and its constraints.txt to all of them (with a cluster file: ray up)"
        )


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


def _last_line(error: BaseException) -> str:
    return str(error).strip().rpartition("\n")[2].rstrip(".")
