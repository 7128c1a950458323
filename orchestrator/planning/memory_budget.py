"""Says how much memory a device has for a trial, also for devices that are only planned for (`--for`)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.trials.analytic.datasheets import DEVICES, UNKNOWN_SHARE, Device, device_named
from lmsweep.trials.analytic.memory_bounds import Bounds
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.analytic.prediction_question import MemoryLimit
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.quantities import bytes_of, gib
from lmsweep.trials.spec.suggestions import device_meant

CUDA_RESERVE = 767 * 2**20
"""Bytes of the CUDA context and kernels outside PyTorch's allocator, measured after the first step on an H100."""

HOST_RESERVE = 1_000_000_000
"""Bytes of host memory that Python, PyTorch and the system take."""

OTHERS_NEED = "peak memory: other trainers need {0.low} to {0.high} % of it, by public stacks"
ASSUMED_CORES = 12
"""Cores for each GPU of a host that is not here: Google Cloud rents an A100 with 12 (a2-highgpu), others with more."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Memory that a trial may use on a device."""

    bytes: int
    words: str
    """In words for a user."""


def budget(config: TrialConfig, environment: Fingerprint) -> Budget | None:
    """Return what a trial may use in this environment; None if its memory size is unknown."""
    if config.takes_gpus:
        size, reserve, where, remark = environment.device_memory, CUDA_RESERVE, environment.device_name, ""
        overhead = f"the {config.device_type.upper()} context"
    else:
        size, reserve, where, remark = environment.host_memory_for_a_trial, HOST_RESERVE, "this host", " for a trial"
        overhead = "Python and the system"
    if size is None:
        return None
    planned_for = device_named(environment.device_name)
    if planned_for and planned_for.memory_source is None:
        remark = f", estimated as {UNKNOWN_SHARE:.0%} below the nominal size,"
    usable = max(0, size - reserve)
    words = f"{gib(usable)} of {where} ({gib(size)}{remark} minus {gib(reserve)} for {overhead})"
    return Budget(bytes=usable, words=words)


def memory_limits(nodes: Iterable[Node]) -> dict[str, list[MemoryLimit]]:
    """Return the limits of devices by their kind (cpu, cuda, ...), each once. A kind of unknown memory has none."""
    found: dict[str, dict[MemoryLimit, None]] = {}  # kind -> an ordered set
    for node in nodes:
        for kind, environment in node.environments.items():
            found.setdefault(kind, {})  # empty if no memory size is known
            if available := budget(TrialConfig(d_model=2, device=kind), environment):  # no budget depends on the model
                found[kind][MemoryLimit(environment.device_name, available.bytes)] = None
    return {kind: list(limits) for kind, limits in found.items()}


def why_too_large(prediction: Prediction | Bounds, budget: Budget, verdict: bool | None) -> str | None:
    """Return why the trial does not fit; None if it may. verdict: of the simulated allocator, None if not asked."""
    if isinstance(prediction, Bounds):
        if prediction.low is None or prediction.low <= budget.bytes:
            return None
        return f"its peak is at least {gib(prediction.low)} ({prediction.source}) and exceeds the {budget.words}"
    if prediction.peak <= budget.bytes:
        if verdict is not False:  # None, not asked, counts as fitting
            return None
        return (
            f"its predicted peak, {gib(prediction.peak)} in {prediction.at}, is within the {budget.words}, but "
            "fragmentation in the allocator exceeds it"
        )
    return f"its predicted peak, {gib(prediction.peak)} in {prediction.at}, exceeds the {budget.words}"


def with_devices(node: Node, text: str, gpus: int) -> Node:
    """Return the node with so many of the GPUs meant by `H100` or `24GB`. Raises RequestError if there are none."""
    meant = named_gpu(text)
    name, memory = (meant.name, meant.memory) if meant else (f"a {text.strip()} device", bytes_of(text))
    installed = node.environments.get("cuda") or node.environments["cpu"]
    # The driver there, and which optional modules it lacks, are unknown.
    there = replace(installed, device_name=name, device_memory=memory, accelerator_type=None, driver_version=None)
    environments = {**node.environments, "cuda": there}
    host = replace(node, gpus=gpus, environments=environments, assumed_cores=ASSUMED_CORES)
    return replace(host, names=(), missing=frozenset())


def counted(text: str) -> tuple[int, str]:
    """Return how many GPUs of one node are meant, and which: `8xH100` is (8, `H100`), `24GB` (1, `24GB`)."""
    found = re.fullmatch(r"\s*([1-9]\d{0,3})\s*[xX×]\s*(\S.*)", text)
    return (int(found[1]), found[2]) if found else (1, text)


def named_gpu(text: str) -> Device | None:
    """Return the first device that a name such as `H100` means; None for a size such as `24GB`. Raises RequestError."""
    return None if bytes_of(text) else devices_meant(text)[0]


def devices_meant(text: str, option: str = "--for") -> list[Device]:
    """Return every device in the table whose name has all of these words. Raises RequestError if there is none."""
    words = set(re.split(r"[\s_-]+|(?<=RTX)(?=\w)", text.upper().removeprefix("NVIDIA ").strip()))  # RTX4090 is two
    names = {one.name: {*f"{one.name} {one.name.replace('GB', 'G')}".upper().split()} for one in DEVICES}  # 80GB or 80G
    if meant := [one for one in DEVICES if words <= names[one.name]]:
        return meant
    choice = "give a size (24GB) or one of" if option == "--for" else "one of"
    raise RequestError(f"{option} {text}: no such device; {device_meant(text, names)}{choice}: {', '.join(names)}")
