"""Stand-ins for compiled parts of a model, which allocate as their graphs would."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lmsweep.trials.prediction.compiled.graph_memory import GraphMemory, Layout
from lmsweep.trials.prediction.without_device.allocation_trace import Recorder


def as_compiled(memory: GraphMemory, recorder: Recorder) -> Callable[..., Tensor]:
    """A function of the graph's inputs, that allocates as the compiled graph would."""

    def call(*inputs: Tensor) -> Tensor:
        result: Tensor = _Call.apply(memory, recorder, *inputs)  # type: ignore[no-untyped-call]  # not annotated
        return result

    return call


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, memory: GraphMemory, recorder: Recorder, *inputs: Tensor) -> Tensor:
        ctx.memory, ctx.recorder = memory, recorder
        pieces = recorder.play(memory.forward, (), memory.products[0])
        with recorder.giving([pieces[number] for number in memory.made]):
            output = _make(memory.output)
            saved = [_make(layout) for layout in memory.saved]
        ctx.save_for_backward(*(inputs[i] for i in memory.saved_inputs), *saved)
        return output

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        memory: GraphMemory = ctx.memory
        kept = ctx.saved_tensors
        pieces = ctx.recorder.play(memory.backward, [kept[place] for place in memory.owned], memory.products[1])
        with ctx.recorder.giving([pieces[number] for number in memory.made_by_backward]):
            return None, None, *(layout and _make(layout) for layout in memory.gradients)


def _make(layout: Layout) -> Tensor:
    return torch.empty(layout.shape, dtype=layout.dtype, device="cpu")
