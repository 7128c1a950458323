"""The residuals of one transformer block: the tensors that autograd saves for its backward."""

from collections import Counter
from collections.abc import Mapping

from lmsweep.trials.memory.ledger import Label
from lmsweep.trials.results.measurement import Residual


def residual_rows(kept: Mapping[int, Label]) -> list[Residual]:
    """Return the residuals of the first block that saves any, equal ones counted together, the largest sum first.

    kept: the labels of what autograd saves. All blocks of a model save the same. A storage that is saved several times
    is one residual, so the rows add up to the block's `saved`. Weights are left out; their casts are not.
    """
    blocks = [label.block for label in kept.values() if label.block is not None]
    first = min(blocks, default=None)
    count = Counter((label.tensor, label.bytes) for label in kept.values() if label.block == first and label.tensor)
    if first is None:
        return []
    order = sorted(count, key=lambda kind: -kind[1] * count[kind])
    return [
        Residual(
            rank=rank,
            block=first,
            bytes=size,
            count=count[tensor, size],
            shape="x".join(map(str, tensor.shape)),
            dtype=tensor.dtype,
            operator=tensor.operator,
            line=tensor.line,
            function=tensor.function,
        )
        for rank, (tensor, size) in enumerate(order, start=1)
        if tensor
    ]
