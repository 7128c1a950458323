"""Placement: the nodes on which a trial may run, and what it asks Ray for so that it runs on one of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.resources import ACCELERATOR, Node
from trials.spec import TrialConfig

ACCELERATOR_SHARE = 0.001
"""How much of a node's accelerator-type resource a trial takes: enough to be placed there, little enough to share."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What a trial asks Ray for."""

    bundle: tuple[tuple[str, float], ...]
    """Resources of one node: a CPU trial has the whole node's cores, a GPU trial a GPU for each rank and their share of
    the cores."""
    node_ids: tuple[str, ...]
    """Ray's names of the nodes that it is kept to; empty where the resources alone lead it to the right ones."""
    slots: int
    """How many such trials can run side by side."""


def able_nodes(config: TrialConfig, nodes: Sequence[Node]) -> list[Node] | str:
    """The nodes that can hold the trial, or why none can. On the CPU they are of one kind, of those without GPUs if
    there are such: nobody asks for a particular CPU, so the results of a sweep shall at least be comparable.
    """
    device = config.device_type
    able = [node for node in nodes if device in node.environments]
    if not able:
        has = "this machine has no" if len(nodes) == 1 else f"none of the {len(nodes)} nodes has a"
        return f"{has} {device} device"
    wanted = config.accelerator_type
    matching = [node for node in able if wanted is None or wanted in node.names]
    if not matching:
        present = sorted({node.accelerator_type for node in able if node.accelerator_type})
        return f"no {wanted} here; there is {', '.join(present)}"
    large = [node for node in matching if node.places(device) >= config.world_size]
    if not large:
        most = max(node.places(device) for node in matching)
        what = "GPUs" if device == "cuda" else "cores"
        return f"world_size {config.world_size} needs as many {what} on one node, and the most that one has is {most}"
    if device == "cuda":
        return large
    first = min(large, key=lambda node: node.gpus > 0)
    return [node for node in large if node.is_like(first, device)]


def place(config: TrialConfig, able: Sequence[Node], nodes: Sequence[Node]) -> Placement:
    """The trial on any of the able nodes, and on no other of the nodes that there are."""
    device, ranks = config.device_type, config.world_size
    if device == "cuda":
        resources = {"CPU": float(ranks * min(node.gpu_share_of_cpus for node in able)), "GPU": float(ranks)}
        if config.accelerator_type:
            resources[f"{ACCELERATOR}{config.accelerator_type}"] = ACCELERATOR_SHARE
    else:
        resources = {"CPU": float(able[0].cpus)}
    # A node that is yet to be started has no name to be kept to; its resources are what the autoscaler goes by.
    named = all(node.node_id for node in able)
    return Placement(
        bundle=tuple(resources.items()),
        node_ids=tuple(node.node_id for node in able if node.node_id) if named and len(able) < len(nodes) else (),
        slots=sum((node.gpus // ranks if device == "cuda" else 1) * node.count for node in able),
    )
