"""The nodes of a Ray cluster, each asked for its environment by a small task that runs there."""

import subprocess
import sys

from orchestrator.launch import start_ray
from orchestrator.resources import Node, node_from_json
from trials.spec import RequestError


def cluster_nodes(address: str) -> list[Node]:
    """Every live node that has cores to give. Raises RequestError where the cluster cannot be reached."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    try:
        start_ray(address, cpus=0, gpus=0)
    except ConnectionError as error:
        raise RequestError(f"no Ray cluster answers at {address}: {error}") from error

    @ray.remote(num_cpus=0)
    def ask() -> str:
        command = [sys.executable, "-m", "trials.fingerprint"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    answers = ray.get(
        [
            ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
            for node in alive
        ]
    )
    found = []
    for node, answer in zip(alive, answers, strict=True):
        resources = node["Resources"]
        described = node_from_json(answer)
        found.append(
            Node(
                cpus=int(resources["CPU"]),
                gpus=int(resources.get("GPU", 0)),
                accelerator_type=described.accelerator_type if resources.get("GPU") else None,
                environments={
                    device: environment
                    for device, environment in described.environments.items()
                    if device != "cuda" or resources.get("GPU")
                },
            )
        )
    return found
