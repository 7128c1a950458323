"""Estimates one step of several ranks: from what a store has measured on the device, else from datasheets."""

import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.rank_time import rank_step
from lmsweep.orchestrator.planning.time_model import datasheet_of, step_parts
from lmsweep.trials.analytic.datasheets import LINKS, NETWORKS, Device, device_named, find_device
from lmsweep.trials.analytic.rates.collective_rates import CollectiveTimes, Point, from_datasheet, in_order
from lmsweep.trials.results.environment import is_absent
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.roles import Reader, fields_read_by
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import CONFIG_FIELDS, STORED_FIELDS, TrialConfig
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from lmsweep.trials.spec.words import Collective
from lmsweep.trials.store.store import Store

MEASURED_RANGE = (0.8, 1.2)
"""Actual over estimated step if the step in one process and the collectives were measured on the device."""

MODELLED_RANGE = (0.8, 1.25)
"""The same for the device's time if it rests on datasheets."""

HOSTS = (0.8, 2.6)
"""How long hosts take to launch a step, over the reference host: the fastest and the slowest seen with an H200."""

_WANTED = {
    ("collectives", "collective", "time"),
    ("ddp", "all_reduce", "bus_bandwidth"),
    ("ddp", "local_step", "time"),
    ("timing", "step", "time"),
}
"""(workload, phase, metric) of the rows that are read."""

_OF_RANKS: dict[str, Any] = {name: CONFIG_FIELDS[name].default for name in fields_read_by(Reader.RANKS, Reader.NOTHING)}
"""The fields that do not change a step in one process, with their defaults."""


@dataclass(frozen=True, kw_only=True)
class RankEstimate:
    seconds: float
    between: tuple[float, float]
    exposed: float
    """What of it the step would not take without communication."""
    source: str
    """In words for a user."""


@dataclass(frozen=True)
class NotEstimated:
    reason: str
    """In words for a user."""


class RankEstimates:
    def __init__(self, *stores: Store) -> None:
        self._points: dict[tuple[str, int, int], dict[Collective, list[Point]]] = {}  # device, ranks, nodes
        self._bandwidths: dict[tuple[str, int, int], list[float]] = defaultdict(list)
        self._alone: dict[tuple[str, TrialConfig], list[float]] = defaultdict(list)
        self._hosts: dict[str, list[float]] = defaultdict(list)
        for store in stores:
            if store.exists():
                self._learn(store)

    def of(self, planned: PlannedTrial) -> RankEstimate | NotEstimated | None:
        """Return the estimate, or why there is none; None if the trial has no step of several ranks, or no device."""
        if "ddp" not in planned.trial.workloads or is_absent(planned.environment.device_name):
            return None
        return self.estimate(planned.trial.config, planned.environment.device_name, datasheet_of(planned.environment))

    def estimate(self, config: TrialConfig, device_name: str, device: Device | None) -> RankEstimate | NotEstimated:
        if config.device_type != "cuda":
            return NotEstimated("the step time of several ranks is modelled for GPUs only")
        if device is None:
            return NotEstimated(f"no datasheet of {device_name}")
        if config.compiles:
            return NotEstimated("the step time of several ranks is modelled for eager code only")
        name = _name(device_name)
        links = self._links(config, name, device)
        if links is None:
            return NotEstimated(f"neither a datasheet of the links of {device_name} nor a measured collective")
        alone = self._alone.get((name, one_process(config)))
        hosts = self._hosts.get(name)
        host = statistics.median(hosts) if hosts else 1.0

        measured = statistics.median(alone) if alone else None
        slowness = (HOSTS[0], host, HOSTS[1])
        fast, middle, slow = (rank_step(config, device, links, host=one, alone=measured) for one in slowness)
        if not (fast and middle and slow):
            return NotEstimated("the work of your own model is not known")
        low, high = MEASURED_RANGE if alone and links.measured else MODELLED_RANGE
        fastest, slowest = (middle, middle) if alone or hosts else (fast, slow)
        computing = (
            "the same step in one process, measured"
            if alone
            else f"the time model, with the host measured to take {host:.2g} times as long as the reference"
            if hosts
            else "the time model"
        )
        return RankEstimate(
            seconds=middle.step,
            between=(low * fastest.step, high * slowest.step),
            exposed=middle.exposed,
            source=f"computation from {computing}; communication from {links.source}",
        )

    def _links(self, config: TrialConfig, name: str, device: Device) -> CollectiveTimes | None:
        key = (name, config.world_size, config.nodes)
        points, rates = self._points.get(key, {}), self._bandwidths.get(key)
        if points:
            best = [point.size / point.seconds for point in points.get("all_reduce", [])]
            scale = 2 * (config.world_size - 1) / config.world_size
            bandwidth = scale * max(best) if best else statistics.median(rates) if rates else 0.0
            words = f"collectives measured between {config.world_size} ranks"
            if bandwidth or device.name in LINKS:
                usual = bandwidth or from_datasheet(LINKS[device.name], device.name).bandwidth
                return CollectiveTimes(bandwidth=usual, measured=points, source=words)
        if rates:
            words = f"the measured all-reduce of all gradients, {statistics.median(rates) / 1e9:.0f} GB/s"
            return CollectiveTimes(bandwidth=statistics.median(rates), measured={}, source=words)
        link = LINKS.get(device.name)
        if link is None:
            return None
        if config.nodes > 1:
            network = NETWORKS.get(device.name)
            if network is None:
                return None
            link = min(link, network * config.ranks_per_node)
        return from_datasheet(link, device.name)

    def _learn(self, store: Store) -> None:
        columns = ["device_name", "workload", "status", "phase", "metric", "samples", *STORED_FIELDS]
        table = store.read(columns=columns)[0]
        table = table.filter(pc.equal(table["status"], Status.OK.value))
        metrics = pc.is_in(table["metric"], value_set=pa.array(sorted({metric for *_, metric in _WANTED})))
        points: dict[tuple[str, int, int], dict[Collective, list[Point]]] = {}
        for row in table.filter(metrics).to_pylist():
            if (row["workload"], row["phase"], row["metric"]) not in _WANTED or not row["samples"]:
                continue
            name, value = _name(row["device_name"]), statistics.median(row["samples"])
            config = config_of(row)
            key = (name, config.world_size, config.nodes)
            match row["workload"], row["metric"]:
                case "collectives", _:
                    kinds = points.setdefault(key, {})
                    kinds.setdefault(config.collective, []).append(Point(config.message_bytes, value))
                case _, "bus_bandwidth":
                    self._bandwidths[key].append(value)
                case "ddp", _ if config.tp > 1 or (config.ddp in DDP_VARIANTS and DDP_VARIANTS[config.ddp].shared):
                    pass  # each rank updates only its share
                case _:
                    self._alone[name, one_process(config)].append(value)
                    self._learn_host(name, config, value)
        for key, kinds in points.items():
            before = self._points.setdefault(key, {})
            before |= {kind: in_order([*before.get(kind, ()), *found]) for kind, found in kinds.items()}

    def _learn_host(self, name: str, config: TrialConfig, seconds: float) -> None:
        device = device_named(name)
        parts = step_parts(config, device) if device and not config.compiles else None
        if parts and parts.launching > parts.computing:
            self._hosts[name].append((seconds - parts.updating) / parts.launching)


def one_process(config: TrialConfig) -> TrialConfig:
    return replace(config, **_OF_RANKS, device=config.device_type)


def _name(device_name: str) -> str:
    device = find_device(device_name)
    return device.name if device else device_name
