"""What a store has measured of the parts of a step: single operators, collectives, and the host's launches."""

from collections import defaultdict
from statistics import geometric_mean, median

from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.rates.collective_rates import Point, in_order
from lmsweep.trials.analytic.rates.rate_data import MeasuredOperator, operators_in
from lmsweep.trials.analytic.rates.rate_set import LAUNCHES, MeasuredRates
from lmsweep.trials.spec.words import Collective
from lmsweep.trials.store.store import Store

_COLUMNS = ("measurement_id", "device_name", "phase", "samples", "world_size", "nodes", "collective", "message_bytes")


def measured_rates(store: Store) -> MeasuredRates:
    """Return what a store has of operators, of collectives within a node, and of launches, by device."""
    operators = operators_in(store.read("operator_times", [*MeasuredOperator._fields])[0])
    launches: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    """Of a device, by trial."""
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
        # a step launches forward and backward; a trial beside it slows launches
        hosts={name: min(map(geometric_mean, trials.values())) for name, trials in launches.items()},
        collectives={key: {kind: in_order(found) for kind, found in kinds.items()} for key, kinds in points.items()},
    )
