"""What operators cost on the cores of a CPU: their FLOPs or their bytes, at the rates that the machine measured."""

from lmsweep.trials.analytic.datasheets import CpuRates
from lmsweep.trials.analytic.rates.operators import Operator, class_of
from lmsweep.trials.analytic.rates.rate_set import Cost


class CpuOperators:
    """Costs without launches, which take no time of another processor."""

    hosts = (1.0, 1.0)
    host_source = "the device itself"

    def __init__(self, rates: CpuRates) -> None:
        self._rates = rates

    def of(self, operator: Operator) -> Cost:
        rate = self._rates.bf16 if operator.dtype == "bfloat16" else self._rates.fp32
        moving = operator.bytes / self._rates.bytes_per_second
        computing = operator.flops / rate if class_of(operator) in ("products", "attention") else 0.0
        return Cost(max(computing, moving), "the machine's products and copies")

    def launch(self, operator: Operator) -> float:
        return 0.0
