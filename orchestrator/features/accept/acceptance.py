"""The answer of `lmsweep accept`: nodes, their units and parts, and what each and all of them amount to."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lmsweep.orchestrator.features.accept.expected import Known
from lmsweep.orchestrator.features.accept.part_verdicts import PartVerdict, Verdict, verdicts
from lmsweep.orchestrator.features.accept.parts import Process
from lmsweep.orchestrator.predicting.predicted_step import PredictedStep
from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.rates.collective_rates import bus_factor
from lmsweep.trials.results.outcome import Flag

CAUSES: dict[str, str] = {
    Flag.SHARED_GPU: "another process used the GPU",
    Flag.BUSY_HOST: "other processes, or other guests of the machine, took CPU time",
    Flag.THROTTLED: "it lowered its clocks because of heat or its power supply",
}
"""Flag -> what it says about the unit. A reached power limit is not among them: healthy GPUs reach it as well."""
OVER_PCIE = 64e9
"""B/s in one direction of 16 lanes of PCIe 5: collectives that are slower need no NVLink."""


class Condition(NamedTuple):
    """What slows a unit of a node: seen before anything was measured, or why a trial has no result."""

    unit: str
    """GPU 0, host, links."""
    says: str
    disturbs: bool = False
    """Whether it is temporary: a slow part of the unit is then not called slow. A lasting condition is only named as
    the cause."""


NO_GPU = Condition("GPU", "no NVIDIA GPU is visible")


@dataclass(frozen=True, kw_only=True)
class NodeSeen:
    """A node that took part."""

    node: str
    gpus: Mapping[str, str] = field(default_factory=dict)
    """UUID -> the unit that it is: GPU 0, ..."""
    device_name: str | None = None
    """What the driver calls its GPUs."""
    conditions: tuple[Condition, ...] = ()
    failures: tuple[Condition, ...] = ()
    """Why a trial has no result."""
    telemetry: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Unit -> clock in Hz, power in W and temperature in degC during the step."""
    environment: Mapping[str, str | int | None] = field(default_factory=dict)
    """Its CPU, driver and software."""


@dataclass(frozen=True, kw_only=True)
class UnitVerdict:
    """A GPU, the links between them, or the host."""

    unit: str
    device_name: str | None
    gpu_uuid: str | None
    verdict: Verdict
    causes: list[str]
    """What explains it, or makes it uncertain."""
    telemetry: dict[str, float]
    parts: list[PartVerdict]


@dataclass(frozen=True, kw_only=True)
class AcceptedNode:
    node: str
    verdict: Verdict
    environment: dict[str, str | int | None]
    units: list[UnitVerdict]


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Whether the nodes are as fast as machines of their kind."""

    expected_device: str | None
    """The datasheet's name of what the GPUs should be; None without a GPU, or of an unknown kind."""
    verdict: Verdict
    nodes: list[AcceptedNode]

    @property
    def units(self) -> list[tuple[AcceptedNode, UnitVerdict]]:
        return [(node, unit) for node in self.nodes for unit in node.units]


def accept(
    measured: Sequence[Process],
    nodes: Sequence[NodeSeen],
    device: Device | None = None,
    *,
    shipped: Sequence[Process],
    history: Sequence[Process] = (),
    predicted: Callable[[str, str, Device], PredictedStep | None] = lambda trial, phase, device: None,
) -> Acceptance:
    """Judge what was measured on these nodes. device: what each GPU should be, by default by its name. shipped,
    history, predicted: see `Known`."""
    devices = {node.node: device or (find_device(node.device_name) if node.device_name else None) for node in nodes}
    known = Known(shipped=shipped, history=history, peers=measured, predicted=predicted)
    gpus = {uuid: unit for node in nodes for uuid, unit in node.gpus.items()}
    disturbed = [(node.node, one.unit) for node in nodes for one in node.conditions if one.disturbs]
    judged = verdicts(measured, gpus, devices, known, disturbed)
    if device and not gpus:
        nodes = [replace(node, failures=(NO_GPU, *node.failures)) for node in nodes]
    accepted = []
    for node in nodes:
        parts = {unit: of_unit for (name, unit), of_unit in judged.items() if name == node.node}
        present = {*parts, *node.gpus.values(), *(one.unit for one in node.failures)}
        order = (*node.gpus.values(), NO_GPU.unit, "links", "host")  # NO_GPU stands only where no node has a GPU
        units = [_unit(name, node, parts.get(name, [])) for name in order if name in present]
        verdict = worst(one.verdict for one in units)
        accepted.append(AcceptedNode(node=node.node, verdict=verdict, environment={**node.environment}, units=units))
    names = " and ".join(dict.fromkeys(one.name for one in devices.values() if one))
    return Acceptance(expected_device=names or None, verdict=worst(node.verdict for node in accepted), nodes=accepted)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return slow if any is slow, pass if all that are judged pass, else cannot tell; cannot tell if none is judged."""
    judged = set(verdicts) - {"not judged"}
    if "slow" in judged:
        return "slow"
    return "pass" if judged == {"pass"} else "cannot tell"


def _unit(unit: str, node: NodeSeen, parts: list[PartVerdict]) -> UnitVerdict:
    """Return the verdict of a unit, with what explains it. A trial without a result is one of the causes."""
    uuid = next((uuid for uuid, name in node.gpus.items() if name == unit), None)
    conditions = [one for one in node.conditions if one.unit == unit]
    left_out = set[Flag]()
    if any(one.disturbs for one in conditions):
        left_out = {Flag.BUSY_HOST, Flag.SHARED_GPU}  # the condition says as much
    elif uuid:
        left_out = {Flag.BUSY_HOST}  # the host has a unit of its own
    flags = dict.fromkeys(flag for one in parts for flag in one.flags if flag in CAUSES and flag not in left_out)
    causes = [*(one.says for one in conditions), *(CAUSES[flag] for flag in flags), *_over_pcie(parts)]
    failures = [one.says for one in node.failures if one.unit == unit]
    return UnitVerdict(
        unit=unit,
        device_name=node.device_name if uuid else None,
        gpu_uuid=uuid,
        verdict=_verdict_of({one.verdict for one in parts}, is_complete=not failures),
        causes=[*causes, *failures],
        telemetry=dict(node.telemetry.get(unit, {})),
        parts=parts,
    )


def _verdict_of(parts: Set[Verdict], *, is_complete: bool) -> Verdict:
    """Return the verdict of a unit whose parts have these. is_complete: whether each of its trials has a result."""
    if not is_complete and "slow" not in parts:
        return "cannot tell"  # what has no result may be slow
    if parts <= {"not judged"}:  # all of them, or there are none
        return "not judged"
    return worst(parts)


def bus_bandwidth(part: PartVerdict, seconds: float) -> float:
    """Return the B/s of a collective that takes so long, as nccl-tests counts them."""
    size, ranks = int(part.settings["message_bytes"] or 0), int(part.settings["world_size"] or 1)
    return bus_factor(part.settings["collective"], ranks) * size / seconds  # type: ignore[arg-type]


def _over_pcie(parts: Sequence[PartVerdict]) -> list[str]:
    """Return the words about the first collective that is no faster than PCIe where NVLink is expected, if any is."""
    for one in parts:
        if one.value == "collective.time" and one.expected_seconds:
            rate, expected = bus_bandwidth(one, one.seconds), bus_bandwidth(one, one.expected_seconds)
            if rate < OVER_PCIE < expected:
                return [f"collectives go over PCIe or the host's memory ({rate / 1e9:.0f} GB/s), not over NVLink"]
    return []
