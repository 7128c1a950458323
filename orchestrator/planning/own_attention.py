"""The user's own attention in a predicted step: its time from the store's measurement of it alone."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from statistics import median

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.rates.operators import Operator, class_of
from lmsweep.trials.analytic.rates.step_time import Cost, OperatorRates
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import STORED_FIELDS, RequestError, Trial, TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.store.store import Store

_COLUMNS = ("device_name", "code_digest", "phase", "samples", *STORED_FIELDS)
KNOWN = "sdpa"
"""PyTorch's attention, whose operator stands in for the user's attention in each layer of a predicted step."""


class OwnAttentions:
    """What a store has measured of attention by reference, by shapes, code and GPU."""

    def __init__(self, store: Store | None) -> None:
        self._store = store if store and store.exists() else None

    def stand_ins(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """Yield `stand_in` of each trial whose attention is the user's: a step estimate may need its operators, too."""
        yield from (stand_in(one) for one in trials if is_reference(one.config.attention) and self._seconds)

    def of(self, planned: PlannedTrial, device: Device) -> Mapping[str, float] | None:
        """Return the seconds of forward and backward of a layer's attention, None if they were not measured."""
        config = planned.trial.config
        if not is_reference(config.attention):
            return None
        found = self._seconds.get(_key(config, device, planned.environment.code_digest))
        return found if found and (config.mode == "forward" or "backward" in found) else None

    @cached_property
    def _seconds(self) -> dict[Hashable, dict[str, float]]:
        """`_key` (shapes, code, GPU) -> forward or backward -> seconds: the median of the results' medians."""
        if self._store is None:
            return {}
        found: dict[Hashable, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in self._store.rows(_COLUMNS, workload=["attention"], metric=["time"]):
            device = find_device(row["device_name"])
            if device and row["samples"] and is_reference(row["attention"]):
                try:
                    key = _key(config_of(row), device, row["code_digest"])
                except RequestError:  # no configuration of this lmsweep
                    continue
                found[key][row["phase"]].append(median(row["samples"]))
        return {key: {phase: median(times) for phase, times in phases.items()} for key, phases in found.items()}


class WithOwnAttention:
    """Rates by which the operator of attention takes as long as the user's attention did when measured alone."""

    def __init__(self, rates: OperatorRates, attention: str, seconds: Mapping[str, float]) -> None:
        """seconds: of forward and of backward of one layer."""
        self._rates, self._attention, self._seconds = rates, attention, seconds
        self.launch, self.hosts, self.host_source = rates.launch, rates.hosts, rates.host_source

    def of(self, operator: Operator) -> Cost:
        if class_of(operator) != "attention":
            return self._rates.of(operator)
        phase = "backward" if "backward" in operator.name else "forward"
        return Cost(self._seconds[phase], f"{self._attention} measured alone in the store")


def stand_in(trial: Trial) -> Trial:
    """Return the trial with PyTorch's attention in place of the user's; its other operators stay as they are."""
    return replace(trial, config=replace(trial.config, attention=KNOWN, attention_args=None))


def _key(config: TrialConfig, device: Device, code_digest: str | None) -> Hashable:
    """Return what the time of attention depends on. Heads count like sequences, as each is computed by itself."""
    shape = (config.micro_batch_size * (config.num_heads or 1), config.context_length, config.head_width)
    same_heads = config.num_kv_heads in (None, config.num_heads)
    computed_in = PRECISIONS[config.precision].operand, PRECISIONS[config.precision].tf32
    way = (config.attention, config.attention_args, config.causal, config.compiles, *computed_in)
    return device.name, code_digest, shape, same_heads, way
