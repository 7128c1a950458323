"""Resources: the nodes that trials can be placed on."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lmsweep.trials.machine.interpreter import command, environment
from lmsweep.trials.results.environment import Fingerprint, absent, environment_id
from lmsweep.trials.spec.config import RequestError, TrialConfig

ACCELERATOR = "accelerator_type:"
"""What the name of a resource begins with that says the type of a node's accelerators."""


PATIENCE = 180.0
"""Seconds in which a node has to tell what it is; importing torch from a cold network disk takes a minute."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine of the cluster; on its own machine, the only one."""

    cpus: int
    """Logical cores that Ray may give away."""
    gpus: int
    """GPUs that Ray may give away."""
    accelerator_type: str | None
    """Type of its GPUs as Ray calls it; of several names the most particular (A100-80G, not A100)."""
    environments: dict[str, Fingerprint]
    """What a trial would meet there, for each kind of device the node has."""
    also_called: tuple[str, ...] = ()
    """Other names that Ray has for the type of its GPUs."""
    node_id: str | None = None
    """Ray's name of it; None without a cluster, and for what is not started."""
    started: bool = True
    """False for what an autoscaler would start for a trial that asks for it."""
    count: int = 1
    """How many such nodes: more than one only of what is not started."""

    @property
    def names(self) -> tuple[str, ...]:
        """Everything by which a trial may ask for its GPUs, the most particular last."""
        return (*self.also_called, *([self.accelerator_type] if self.accelerator_type else []))

    @property
    def gpu_share_of_cpus(self) -> int:
        """Cores that go with one GPU."""
        return self.cpus // self.gpus if self.gpus else 0

    def places(self, device_type: str) -> int:
        """Ranks of one trial that it can hold on this kind of device: each has a GPU, or a core, of its own."""
        return self.gpus if device_type == "cuda" else self.cpus

    def is_like(self, other: "Node", device_type: str) -> bool:
        """Whether a trial on this kind of device would meet, and take, the same on both."""
        here, there = (environment_id(node.environments[device_type]) for node in (self, other))
        return here == there and (self.cpus, self.gpus) == (other.cpus, other.gpus)


def this_machine(meanwhile: Callable[[], object] = lambda: None) -> Node:
    """The machine this runs on, as a process that may import torch finds it; `meanwhile` is done while it looks.

    Raises RequestError where it fails, or does not answer.
    """
    with subprocess.Popen(
        look_at_machine(), stdout=subprocess.PIPE, env=environment(), text=True, start_new_session=True
    ) as probe:
        try:
            meanwhile()
            answer, _ = probe.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired as error:
            raise RequestError(
                f"cannot tell in {PATIENCE:g} s what this machine is: does "
                "`python -m lmsweep.trials.bench.fingerprint` hang? The "
                "driver of a GPU may"
            ) from error
        finally:
            probe.kill()  # one that hangs would be waited for
    if probe.returncode:
        raise RequestError("cannot tell what this machine is; `python -m lmsweep.trials.bench.fingerprint` says why")
    return node_from_json(answer)


def look_at_machine() -> list[str]:
    """The command that prints what `node_from_json` reads, and ends with this process; it is for `environment()`."""
    return command("lmsweep.trials.bench.fingerprint", str(os.getpid()))


def node_from_json(text: str) -> Node:
    """A node from what ``python -m lmsweep.trials.bench.fingerprint`` printed there."""
    found = json.loads(text.strip().splitlines()[-1])
    environments = {device: Fingerprint(**content) for device, content in found["devices"].items()}
    cuda = environments.get("cuda")
    return Node(
        cpus=found["cores"],
        gpus=len(found["gpus"]),
        accelerator_type=cuda.accelerator_type if cuda else None,
        environments=environments,
    )


def accelerator_names(resources: Mapping[str, float]) -> list[str]:
    """The types of accelerators that Ray's resources of a node name, the most particular last."""
    names = (name.removeprefix(ACCELERATOR) for name in resources if name.startswith(ACCELERATOR))
    return sorted(names, key=len)


def missing_environment(config: TrialConfig, nodes: list[Node]) -> Fingerprint:
    """The environment under which it is recorded that no node has the device, or none has enough of it: the software,
    and the lack of a name.
    """
    some = next(iter(nodes[0].environments.values()))
    ranks = f" for {config.world_size} ranks" if config.world_size > 1 else ""
    on_nodes = f" on {config.nodes} nodes" if config.nodes > 1 else ""
    return replace(some, accelerator_type=None, device_name=f"{absent(config.device)}{ranks}{on_nodes}")
