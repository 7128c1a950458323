"""A training step as CUDA graphs: each phase is captured once and replayed, so the host only starts it."""

import torch

from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.timing.clock import Phase

WARMUP_ITERATIONS = 3
"""Before the capture, on its stream: libraries choose kernels and make workspaces, the optimizer makes its state."""


def check_capture(config: TrialConfig) -> None:
    """Raises UnsupportedError where nothing can be captured, or CUDA graphs are used already."""
    if config.capture == "none":
        return
    if config.device_type != "cuda":
        raise UnsupportedError(f"capture: step records CUDA graphs, which device {config.device_type} does not have")
    if config.compile != "none" and config.compile_mode != "default":
        raise UnsupportedError(
            f"compile_mode {config.compile_mode} records CUDA graphs of its own; use capture without it"
        )
    if config.precision == "fp16" and config.mode == "train_step" and config.optimizer != "adamw_fused":
        raise UnsupportedError(
            f"with precision fp16 and optimizer {config.optimizer} the host waits for the gradient scaler's verdict in "
            "each step, which no graph can; adamw_fused leaves it on the device"
        )


def capture_phases(step: TrainingStep) -> tuple[Phase, ...]:
    """The phases of the step as replays of one CUDA graph each; all of them share one pool of memory.

    The batch stays where it is, and so do gradients: the optimizer's graph reads those that backward's graph writes.

    Raises UnsupportedError with PyTorch's reason where a phase cannot be captured.
    """
    phases = step.phases()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    pool = torch.cuda.graph_pool_handle()
    graphs = []
    try:
        with torch.cuda.stream(stream):
            for _ in range(WARMUP_ITERATIONS):
                for phase in phases:
                    phase.run()
                step.drop()
        torch.cuda.synchronize()
        for phase in phases:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                phase.run()
            graphs.append(graph)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise UnsupportedError(f"the step cannot be captured: {_first_line(error)}") from error
    torch.cuda.synchronize()
    return tuple(Phase(name=phase.name, run=graph.replay) for phase, graph in zip(phases, graphs, strict=True))


def _first_line(error: RuntimeError) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
