"""Which trials one run serves: several modes, devices and optimizers, or one compiled graph."""

from dataclasses import replace

from lmsweep.trials.analytic.formulas import PASSES
from lmsweep.trials.model.training_step import PHASES
from lmsweep.trials.prediction.compiled.aot_graph import in_primes
from lmsweep.trials.prediction.compiled.trial_graph import graph_config, traced_graph
from lmsweep.trials.prediction.without_device.allocation_trace import Trace, everything_freed
from lmsweep.trials.prediction.without_device.fake_device import differs_by_device
from lmsweep.trials.prediction.without_device.step_run import attention_run, leaves_something, step_run
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.words import Mode


def model_trace(config: TrialConfig, run: Mode | None = None) -> Trace:
    """The allocations and frees of the trial: `init`, then for each iteration the phases of its mode and `dropped`.

    If iterations leave nothing to the next, there is one; else there are those of the run. run: a mode to run
    instead, from whose trace this mode's part is taken, so that modes share a run. Raises what `step_run` raises.
    """
    if leaves_something(config):
        return step_run(as_run(config)).trace
    # The phases of a wider mode begin with those of this one, unless backward divides micro-batches of forward.
    is_divided = config.accumulate > 1 and "backward" not in PHASES[config.mode]
    shared = config if run is None or config.references or is_divided else replace(config, mode=run)
    trace = step_run(as_run(shared)).trace
    built = sum(one.phase == "init" for one in trace)
    iteration = trace[built : built + len(PHASES[config.mode]) * config.accumulate]
    return [*trace[:built], *iteration, everything_freed(iteration)]


def attention_trace(config: TrialConfig) -> Trace:
    """As `model_trace`, for attention alone, which has no optimizer: a training step is forward and backward."""
    mode: Mode = "forward_backward" if PASSES[config.mode] > 1 else config.mode
    init, *iteration = attention_run(replace(config, mode=mode)).trace
    return [init, *iteration, everything_freed(iteration)]


def one_run_for(config: TrialConfig) -> TrialConfig:
    """Return one configuration that stands for all those that share a run: several modes, or one compiled graph."""
    if config.references or config.ddp != "none":
        return config
    if config.compile != "none":
        return graph_config(config)
    return as_run(config if config.mode == "forward" else replace(config, mode="train_step"))


def one_trace_for(run: TrialConfig) -> TrialConfig:
    """Return one configuration for all runs (of `one_run_for`) that share the trace of a compiled graph."""
    # With primes as dimensions, all sizes of a model share one trace (`compiled.aot_graph`).
    shared = in_primes(run) if run.compile != "none" and run.ddp == "none" else None
    return shared[0] if shared else run


def forget_runs() -> None:
    """Forget all runs. Needed after a change of how the compiler partitions graphs."""
    step_run.cache_clear()
    traced_graph.cache_clear()


def as_run(config: TrialConfig) -> TrialConfig:
    """Return the configuration to run: without autocast and fused attention, MPS allocates as the CPU does."""
    needs_device = config.device_type == "cuda" or differs_by_device(config) or config.references
    return config if needs_device else replace(config, device="cpu")
