"""Describes the nodes on which trials can run: cores, GPUs and environments."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec

import psutil

from lmsweep.trials.analytic.datasheets import CpuRates
from lmsweep.trials.machine.interpreter import command, environment
from lmsweep.trials.results.environment import Fingerprint, absent, environment_id
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.words import GPU_DEVICES

ACCELERATOR = "accelerator_type:"
"""Prefix of the Ray resource that names the type of a node's accelerators."""

PATIENCE = 180.0
"""Seconds in which a node must describe itself; importing torch from a cold network disk takes a minute."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine of the cluster, or this machine if there is no cluster."""

    cpus: int
    """Logical cores that Ray may assign."""
    gpus: int
    """GPUs that Ray may assign."""
    environments: dict[str, Fingerprint]
    """The environment of a trial on this node, by kind of device."""
    names: tuple[str, ...] = ()
    """Ray's names for the type of its GPUs, the most specific last: A100, A100-80G. A trial may ask for any of them."""
    node_id: str | None = None
    """Ray's identifier; None without a cluster and for a node that has not started."""
    started: bool = True
    """False for a node that an autoscaler would start on demand."""
    count: int = 1
    """Number of such nodes; more than one only if they have not started."""
    cpu_rates: CpuRates | None = None
    assumed_cores: int | None = None
    """Cores for each GPU of a host that is only planned for (`--for`); None: the GPUs share `cpus`."""
    missing: frozenset[str] = frozenset()
    """Optional modules that its Python lacks, as far as it was asked."""

    @property
    def accelerator_type(self) -> str | None:
        return self.names[-1] if self.names else None

    @property
    def gpu_share_of_cpus(self) -> int:
        return self.assumed_cores or (self.cpus // self.gpus if self.gpus else 0)

    def places(self, device_type: str) -> int:
        """Return how many ranks it can hold: each has a GPU, or a core, of its own."""
        return self.gpus if device_type in GPU_DEVICES else self.cpus

    def is_like(self, other: "Node", device_type: str) -> bool:
        """Return whether both have the same environment for this kind of device, and as many cores and GPUs."""
        here, there = (environment_id(node.environments[device_type]) for node in (self, other))
        return here == there and (self.cpus, self.gpus) == (other.cpus, other.gpus)


def this_machine(meanwhile: Callable[[], object] = lambda: None) -> Node:
    """Describe this machine through a process that imports torch; call `meanwhile` while it runs. Raises RequestError
    if the process fails or does not answer, and ModuleNotFoundError without PyTorch."""
    if find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    with subprocess.Popen(
        look_at_machine(), stdout=subprocess.PIPE, env=environment_here(), text=True, start_new_session=True
    ) as probe:
        try:
            meanwhile()
            answer, _ = probe.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired as error:
            raise RequestError(
                f"this machine did not describe itself within {PATIENCE:g} s. Check whether "
                "`python -m lmsweep.trials.bench.fingerprint` hangs; a GPU driver may be the cause"
            ) from error
        finally:
            probe.kill()  # else leaving the block waits for a process that hangs
    if probe.returncode:
        raise RequestError(
            "this machine could not be described; run `python -m lmsweep.trials.bench.fingerprint` to see why"
        )
    return _node_from_json(answer)


def look_at_machine() -> list[str]:
    """Return the command whose output `this_machine` reads. It needs `environment_here()`."""
    return command("lmsweep.trials.bench.fingerprint", str(os.getpid()))


CHOOSE_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR")
"""Variables by which Ray gives a task its GPUs."""


def environment_here() -> dict[str, str]:
    """Return the variables for a process that looks at this machine. Ray hides the GPUs of its node from a task that
    asks for none; such a process sees those that Ray's own process was started with."""
    ours = environment()
    if raylet := os.environ.get("RAY_RAYLET_PID"):
        try:
            process = psutil.Process(int(raylet))
            of_node = process.environ() if process.name() == "raylet" else None
        except (psutil.Error, ValueError):
            of_node = None
        if of_node is None:  # inherited from a Ray that has ended; another process may have its number
            return ours
        ours = {name: value for name, value in ours.items() if name not in CHOOSE_GPUS}
        ours |= {name: of_node[name] for name in CHOOSE_GPUS if name in of_node}
    return ours


def _node_from_json(text: str) -> Node:
    """Return the node that ``python -m lmsweep.trials.bench.fingerprint`` described."""
    found = json.loads(text.strip().splitlines()[-1])  # libraries may print lines before it
    environments = {device: Fingerprint(**content) for device, content in found["devices"].items()}
    on_gpu = next((environments[device].accelerator_type for device in GPU_DEVICES if device in environments), None)
    return Node(
        cpus=found["cores"],
        gpus=len(found["gpus"]),
        names=(on_gpu,) if on_gpu else (),
        environments=environments,
        cpu_rates=CpuRates(*found["cpu_rates"]),
        missing=frozenset(found["missing"]),
    )


def accelerator_names(resources: Mapping[str, float]) -> tuple[str, ...]:
    """Return the accelerator types among a node's Ray resources, the most specific last."""
    names = (name.removeprefix(ACCELERATOR) for name in resources if name.startswith(ACCELERATOR))
    return tuple(sorted(names, key=len))


def missing_environment(config: TrialConfig, nodes: list[Node]) -> Fingerprint:
    """Return the environment of a trial that no node can hold: the device's name says what is missing."""
    some = next(iter(nodes[0].environments.values()))
    ranks = f" for {config.world_size} ranks" if config.world_size > 1 else ""
    on_nodes = f" on {config.nodes} nodes" if config.nodes > 1 else ""
    return replace(some, accelerator_type=None, device_name=f"{absent(config.device)}{ranks}{on_nodes}")


@dataclass(frozen=True)
class Refusal:
    """Returned where there is no answer: no node can hold a trial, or its memory is not predicted."""

    reason: str
    """Why, in words for a user."""
