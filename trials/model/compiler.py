"""torch.compile: what it compiles, and the check that it did."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lmsweep.trials.machine.torch_private import compile_counters, dynamo, graph_settings, times_of_compiler
from lmsweep.trials.model.transformer.flex_attention import Backend
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError

counters = compile_counters()
CXX = "clang++" if sys.platform == "darwin" else "g++"
"""The C++ compiler that Inductor calls unless the environment variable CXX names another."""


@dataclass(frozen=True, kw_only=True)
class CompileCounts:
    """Counters of dynamo and Inductor in this process since the last reset; but `seconds`, which compilation took, is
    never reset."""

    graphs: int
    """Captured by dynamo."""
    seconds: float
    graph_breaks: int
    cache_hits: int
    """Graphs that Inductor found in its cache. A hit of AOTAutograd's cache loads its graphs from there, too."""
    cache_misses: int
    """Graphs that Inductor had to compile. Forward and backward of a graph of dynamo's are two."""


def compile_model(
    model: nn.Module, blocks: Sequence[nn.Module], config: TrialConfig, backend: str | Backend = "inductor"
) -> None:
    """Compile in place and lazily, as `config.compile` says. Raises UnsupportedError without layers to compile."""
    if config.compilation.each_block:
        if not blocks:
            raise UnsupportedError(
                f"compile: {config.compile} needs repeated layers, and {config.model_code} has no list of equal "
                "layers; name the list with blocks:, or use compile: model"
            )
        # All blocks share one code object, and dynamo takes weights as inputs: the graph of the first serves all.
        options: dict[str, Any] = {"backend": backend, "mode": config.compile_mode, "dynamic": config.dynamic_shapes}
        for block in blocks:
            if type(block).__module__.startswith("torch.nn.modules."):
                # Module.compile would compile nothing, as Dynamo skips the frames of PyTorch's own layers.
                block.forward = torch.compile(block.forward, **options)
            else:
                block.compile(**options)
    elif config.compilation.whole:
        model.compile(backend=backend, mode=config.compile_mode, dynamic=config.dynamic_shapes)


def ready_compiler(config: TrialConfig) -> None:
    """Set this process's options of torch.compile. Raises UnsupportedError without a C++ compiler. Afterwards graphs
    that fail to compile raise, and so does exceeding dynamo's limit of recompilations; but where batches differ in
    length, those beyond the limit run eagerly, as in training."""
    if config.device_type == "cpu" and not shutil.which(os.environ.get("CXX", CXX)):
        raise UnsupportedError(f"torch.compile needs a C++ compiler to generate code for the CPU; install {CXX}")
    dynamo().config.suppress_errors = False
    dynamo().config.fail_on_recompile_limit_hit = not config.varies
    # Compile forward and backward together, in the first forward: only then can the cache store the pair.
    graph_settings().force_non_lazy_backward_lowering = True


def check_compiled(*, cuda_graphs: bool = False) -> tuple[Flag, ...]:
    """Check the counters after the first iteration; return `cold_cache` if Inductor had to compile. Raises RuntimeError
    if nothing was compiled, UnsupportedError if requested CUDA graphs were not recorded."""
    counts = compile_counts()
    if counts.graphs == 0:
        raise RuntimeError("torch.compile captured no graph; the model would have run eagerly")
    if cuda_graphs and counters["inductor"]["cudagraph_skips"]:
        raise UnsupportedError("torch.compile could not record CUDA graphs; TORCH_LOGS=cudagraphs shows why")
    return (Flag.COLD_CACHE,) if counts.cache_misses else ()


def compile_counts() -> CompileCounts:
    return CompileCounts(
        graphs=counters["stats"]["unique_graphs"],
        seconds=float(times_of_compiler()["total_wall_time"]),
        graph_breaks=sum(counters["graph_break"].values()),
        cache_hits=counters["inductor"]["fxgraph_cache_hit"],
        cache_misses=counters["inductor"]["fxgraph_cache_miss"],
    )


def reset_compiler() -> None:
    """Discard every compiled graph of this process; the caches on disk stay."""
    if any(counters.values()):  # otherwise dynamo would import Inductor, for more than a second, to clear nothing
        dynamo().reset()
    counters.clear()
