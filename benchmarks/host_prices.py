"""How well prices of launches predict steps that the host decides.

    python -m benchmarks.host_prices                    # shipped sets; prices fitted to the other machines
    python -m benchmarks.host_prices STORE MEASURED     # a store; MEASURED has `lmsweep run operators` of that machine
    python -m benchmarks.host_prices STORE MEASURED --code examples
    python -m benchmarks.host_prices --ranks            # steps of two ranks in shipped sets

Without a store, how slow a machine is over the reference host comes from one of its steps, eager and the most bound by
its host, which is not counted; of ranks it is the median of the machine's other steps, and the factor of two ranks is
learned from the other sets. Each set counts as a machine.
Steps of float8, of CUDA graphs, and those in which launches take less than 80 % are left out.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from scipy.optimize import brentq, least_squares
from tabulate import tabulate

from lmsweep.analysis import load
from lmsweep.orchestrator.predicting.device_rates import measured_rates
from lmsweep.orchestrator.predicting.predicted_step import in_precision
from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.rates.intervals import Residual, known_residuals, learned, spread_for
from lmsweep.trials.analytic.rates.rank_schedule import RankTime, rank_time
from lmsweep.trials.analytic.rates.rate_set import LAUNCH_SECONDS, MeasuredRates, launched, rates_of, rates_with
from lmsweep.trials.analytic.rates.step_time import WAIT_PER_LAUNCH, StepTime, step_time
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.results.stored_config import config_of
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.store.store import Store

SETS = (
    *("h200-devices", "h100-devices", "h200-end-to-end", "h200-x2-end-to-end", "h100-published-steps"),
    *("h100-best-grid", "h200-costs", "h200-profile"),
)
PAIRS = ("h200-x2-ddp", "h200-x2-sharded", "h200-x2-fsdp", "h200-x2-xl")
SHARE = 0.8
"""Of a step that the host decides, what it spends on launches at least; the device is busy for less."""
KINDS = tuple(kind for kind in LAUNCH_SECONDS if kind != "optimizer")
FIRM = 0.05
"""Weight of a price's distance from the one that ships, for kinds that few machines have."""


@dataclass(frozen=True, kw_only=True)
class Step:
    machine: str
    config: TrialConfig
    seconds: float
    busy: float
    """Measured of the device."""
    time: StepTime
    launches: Sequence[float]
    """By KINDS."""

    def at(self, prices: Sequence[float], host: float) -> float:
        """Seconds with these prices, as `StepTime.at` has them."""
        launching = host * float(np.dot(prices, self.launches))
        update = host * self.time.launching_update
        end = max(update, self.time.updating)
        return max(self.time.computing + WAIT_PER_LAUNCH * (launching + update), launching + end)


def steps_of(name: str) -> Iterator[Step]:
    """Yield the steps of one process in a set that the host decides."""
    rows = load(name)
    rows = rows[(rows["workload"] == "timing") & (rows["status"] == "ok")]
    for _, of_trial in rows.groupby("measurement_id"):
        row: dict[str, Any] = of_trial.iloc[0].to_dict()
        config, device = config_of(row), find_device(str(row["device_name"]), row["device_memory"])
        took = {(one["phase"], one["metric"]): one["median"] for one in of_trial.to_dict("records")}
        seconds, enqueued = took.get(("step", "time")), took.get(("step", "enqueue_time"))
        plain = config.capture == "none" and config.compile_mode == "default" and "fp8" not in config.precision
        if device is None or not seconds or not plain or (enqueued and enqueued < SHARE * seconds):
            continue
        time = step_time(in_precision(step_operators(config), config), rates_of(device))
        busy = took.get(("step", "device_time"), time.computing)
        if busy > SHARE * seconds:
            continue
        counts: dict[str, float] = defaultdict(float)
        for part in time.parts:
            if part.operator.phase != "optimizer":
                counts[launched(part.operator)] += part.operator.count
                counts["call"] += part.operator.calls * part.operator.count
        launches = [counts[kind] for kind in KINDS]
        yield Step(machine=name, config=config, seconds=seconds, busy=busy, time=time, launches=launches)


def prices_from(steps: Sequence[Step]) -> list[float]:
    """Return prices, with a factor for each machine, that fit the steps; machines weigh the same."""
    machines = sorted({one.machine for one in steps})
    weights = {name: sum(one.machine == name for one in steps) ** -0.5 for name in machines}
    shipped = np.log([LAUNCH_SECONDS[kind] for kind in KINDS])

    def off(logs: np.ndarray) -> list[float]:
        prices, hosts = np.exp(logs[: len(KINDS)]), dict(zip(machines, np.exp(logs[len(KINDS) :]), strict=True))
        errors = [weights[s.machine] * float(np.log(s.at(prices, hosts[s.machine]) / s.seconds)) for s in steps]
        return [*errors, *(FIRM * (logs[: len(KINDS)] - shipped))]

    start = np.concatenate([shipped, np.zeros(len(machines))])
    return list(np.exp(least_squares(off, start, loss="soft_l1", f_scale=0.1).x[: len(KINDS)]))


def held_out(steps: Sequence[Step]) -> Iterator[list[Any]]:
    """Yield each machine, its factor, and how far off its other steps are, by prices of the other machines."""
    for machine in sorted({one.machine for one in steps}):
        here = [one for one in steps if one.machine == machine]
        plain = [one for one in here if one.config.compile == one.config.checkpointing == "none"] or here
        known = min(plain, key=lambda one: one.busy / one.seconds)
        prices = prices_from([one for one in steps if one.machine != machine])
        host = _host_of(known, prices)
        errors = [one.at(prices, host) / one.seconds - 1 for one in here if one is not known]
        if errors:
            yield [machine, host, errors, [1e6 * price for price in prices]]


def _host_of(step: Step, prices: Sequence[float]) -> float:
    """Return how slow the host is over the reference, by one of its steps."""
    return float(brentq(lambda host: step.at(prices, host) - step.seconds, 0.05, 20.0))


def shipped() -> None:
    steps = [step for name in SETS for step in steps_of(name)]
    lines, every = [], []
    for machine, host, errors, prices in held_out(steps):
        every += errors
        lines.append([machine, len(errors), f"{host:.2f}", *_counted(errors), *(f"{price:.1f}" for price in prices)])
    lines.append(["all", len(every), "", *_counted(every)])
    print(tabulate(lines, headers=["set", "steps", "host", "median", "within 20 %", *(f"{one}, µs" for one in KINDS)]))


def ranks() -> None:
    """Print how far steps of two ranks are off, where the device decides and where the host does."""
    errors: dict[str, list[float]] = defaultdict(list)
    lines = []
    for name in PAIRS:
        rows = load(name)
        rows = rows[(rows["workload"] == "ddp") & (rows["phase"] == "step") & (rows["metric"] == "time")]
        steps = []
        for row in rows[rows["median"].notna()].to_dict("records"):
            config, device = config_of(row), find_device(row["device_name"], row["device_memory"])
            assert device is not None, "the sets are of H200"
            operators = in_precision(step_operators(config), config)
            steps.append((config, row["median"], rank_time(operators, rates_of(device), config)))
        spread = learned("two ranks", known_residuals(), "H200 SXM", _from_others(name))
        factor = spread.factor if spread else 1.0
        hosts = [_host_of_rank(time, seconds, factor) for _, seconds, time in steps]
        for i, (config, seconds, time) in enumerate(steps):
            others = [host for k, host in enumerate(hosts) if host and k != i]
            host = median(others)
            predicted = _of_rank(time, host, factor)
            decides = "host" if host * time.launching > time.busy else "device"
            errors[decides].append(predicted / seconds - 1)
            what = (
                f"{config.model} {config.context_length} {config.ddp} reshard {config.reshard} gather {config.gather}"
            )
            lines.append(
                [name, what, f"{host:.2f}", 1e3 * seconds, 1e3 * predicted, f"{errors[decides][-1]:+.1%}", decides]
            )
    print(tabulate(lines, headers=["set", "step", "host", "measured, ms", "predicted", "error", "decides"]))
    for decides, of_kind in errors.items():
        within = ", ".join(f"{share:.0%}: {sum(abs(e) <= share for e in of_kind)}" for share in (0.1, 0.2))
        print(f"the {decides} decides {len(of_kind)}: median {median(map(abs, of_kind)):.1%}; within {within}")


def _from_others(name: str) -> Callable[[Residual], bool]:
    return lambda one: one.source != name


def _of_rank(time: RankTime, host: float, factor: float) -> float:
    """Return seconds as `RankTime.at` has them."""
    launching = host * time.launching
    return max(factor * time.busy + WAIT_PER_LAUNCH * launching, launching) + factor * time.after


def _host_of_rank(time: RankTime, seconds: float, factor: float) -> float | None:
    """Return how slow the host is by a step; None if that step is not much longer than what the device does."""
    if factor * (time.busy + time.after) > SHARE * seconds:
        return None
    return float(brentq(lambda host: _of_rank(time, host, factor) - seconds, 0.05, 20.0))


def of_store(store: str, measured: MeasuredRates) -> None:
    """Print each step of a store beside its prediction, with the launches that were measured on the machine."""
    rows = load(store)
    rows = rows[rows["workload"].isin(["timing", "ddp"]) & rows["phase"].eq("step") & rows["metric"].eq("time")]
    lines, errors, held = [], [], 0
    for row in rows.to_dict("records"):
        config, device = config_of(row), find_device(row["device_name"], row["device_memory"])
        if device is None or not row["samples"]:
            continue
        try:
            low, seconds, high, decides = _predicted(config, device, measured)
        except (UnsupportedError, RuntimeError) as error:
            print(f"{config.model}: {error}")
            continue
        took = median(row["samples"])
        what = f"{config.model or config.size} {config.precision} {config.compile} {config.ddp} {config.optimizer}"
        lines.append([what, 1e3 * low, 1e3 * seconds, 1e3 * high, 1e3 * took, f"{seconds / took - 1:+.1%}", decides])
        if decides == "host":
            errors.append(seconds / took - 1)
            held += low <= took <= high
    print(tabulate(lines, headers=["step", "from, ms", "predicted", "to", "measured", "error", "decides"]))
    print(f"the host decides {len(errors)}: median, within 20 %: {_counted(errors)}; {held} intervals held")


def _predicted(config: TrialConfig, device: Device, measured: MeasuredRates) -> tuple[float, float, float, str]:
    hosts = MeasuredRates(hosts=measured.hosts)
    operators, rates = in_precision(step_operators(config), config), rates_with(device, hosts)
    time = rank_time(operators, rates, config) if config.world_size > 1 else step_time(operators, rates)
    interval = spread_for(device.name, rates.level(), config.world_size).of(time)
    return interval.low, interval.seconds, interval.high, "host" if time.is_host_bound else "device"


def _counted(errors: Sequence[float]) -> tuple[str, str]:
    sizes = [abs(error) for error in errors]
    return f"{median(sizes):.1%}", f"{sum(size <= 0.2 for size in sizes) / len(sizes):.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("stores", nargs="*")
    parser.add_argument("--code")
    parser.add_argument("--ranks", action="store_true")
    asked = parser.parse_args()
    if asked.code:
        use_code(code_folder(asked.code))
    if asked.ranks:
        ranks()
    elif not asked.stores:
        shipped()
    else:
        store, *rest = asked.stores
        of_store(store, measured_rates(Store(rest[0])) if rest else MeasuredRates())


if __name__ == "__main__":
    main()
