"""Results with numbers that are known because we chose them, stored by the real store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.trials.results.environment import Fingerprint, environment_id
from lmsweep.trials.results.measurement import Kernel
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.identity import measurement_id, trial_id
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.statistics.median_interval import median_interval
from lmsweep.trials.store.store import Store

H200 = Fingerprint(
    device_name="NVIDIA H200",
    device_memory=150_000_000_000,
    driver_version="570.1",
    cuda_version="12.8",
    torch_version="2.11.0",
    triton_version="3.6.0",
    python_version="3.12",
    float32_matmul="ieee",
    parameter_dtype="float32",
)
H100 = replace(H200, device_name="NVIDIA H100 80GB HBM3", device_memory=85_017_493_504)
LAPTOP = Fingerprint(device_name="Laptop CPU (8 cores)", torch_version="2.13.0", python_version="3.11")

# Ten samples whose ranks go to and fro, so that they count as ten independent ones.
TO_AND_FRO = (-4.5, 4.5, -3.5, 3.5, -2.5, 2.5, -1.5, 1.5, -0.5, 0.5)
REACH = median_interval(TO_AND_FRO)[1]
"""How far the interval of their median reaches to either side: 3.9 spacings."""


def samples(median: float, half_interval: float) -> tuple[float, ...]:
    """Ten samples with this median and a 95 % interval of it of median ± half_interval."""
    return tuple(median + half_interval / REACH * offset for offset in TO_AND_FRO)


def config(model: str = "small", **fields: Any) -> TrialConfig:
    size = SIZES[model]
    dimensions = {name: getattr(size, name) for name in ("d_model", "d_ff", "num_layers", "num_heads")}
    return TrialConfig(model=model, **dimensions, **fields)


def gpu(model: str = "small", **fields: Any) -> TrialConfig:
    return config(model, device="cuda", **fields)


def kernel(range_: str | None, name: str, total: float, **fields: Any) -> Kernel:
    """Seconds of four calls of a kernel in two steps, if `fields` say nothing else."""
    numbers: dict[str, Any] = dict.fromkeys(("share", "mean", "median", "min", "max"), 0.0)
    numbers |= dict.fromkeys(("operator", "stdev", "grid", "block")) | {"instances": 4, "steps": 2} | fields
    return Kernel(range=range_, kernel=name, total=total, **numbers)


TINY = config("tiny", vocab_size=100, context_length=16, batch_size=1, warmup_steps=1, measure_steps=3)
"""A trial of milliseconds."""


def planned(
    trial: TrialConfig, index: int = 0, *, workload: str = "noop", sweep: str = "test", **fields: Any
) -> PlannedTrial:
    """A trial that a plan runs on LAPTOP, if `fields` say nothing else."""
    return PlannedTrial(
        index=index,
        trial=Trial(config=trial, workloads=(workload,), sweep=sweep),
        trial_id=trial_id(trial),
        **{"action": "run", "reason": None, "environment": LAPTOP, **fields},
    )


class Attempts:
    """Appends attempts to a store, each a minute later than the one before."""

    def __init__(self, location: Path) -> None:
        self.store = Store(str(location))
        self._count = 0

    def ok(
        self,
        trial: TrialConfig,
        values: dict[str, tuple[float, ...] | None],
        *,
        flags: tuple[Flag, ...] = (),
        units: dict[str, str] | None = None,
        **fields: Any,
    ) -> list[Record]:
        """One row for each `phase.metric` of the values, in seconds unless `units` says otherwise."""
        base = self._base(trial, status="ok", **fields)
        rows = []
        for name, value in values.items():
            phase, _, metric = name.rpartition(".")
            unit = (units or {}).get(name, "s")
            marks = tuple(flag.value for flag in flags) if metric == "time" else ()
            rows.append(replace(base, phase=phase, metric=metric, unit=unit, samples=value, flags=marks))
        self.store.keep(rows)
        return rows

    def step(
        self, trial: TrialConfig, seconds: float, device: float | None = None, *, within: float = 1e-3, **fields: Any
    ) -> list[Record]:
        """A training step of this wall time and, if given, device time, each known to within a share of itself."""
        times = {"step.time": seconds} | ({} if device is None else {"step.device_time": device})
        return self.ok(trial, {name: samples(time, within * time) for name, time in times.items()}, **fields)

    def peak(self, trial: TrialConfig, held: float, **fields: Any) -> list[Record]:
        """A training step whose tensors were given so many bytes at the most, as a trial of memory says."""
        value = "step.peak_allocated"
        return self.ok(trial, {value: (held,) * 3}, workload="memory", units={value: "B"}, **fields)

    def failed(self, trial: TrialConfig, status: str, **fields: Any) -> Record:
        row = self._base(trial, status=status, **{"error": "why it failed", **fields})
        self.store.keep([row])
        return row

    def _base(
        self,
        trial: TrialConfig,
        *,
        fingerprint: Fingerprint = H200,
        workload: str = "timing",
        sweep: str = "made-up",
        **fields: Any,
    ) -> Record:
        self._count += 1
        return Record(
            trial_id=trial_id(trial),
            measurement_id=measurement_id(trial, workload),
            environment_id=environment_id(fingerprint, trial.software),
            attempt_id=f"{1000 - self._count:016x}",  # neither names nor files are in the order of time
            sweep=sweep,
            workload=workload,
            config=trial,
            fingerprint=fingerprint,
            **{"started_at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=self._count), **fields},
        )
