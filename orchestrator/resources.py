"""Resources: the nodes that trials can be placed on, and what a trial asks of one."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from trials.record import Fingerprint
from trials.spec import RequestError, TrialConfig

ACCELERATOR_SHARE = 0.001
"""How much of a node's accelerator-type resource a trial takes: enough to be placed there, little enough to share."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine of the cluster; on its own machine, the only one."""

    cpus: int
    """Logical cores that Ray may give away."""
    gpus: int
    """GPUs that Ray may give away."""
    accelerator_type: str | None
    """Type of its GPUs as Ray calls it."""
    environments: dict[str, Fingerprint]
    """What a trial would meet there, for each kind of device the node has."""

    @property
    def gpu_share_of_cpus(self) -> int:
        """Cores that go with one GPU."""
        return self.cpus // self.gpus if self.gpus else 0

    def places(self, device_type: str) -> int:
        """Ranks of one trial that it can hold on this kind of device: each has a GPU, or a core, of its own."""
        return self.gpus if device_type == "cuda" else self.cpus


def this_machine(meanwhile: Callable[[], object] = lambda: None) -> Node:
    """The machine this runs on, as a process that may import torch finds it; `meanwhile` is done while it looks."""
    with subprocess.Popen([sys.executable, "-m", "trials.fingerprint"], stdout=subprocess.PIPE, text=True) as probe:
        meanwhile()
        answer, _ = probe.communicate(timeout=120)
    if probe.returncode:
        raise RequestError("cannot tell what this machine is; `python -m trials.fingerprint` says why")
    return node_from_json(answer)


def node_from_json(text: str) -> Node:
    """A node from what ``python -m trials.fingerprint`` printed there."""
    found = json.loads(text.strip().splitlines()[-1])
    environments = {device: Fingerprint(**content) for device, content in found["devices"].items()}
    cuda = environments.get("cuda")
    return Node(
        cpus=found["cores"],
        gpus=len(found["gpus"]),
        accelerator_type=cuda.accelerator_type if cuda else None,
        environments=environments,
    )


def find_node(config: TrialConfig, nodes: list[Node]) -> Node | str:
    """The first node that can hold the trial, or why none can."""
    device = config.device_type
    able = [node for node in nodes if device in node.environments]
    where = "this machine has" if len(nodes) == 1 else f"none of the {len(nodes)} nodes has"
    if not able:
        return f"{where} no {device} device" if len(nodes) == 1 else f"{where} a {device} device"
    wanted = config.accelerator_type
    present = sorted({node.accelerator_type for node in able if node.accelerator_type})
    matching = [node for node in able if wanted in (None, node.accelerator_type)]
    if not matching:
        return f"no {wanted} here; there is {', '.join(present)}"
    large = [node for node in matching if node.places(device) >= config.world_size]
    if not large:
        most = max(node.places(device) for node in matching)
        what = "GPUs" if device == "cuda" else "cores"
        return f"world_size {config.world_size} needs as many {what} on one node, and the most that one has is {most}"
    return large[0]


def bundle(config: TrialConfig, node: Node) -> dict[str, float]:
    """What the trial asks Ray for: a CPU trial the whole node's cores, a GPU trial a GPU for each rank and their share
    of the cores.
    """
    if config.device_type != "cuda":
        return {"CPU": node.cpus}
    ranks = config.world_size
    wanted: dict[str, float] = {"CPU": ranks * node.gpu_share_of_cpus, "GPU": ranks}
    if config.accelerator_type:
        wanted[f"accelerator_type:{config.accelerator_type}"] = ACCELERATOR_SHARE
    return wanted


def missing_environment(config: TrialConfig, nodes: list[Node]) -> Fingerprint:
    """The environment under which it is recorded that no node has the device: the software, and the lack of a name."""
    some = next(iter(nodes[0].environments.values()))
    return replace(some, device_name=f"no {config.device} device")


def find_nodes(address: str | None, meanwhile: Callable[[], object] = lambda: None) -> list[Node]:
    """The nodes of the cluster at this address, or this machine; `meanwhile` is done while it is looked at."""
    if address is None:
        return [this_machine(meanwhile)]
    from orchestrator.cluster import cluster_nodes

    return cluster_nodes(address)
