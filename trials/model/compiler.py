"""torch.compile: what is compiled, and proof that it was."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch._functorch.config
from torch._dynamo.utils import counters

from lmsweep.trials.model.transformer import Transformer
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import Compile, CompileMode, TrialConfig, UnsupportedError

CXX = "clang++" if sys.platform == "darwin" else "g++"
"""The compiler that Inductor calls where the environment variable CXX names none."""

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]


@dataclass(frozen=True, kw_only=True)
class CompileCounts:
    """What dynamo and Inductor have done in this process since the last reset."""

    graphs: int
    """Graphs that dynamo captured."""
    graph_breaks: int
    """Places where a graph had to end early."""
    cache_hits: int
    """Graphs that Inductor found in its cache."""
    cache_misses: int
    """Graphs that Inductor had to compile."""


def compile_model(
    model: Transformer, scope: Compile, mode: CompileMode = "default", backend: str | Backend = "inductor"
) -> None:
    """Compiles, in place and lazily, what `scope` names: nothing, one block that all layers share, or the model."""
    if scope == "block":
        # One code object: dynamo takes the weights as inputs, so the first layer's graph serves all of them.
        for block in model.blocks:
            block.compile(backend=backend, mode=mode, dynamic=False)
    elif scope == "model":
        model.compile(backend=backend, mode=mode, dynamic=False)


def check_compile_mode(config: TrialConfig) -> None:
    """Raises UnsupportedError where the mode of torch.compile would change nothing."""
    mode, device = config.compile_mode, config.device_type
    if mode == "default":
        return
    if config.compile == "none":
        raise UnsupportedError(f"compile_mode {mode} changes nothing where compile is none")
    if mode == "reduce-overhead" and device != "cuda":
        raise UnsupportedError(f"compile_mode reduce-overhead is CUDA graphs, which device {device} does not have")
    if device == "mps":
        raise UnsupportedError(f"compile_mode {mode} has no kernels to choose from on device mps")


def uses_cuda_graphs(config: TrialConfig) -> bool:
    """Whether torch.compile is to record what it compiles as CUDA graphs."""
    return config.compile != "none" and config.compile_mode != "default" and config.device_type == "cuda"


def ready_compiler(device_type: str) -> None:
    """Sets this process's switches of torch.compile; raises UnsupportedError where it has no compiler to call.

    A graph that fails to compile raises where it is first run; so does a recompilation beyond dynamo's limit, which
    would otherwise fall back to eager without a word.
    """
    if device_type == "cpu" and not shutil.which(os.environ.get("CXX", CXX)):
        raise UnsupportedError(f"torch.compile needs a C++ compiler to make code for the CPU; install {CXX}")
    torch._dynamo.config.suppress_errors = False
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    # Forward and backward are compiled together, in the first forward: only then can the pair be kept in the cache.
    torch._functorch.config.force_non_lazy_backward_lowering = True


def check_compiled(*, cuda_graphs: bool = False) -> tuple[Flag, ...]:
    """What the compiler's counters say after the first iteration: `cold_cache` where it had to compile.

    Raises RuntimeError where nothing was compiled, and UnsupportedError where CUDA graphs were asked for and not made.
    """
    counts = compile_counts()
    if counts.graphs == 0:
        raise RuntimeError("torch.compile made no graph: this would have run eagerly")
    if cuda_graphs and counters["inductor"]["cudagraph_skips"]:
        raise UnsupportedError("torch.compile could not make CUDA graphs of this; TORCH_LOGS=cudagraphs tells why")
    return (Flag.COLD_CACHE,) if counts.cache_misses else ()


def compile_counts() -> CompileCounts:
    return CompileCounts(
        graphs=counters["stats"]["unique_graphs"],
        graph_breaks=sum(counters["graph_break"].values()),
        cache_hits=counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"],
        cache_misses=counters["inductor"]["fxgraph_cache_miss"],
    )


def reset_compiler() -> None:
    """Forgets every graph of this process; the caches on disk stay."""
    if any(counters.values()):  # dynamo would import Inductor, for a second and more, to clear what was never there
        torch._dynamo.reset()
    counters.clear()
