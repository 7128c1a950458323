"""What fits where: the memory that a device has for a trial, and devices that are not here but planned for."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from orchestrator.resources import Node
from orchestrator.sweep import Sweep
from trials.amounts import bytes_of
from trials.bounds import Bounds
from trials.devices import DEVICES
from trials.environment import Fingerprint
from trials.prediction import Prediction
from trials.spec import RequestError, TrialConfig
from trials.words import nearest

CUDA_RESERVE = 600_000_000
"""Bytes of a GPU that its driver's context and the loaded kernels take, which no allocator counts."""

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
    whole = environment.device_memory if on_cuda else environment.host_memory
    if whole is None:
        return None
    reserve = CUDA_RESERVE if on_cuda else HOST_RESERVE
    where = environment.device_name if on_cuda else "this host"
    beside = "CUDA itself" if on_cuda else "Python and the system"
    return Budget(
        bytes=whole - reserve,
        words=f"{gigabytes(whole - reserve)} of {where} ({gigabytes(whole)} less {gigabytes(reserve)} for {beside})",
    )


def rooms(nodes: Iterable[Node]) -> dict[str, tuple[str, int]]:
    """For each kind of device the name of the one with most memory, and the bytes that a trial may use of it."""
    found: dict[str, tuple[str, int]] = {}
    for node in nodes:
        for kind, environment in node.environments.items():
            room = budget(TrialConfig(d_model=2, device=kind), environment)
            if room and room.bytes > found.get(kind, ("", 0))[1]:
                found[kind] = (environment.device_name, room.bytes)
    return found


def why_not(prediction: Prediction | Bounds, budget: Budget) -> str | None:
    """Why a trial of this prediction does not fit; None where it does, or may."""
    if isinstance(prediction, Bounds):
        if prediction.low is None or prediction.low <= budget.bytes:
            return None
        return f"its peak is at least that predicted of a smaller trial, {gigabytes(prediction.low)}: {budget.words}"
    if prediction.peak <= budget.bytes:
        return None
    return f"its predicted peak, {gigabytes(prediction.peak)} in {prediction.at}, exceeds the {budget.words}"


def between(bounds: Bounds) -> str:
    """`41.2 to 63 GB`."""
    low, high = (gigabytes(end) if end is not None else None for end in (bounds.low, bounds.high))
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}" if high else "?"


def gigabytes(count: int) -> str:
    """83.7 GB: decimal, with three digits."""
    return f"{count / 1e9:.3g} GB" if count < 1e12 else f"{count / 1e9:.0f} GB"


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
    words = re.split(r"[\s_-]+", text.upper().removeprefix("NVIDIA ").strip())
    for device in DEVICES:
        if set(words) <= {*device.name.upper().split(), *device.name.upper().replace("GB", "G").split()}:
            return device.name, device.memory
    names = [device.name for device in DEVICES]
    words_for = {word.lower(): word for name in names for word in (name, name.split()[0])}
    near = words_for.get(nearest(text.lower(), words_for) or "")
    hint = f"did you mean {near}? " if near else ""
    raise RequestError(f"--for {text}: no such device; {hint}give a size (24GB) or one of: {', '.join(names)}")
