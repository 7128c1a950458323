"""A training step as CUDA graphs: each phase is captured once and then replayed by one call from the host."""

import torch

from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from lmsweep.trials.timing.clock import Phase

WARMUP_ITERATIONS = 3
"""Iterations on the capture's stream before it: libraries choose kernels, and the optimizer creates its state."""


def check_capture(config: TrialConfig) -> None:
    """Raise UnsupportedError if the step cannot be captured, or torch.compile records CUDA graphs itself."""
    if config.capture == "none":
        return
    if config.device_type != "cuda":
        raise UnsupportedError(f"capture: step records CUDA graphs, which device {config.device_type} does not have")
    if config.records_cuda_graphs:
        raise UnsupportedError(
            f"compile_mode {config.compile_mode} records CUDA graphs of its own; use capture without it"
        )
    if config.accumulate > 1:
        raise UnsupportedError(
            "capture: step captures each phase once; with accumulate a phase runs once per micro-batch"
        )
    if config.mode != "train_step":
        return
    optimizer = OPTIMIZERS.get(config.optimizer)
    if optimizer is None or not optimizer.capturable:
        raise UnsupportedError(f"capture: step needs a capturable optimizer, and {config.optimizer} is none; use AdamW")
    if config.precision == "fp16" and not optimizer.is_fused:
        raise UnsupportedError(
            f"with precision fp16 and optimizer {config.optimizer}, the host waits in each step for the result of the "
            "gradient scaler, which a CUDA graph cannot record; adamw_fused reads it on the device"
        )


def capture_phases(step: TrainingStep) -> tuple[Phase, ...]:
    """Capture each phase as a CUDA graph, and return phases that replay these graphs, which share one memory pool. The
    batch and the gradients keep their addresses. Raises UnsupportedError with PyTorch's reason if it cannot."""
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
        raise UnsupportedError(
            f"the step cannot be captured: {str(error).strip().partition(chr(10))[0] or type(error).__name__}"
        ) from error
    torch.cuda.synchronize()
    return tuple(Phase(name=phase.name, run=graph.replay) for phase, graph in zip(phases, graphs, strict=True))
