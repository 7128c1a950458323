"""What fits where: the memory that a device has for a trial, and devices that are not here but planned for."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.sweep.sweep import Sweep
from lmsweep.trials.analytic.datasheets import DEVICES, UNKNOWN_SHARE, Device, device_named
from lmsweep.trials.analytic.memory_bounds import Bounds
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.quantities import bytes_of, gib
from lmsweep.trials.spec.suggestions import nearest

CUDA_RESERVE = 767 * 2**20
"""Bytes of a GPU that the context and the loaded kernels take, which no allocator counts: 527 MiB before the first
allocation, and at the end of the first step 751 MiB, with the kernels of fused attention 767 (an H100, PyTorch 2.11 for
CUDA 13, eager and compiled).
"""

HOST_RESERVE = 1_000_000_000
"""Bytes of a host that Python, PyTorch and the system take beside a trial's tensors."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Memory that a trial may use."""

    bytes: int
    words: str
    """How it came about."""


def budget(config: TrialConfig, environment: Fingerprint) -> Budget | None:
    """What a trial may use there; None where it is not known how much memory there is."""
    on_cuda = config.device_type == "cuda"
    whole = environment.device_memory if on_cuda else environment.host_memory_for_a_trial
    if whole is None:
        return None
    reserve = CUDA_RESERVE if on_cuda else HOST_RESERVE
    where = environment.device_name if on_cuda else "this host"
    of_it = "" if on_cuda else " for a trial"
    planned_for = device_named(environment.device_name)
    if planned_for and planned_for.memory_source is None:
        of_it = f", a guess: {UNKNOWN_SHARE:.0%} less than is sold, as its driver's figure is not known,"
    beside = "CUDA itself" if on_cuda else "Python and the system"
    left = max(0, whole - reserve)
    return Budget(bytes=left, words=f"{gib(left)} of {where} ({gib(whole)}{of_it} less {gib(reserve)} for {beside})")


def depends_on_order(prediction: Prediction, budget: Budget) -> bool:
    """Whether the allocator fits the trial in only if it gives free segments back, or not even so."""
    return prediction.peak <= budget.bytes < 1.02 * prediction.reserved  # of what is eager exact to less than that


def rooms(nodes: Iterable[Node]) -> dict[str, tuple[str, int]]:
    """For each kind of device the name of the one with most memory, and the bytes that a trial may use of it."""
    found: dict[str, tuple[str, int]] = {}
    for node in nodes:
        for kind, environment in node.environments.items():
            room = budget(TrialConfig(d_model=2, device=kind), environment)
            if room and room.bytes > found.get(kind, ("", 0))[1]:
                found[kind] = (environment.device_name, room.bytes)
    return found


def why_not(prediction: Prediction | Bounds, budget: Budget, verdict: bool | None) -> str | None:
    """Why a trial of this prediction does not fit; None where it does or may. `verdict` is what the simulated allocator
    says where its order of blocks decides.
    """
    if isinstance(prediction, Bounds):
        if prediction.low is None or prediction.low <= budget.bytes:
            return None
        return f"its peak is at least that predicted of a smaller trial, {gib(prediction.low)}: {budget.words}"
    if prediction.peak <= budget.bytes:
        if verdict is not False:
            return None
        return (
            f"its predicted peak, {gib(prediction.peak)} in {prediction.at}, is within the {budget.words}, but "
            "not with the gaps that the allocator leaves between blocks"
        )
    return f"its predicted peak, {gib(prediction.peak)} in {prediction.at}, exceeds the {budget.words}"


def between(bounds: Bounds) -> str:
    """`38.4 to 58.7 GiB`."""
    low, high = (gib(end) if end is not None else None for end in (bounds.low, bounds.high))
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}" if high else "?"


def with_device(node: Node, name: str, memory: int) -> Node:
    """The node with one GPU of this name and memory in bytes."""
    some = node.environments.get("cuda") or node.environments["cpu"]
    there = replace(some, device_name=name, device_memory=memory, accelerator_type=None, driver_version=None)
    return replace(node, gpus=1, accelerator_type=None, environments={**node.environments, "cuda": there})


def without_placement(sweep: Sweep) -> Sweep:
    """The sweep with every CUDA trial on whatever GPU there is."""
    trials = (
        replace(trial, config=replace(trial.config, device="cuda")) if trial.config.device_type == "cuda" else trial
        for trial in sweep.trials
    )
    return replace(sweep, trials=tuple(dict.fromkeys(trials)))


def device_memory(text: str) -> tuple[str, int]:
    """Name and bytes of the device meant by `H100`, `A100 80GB` or `24GB`; of several, the first of the table.

    Raises RequestError where there is no such device.
    """
    size = bytes_of(text)
    if size is not None:
        return f"a device of {text.strip()}", size
    first, *_ = devices_meant(text)
    return first.name, first.memory


def devices_meant(text: str) -> list[Device]:
    """Every device of the table that has all of these words in its name. Raises RequestError where none has."""
    words = set(re.split(r"[\s_-]+", text.upper().removeprefix("NVIDIA ").strip()))
    meant = [
        device
        for device in DEVICES
        if words <= {*device.name.upper().split(), *device.name.upper().replace("GB", "G").split()}
    ]
    if meant:
        return meant
    names = [device.name for device in DEVICES]
    words_for = {word.lower(): word for name in names for word in (name, name.split()[0])}
    near = words_for.get(nearest(text.lower(), words_for) or "")
    hint = f"did you mean {near}? " if near else ""
    raise RequestError(f"--for {text}: no such device; {hint}give a size (24GB) or one of: {', '.join(names)}")


def which_device(text: str) -> str | None:
    """What to say of a name that several devices have; None where one has it, or it is a size."""
    if bytes_of(text) is not None:
        return None
    first, *others = devices_meant(text)
    if not others:
        return None
    names = ", ".join(f'"{other.name}"' for other in others)
    return f"--for {text}: planned for {first.name}, which has {gib(first.memory)} for CUDA; for another write {names}"
