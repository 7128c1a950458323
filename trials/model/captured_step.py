"""A training step as CUDA graphs: each phase is captured once and then replayed by one call from the host."""

import torch

from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import UnsupportedError
from lmsweep.trials.timing.clock import Phase

WARMUP_ITERATIONS = 3
"""Iterations on the capture's stream before it: libraries choose kernels, and the optimizer creates its state."""


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
