"""The rates of a device: of a GPU, of a CPU's cores, or those of a stand-in, which only compare trials."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache, cached_property
from statistics import geometric_mean, median

from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.trials.analytic.datasheets import DEVICES, CpuRates, Device, device_named, find_device
from lmsweep.trials.analytic.rates.collective_rates import Point, in_order
from lmsweep.trials.analytic.rates.rate_data import MeasuredOperator, operators_in
from lmsweep.trials.analytic.rates.rate_set import LAUNCHES, MeasuredRates, Network, Rates, rates_with
from lmsweep.trials.analytic.rates.step_time import CpuOperators, OperatorRates
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.words import Collective
from lmsweep.trials.store.store import Store

STAND_IN = next(device for device in DEVICES if device.name == "A100 SXM 80GB")
"""For GPUs whose rates are unknown; any other would do, since trials are compared with each other alone."""
_COLUMNS = ("measurement_id", "device_name", "phase", "samples", "world_size", "nodes", "collective", "message_bytes")
CORES = CpuOperators(CpuRates(fp32=1e11, bf16=1e11, bytes_per_second=2e10))  # for CPUs of unknown rates: round numbers


class DeviceRates:
    """What operators cost on each device: the store's measurements, and for all others the rates that ship."""

    def __init__(self, store: Store | None = None, nodes: Sequence[Node] = ()) -> None:
        """nodes: those whose CPUs may run a trial."""
        self._store = store
        self._cpus = {
            node.environments["cpu"].device_name: CpuOperators(node.cpu_rates) for node in nodes if node.cpu_rates
        }
        self._known: dict[tuple[str, Network | None], Rates] = {}

    @cached_property
    def _measured(self) -> MeasuredRates:
        return measured_rates(self._store) if self._store and self._store.exists() else MeasuredRates()

    def of(self, device: Device, network: Network | None = None) -> Rates:
        """Return the rates of a GPU with a datasheet. network: between nodes."""
        key = device.name, network
        if key not in self._known:
            self._known[key] = rates_with(device, self._measured, network)
        return self._known[key]

    def known(self, name: str, memory: int | None = None) -> OperatorRates | None:
        """Return the rates of a device by its name, None without a datasheet or a measurement."""
        device = _datasheet(name, memory)
        return self.of(device) if device else self._cpus.get(name)

    def usual(self, device_type: str) -> OperatorRates:
        """Return the rates of another device of that type: good only for comparing trials with one another."""
        return CORES if device_type == "cpu" else self.of(STAND_IN)


def measured_rates(store: Store) -> MeasuredRates:
    """Return what a store has of operators, of collectives within a node, and of launches, by device."""
    operators = operators_in(store.read("operator_times", [*MeasuredOperator._fields])[0])
    launches: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    """Device -> trial -> its launch times, over those of the reference host."""
    points: dict[tuple[str, int], dict[Collective, list[Point]]] = defaultdict(dict)
    for row in store.rows(_COLUMNS, workload=["collectives", "operators"], metric=["time"]):
        device = find_device(row["device_name"])
        if device is None or not row["samples"]:
            continue
        seconds = median(row["samples"])
        if row["phase"] in LAUNCHES:
            launches[device.name][row["measurement_id"]].append(seconds / LAUNCHES[row["phase"]])
        elif row["phase"] == "collective" and row["nodes"] == 1:
            kinds = points[device.name, row["world_size"]]
            kinds.setdefault(row["collective"], []).append(Point(row["message_bytes"], seconds))
    return MeasuredRates(
        operators=operators,
        # A mean, as a step launches forward and backward; of the fastest trial, as trials side by side launch slowly.
        hosts={name: min(map(geometric_mean, trials.values())) for name, trials in launches.items()},
        collectives={key: {kind: in_order(found) for kind, found in kinds.items()} for key, kinds in points.items()},
    )


def datasheet_of(environment: Fingerprint) -> Device | None:
    """Return the datasheet of a device, if there is one. A device given by `--for` has the exact name in the table."""
    return _datasheet(environment.device_name, environment.device_memory)


@cache
def _datasheet(name: str, memory: int | None) -> Device | None:
    return find_device(name, memory) or device_named(name)
