"""Compiling ahead: many trials' graphs at once, before any is measured, into the compiler's cache on disk.

The graphs are compiled with fake tensors: nothing is allocated on the device and no kernel runs, so as many processes
may compile side by side as there are cores. The trials then find their code in the cache, and where they should be
told apart, they are: a trial that had to compile is flagged `cold_cache`.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
import torch._inductor.config
from torch._subclasses.fake_tensor import FakeTensorMode

from trials.precision import set_math_mode
from trials.spec import TrialConfig
from trials.training_step import TrainingStep


def graphs_of(configs: Iterable[TrialConfig]) -> list[TrialConfig]:
    """One configuration for each graph that these trials need, those that take longest first."""
    wanted = {_graph_of(config) for config in configs if config.compile != "none"}
    return sorted(wanted, key=lambda config: -(config.num_layers or 0))


def precompile(config: TrialConfig, *, threads: int) -> None:
    """Compiles what the trial will, with up to `threads` processes for its kernels. Raises what compiling raises."""
    torch._inductor.config.compile_threads = threads
    math_mode = set_math_mode(config.precision, config.device_type)
    with FakeTensorMode():
        step = TrainingStep(config, math_mode, backend=compile_only)
        step.forward()


def compile_only(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """A dynamo backend that has Inductor compile the graph and then runs it uncompiled."""
    from torch._inductor.compile_fx import compile_fx

    # The cache's key holds the types that the inputs are annotated with: name those that a trial's tensors will have.
    for node in graph.graph.find_nodes(op="placeholder"):
        is_parameter = isinstance(node.meta["example_value"], torch.nn.Parameter)
        node.type = torch.nn.Parameter if is_parameter else torch.Tensor
    graph.recompile()
    compile_fx(graph, inputs)
    forward: Callable[..., Any] = graph.forward
    return forward


def _graph_of(config: TrialConfig) -> TrialConfig:
    """The same graph with the least around it: one layer where layers share code, nothing that only measuring reads."""
    return replace(
        config,
        model=None,
        num_layers=1 if config.compile == "block" else config.num_layers,
        mode="forward" if config.mode == "forward" else "forward_backward",
        optimizer="adamw_fused",
        warmup_steps=0,
        measure_steps=1,
    )
