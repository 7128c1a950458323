"""Precompilation: compiles the graphs of many trials in parallel, before they run, into the compiler's cache on disk.

The graphs are compiled with fake tensors: nothing is allocated on the device and no kernel runs, so as many processes
can compile as there are cores. A trial that still has to compile is flagged `cold_cache`.
"""

import fcntl
import hashlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

import torch
from torch import Tensor

from lmsweep.trials.isolation.messages import PrecompileRequest
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.processes import kill_group, lead_group
from lmsweep.trials.machine.torch_private import (
    FakeTensorMode,
    inductor,
    inductor_cache,
    inductor_options,
    inductor_settings,
    start_compile_workers,
)
from lmsweep.trials.model.attention_step import AttentionStep
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.results.roles import graph_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.words import CompileMode

LOOK_AGAIN_SECONDS = 0.05
"""Seconds between two looks at whether another server has compiled a graph."""


def graphs_of(configs: Iterable[TrialConfig]) -> list[TrialConfig]:
    """Return one configuration per distinct graph of these trials that is compiled before they run, in their order."""
    return list(dict.fromkeys(graph_of(config) for config in configs if has_shared_graph(config)))


def has_shared_graph(config: TrialConfig) -> bool:
    """Return whether a trial's graph is compiled ahead: not if that needs a device that runs, or the user's code."""
    if config.memory_budget is not None or config.compile_mode.startswith("max-autotune") or imports_users_code(config):
        return False
    return config.compile != "none" or config.always_compiles_attention


def imports_users_code(config: TrialConfig) -> bool:
    """Return whether the graph holds code of the user's, which only the process of its trial imports."""
    return config.model_code is not None or is_reference(config.attention)


def precompile(config: TrialConfig, *, threads: int) -> None:
    """Compile what the trial will compile, with up to `threads` processes for its kernels. Raises what they raise."""
    inductor_settings().compile_threads = threads
    if config.device_type == "cuda":
        start_compile_workers()  # starts the processes now; only Triton's kernels need them
    math_mode = set_math_mode(config.precision, config.device_type)
    with FakeTensorMode():
        make = AttentionStep if config.num_layers is None else TrainingStep
        make(config, math_mode, backend=compile_only).forward()


def compile_only(
    graph: torch.fx.GraphModule, inputs: list[Tensor | torch.SymInt], mode: CompileMode = "default"
) -> Callable[..., object]:
    """Compile the graph with Inductor, for its cache, and return the uncompiled graph: a Dynamo backend."""
    # The cache key includes the annotated types of the inputs. Annotate those that the trial's tensors will have.
    for node in graph.graph.find_nodes(op="placeholder"):
        is_parameter = isinstance(node.meta["example_value"], torch.nn.Parameter)
        node.type = torch.nn.Parameter if is_parameter else torch.Tensor
    graph.recompile()
    inductor()(graph, inputs, config_patches=inductor_options(mode))
    return graph.forward


def compile_side_by_side(request: PrecompileRequest, client: Connection) -> int:
    """Compile the graph of the first configuration, and this server's share of the others; return how many it started.

    Each in a forked process, as many at once as there are cores. What another server compiles is left to it, but this
    waits for the first graph. No graph may take longer than its trial's timeout. A file in the cache folder marks each
    compiled graph; a process that compiles one holds the lock beside it. Raises EOFError if the client disconnects.
    """
    missing = _missing(request)
    if not missing:
        return 0
    first, until = missing[0], time.monotonic() + request.longest  # of all graphs
    started = _compile_some(missing, math.ceil(len(missing) / request.sharers), until, request.environment_id, client)
    _wait_for(mark_of(first, request.environment_id), client, until)
    return started


def _missing(request: PrecompileRequest) -> list[TrialConfig]:
    """Return the graphs to compile: that of the first configuration, and then those that take longest. None if the
    first has been compiled, since nothing waits for the others."""
    first = next(iter(graphs_of(request.configs[:1])), None)
    if first is None or mark_of(first, request.environment_id).exists():
        return []
    graphs = graphs_of(request.configs)
    missing = [graph for graph in graphs if not mark_of(graph, request.environment_id).exists()][: request.most]
    if first not in missing:  # another server has compiled it since
        return []
    return sorted(missing, key=lambda graph: (graph != first, -(graph.num_layers or 0)))


def _compile_some(graphs: Sequence[TrialConfig], most: int, until: float, environment: str, client: Connection) -> int:
    """Compile at most so many of the graphs, those that no other server compiles; return how many."""
    waiting, started = deque(graphs), 0
    side_by_side = min(most, len(usable_cores()))
    threads = len(usable_cores()) // side_by_side  # of each process
    running: dict[ForkProcess, float] = {}
    """Processes, each with the time.monotonic() at which it has used up the timeout of its trial."""
    while True:  # start as many as may run at once; wait until one ends, is too slow, or the client is gone
        while waiting and started < most and len(running) < side_by_side and time.monotonic() < until:
            graph = waiting.popleft()
            with claim(mark := mark_of(graph, environment)) as lock:
                if lock:
                    arguments = (graph, mark, os.getpid(), threads, client.fileno())  # which the child closes
                    process = ForkProcess(target=_compile_one, args=arguments)
                    process.start()
                    running[process] = min(until, time.monotonic() + graph.timeout_seconds)
                    started += 1
        if not running:
            return started
        rest = max(0.0, min(running.values()) - time.monotonic())
        gone = client in wait([*(process.sentinel for process in running), client], rest)
        for process, deadline in list(running.items()):
            if gone or not process.is_alive() or time.monotonic() >= deadline:
                assert process.pid is not None, "the process was started"
                kill_group(process.pid)
                process.join()
                del running[process]
        if gone:
            raise EOFError


def _compile_one(config: TrialConfig, mark: Path, parent_pid: int, threads: int, inherited_fd: int) -> None:
    """Compile a graph in a forked process, and mark it. If this fails, the graph's trial will report the error."""
    lead_group(parent_pid, inherited_fd)
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    precompile(config, threads=threads)
    mark.touch()


@contextmanager
def claim(mark: Path) -> Iterator[bool]:
    """Yield whether the graph is neither compiled nor being compiled. Processes forked inside inherit the claim."""
    mark.parent.mkdir(parents=True, exist_ok=True)
    with mark.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield not mark.exists()


def _wait_for(mark: Path, client: Connection, until: float) -> None:
    """Wait until the graph is compiled, nobody compiles it any more, or the time is up. Raises EOFError if the client
    disconnects."""
    while not mark.exists() and time.monotonic() < until:
        with claim(mark) as nobody_else:
            if nobody_else:  # so compiling it failed
                return
        if wait([client], LOOK_AGAIN_SECONDS):
            raise EOFError


def mark_of(config: TrialConfig, environment: str) -> Path:
    """Return the file that says that the graph is compiled."""
    digest = hashlib.sha256(f"{config} {environment}".encode()).hexdigest()[:32]
    return Path(inductor_cache()) / "lmsweep" / digest
