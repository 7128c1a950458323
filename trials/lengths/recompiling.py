"""Compiled code that meets batches of other shapes: how often it is compiled again."""

from functools import cache
from itertools import islice

from lmsweep.trials.lengths.batches import batches
from lmsweep.trials.spec.config import TrialConfig

MOST_GRAPHS = 8
"""Graphs of one piece of code, after which PyTorch runs it uncompiled: `recompile_limit` of `torch._dynamo.config`."""
FUSED_ELEMENTS = 5 * 2**20
"""Elements of a hidden state from which Inductor fuses reductions over both of its dimensions on a GPU: one graph with
dynamic shapes serves the batches on one side (`can_fuse`, `torch/_inductor/scheduler.py`)."""


@cache
def recompiles(config: TrialConfig) -> int | None:
    """Return how many graphs are compiled after the first one, within `batches` steps; None of code that is not
    compiled, or whose width is not known."""
    if config.compile == "none" or (config.dynamic_shapes and not config.d_model):
        return None
    shapes = {batch.shape for batch in islice(batches(config), config.batches)}
    if not config.dynamic_shapes:
        return min(len(shapes), MOST_GRAPHS) - 1
    least = FUSED_ELEMENTS // config.d_model if config.device_type == "cuda" else 0
    # Dynamo takes a dimension of one for a constant.
    return len({(rows == 1, width == 1, rows * width > least) for rows, width in shapes}) - 1


def runs_uncompiled(config: TrialConfig) -> bool:
    """Return whether most steps run uncompiled, as their shapes are more than PyTorch compiles."""
    return not config.dynamic_shapes and recompiles(config) == MOST_GRAPHS - 1
