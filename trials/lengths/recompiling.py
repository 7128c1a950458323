"""Compiled code that meets batches of other shapes: how often it is compiled again."""

from functools import cache
from itertools import islice
from math import ceil

from lmsweep.trials.lengths.batches import Batch, batches
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.attentions import ATTENTIONS, CU_SEQLENS_MULTIPLE

MOST_GRAPHS = 8
"""Graphs of one piece of code. PyTorch runs what needs another uncompiled (`recompile_limit` of `torch._dynamo`)."""
FUSED_ELEMENTS = 5 * 2**20
"""Elements of a hidden state from which Inductor fuses reductions over both of its dimensions on a GPU: one graph with
dynamic shapes serves the batches on one side (`can_fuse`, `torch/_inductor/scheduler.py`, PyTorch 2.11)."""
ALIGNED = 8
"""Multiples of so many positions are aligned for FlashAttention and the memory-efficient kernel. A graph with dynamic
shapes serves those that are, or those that are not (`is_aligned_realized_tensor`, `torch/_inductor/ir.py`)."""


def recompiles(config: TrialConfig) -> int | None:
    """Return how many graphs are compiled after the first, in `batches` steps; None without a compiler or a width."""
    if config.compile == "none" or (config.dynamic_shapes and not config.d_model):
        return None
    return min(_needed_graphs(config), MOST_GRAPHS) - 1


def runs_uncompiled(config: TrialConfig) -> bool:
    """Return whether some steps run uncompiled, as there are more shapes than PyTorch compiles."""
    return not config.dynamic_shapes and recompiles(config) is not None and _needed_graphs(config) > MOST_GRAPHS


@cache
def _needed_graphs(config: TrialConfig) -> int:
    taken = islice(batches(config), config.batches)
    return len({_of_dynamic_graph(config, one) if config.dynamic_shapes else _of_graph(config, one) for one in taken})


def _of_graph(config: TrialConfig, batch: Batch) -> tuple[int, ...]:
    """What a graph without dynamic shapes takes for constant."""
    documents = len(batch.document_lengths) if config.attention == "varlen" else 0
    return *batch.shape, ceil(documents / CU_SEQLENS_MULTIPLE)  # which cu_seqlens is padded to


def _of_dynamic_graph(config: TrialConfig, batch: Batch) -> tuple[bool, ...]:
    """What a graph with dynamic shapes takes for constant: which dimensions are 1, on a GPU also what Inductor asks."""
    rows, width = batch.shape
    if config.device_type != "cuda":
        return rows == 1, width == 1
    way = ATTENTIONS.get(config.attention)
    is_aligned = bool(way and way.kernel in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION")) and width % ALIGNED == 0
    return rows == 1, width == 1, rows * width * config.d_model < FUSED_ELEMENTS, is_aligned
