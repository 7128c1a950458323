"""What compiled blocks save for backward, predicted without computing anything, and the figures of the course.

The course (CS336, assignment 2 of 2026) compiles a block of width 2560 with 16 heads in float32, batch 4, context 2048,
and adds up what saved_tensors_hooks sees, without parameters.
"""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.compiled.graph_memory import graph_memory
from lmsweep.trials.prediction.compiled.trial_graph import graph_config, traced_graph
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.spec.config import TrialConfig


def block_config(width: int, **fields: Any) -> TrialConfig:
    size = {"d_model": width, "d_ff": 4 * width, "num_layers": 1, "num_heads": 16, "vocab_size": 2}
    return TrialConfig(**{**size, "compile": "block", "mode": "forward_backward"} | fields)


SMALL = {"width": 64, "context_length": 32, "batch_size": 2}


def predicted(config: TrialConfig) -> float:
    """Bytes that one compiled block saves, parameters left out: its input, the rotary tables, the rest."""
    memory = graph_memory(traced_graph(graph_config(config)), block=1)
    given = 4 * config.batch_size * config.context_length * config.d_model
    tables = 2 * 4 * config.context_length * config.head_width // 2
    return given + tables + sum(math.prod(one.shape) * one.dtype.itemsize for one in memory.saved)


def measured(config: TrialConfig) -> int:
    """Bytes that forward through the blocks saves, parameters left out, each as often as it is saved."""
    step = TrainingStep(config, set_math_mode(config.precision, "cpu"))
    parameters = {weight.untyped_storage().data_ptr() for weight in step.model.parameters()}
    seen = 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        if tensor.untyped_storage().data_ptr() not in parameters:
            seen += tensor.nbytes
        return tensor.detach()

    x = torch.randn(config.batch_size, config.context_length, config.d_model, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step.model.run_blocks(x)  # type: ignore[operator]
    return seen


@pytest.mark.slow
def test_a_compiled_block_of_the_course_saves_what_the_course_prints():
    one = predicted(block_config(2560, context_length=2048, batch_size=4)) / 2**20
    assert round(one, 2) == 3651.31
    assert round(4 * one, 2) == 14605.25


@pytest.mark.slow  # compiles for the CPU
@pytest.mark.parametrize("attention", ["naive", "sdpa"])
@pytest.mark.parametrize("checkpointing", ["none", "selective"])
def test_real_compiled_blocks_save_what_is_predicted(attention: str, checkpointing: str):
    config = block_config(**SMALL, checkpointing=checkpointing)
    one = predicted(replace(config, attention=attention))
    assert measured(replace(config, attention=attention, num_layers=3)) == 3 * one
    if (attention, checkpointing) == ("naive", "selective"):  # its scores are written by no product
        assert one < 0.7 * predicted(replace(config, checkpointing="none"))


@pytest.mark.slow
def test_a_step_holds_for_each_compiled_block_that_keeps_products_what_its_graph_saves():
    kept = block_config(**SMALL, num_layers=3, checkpointing="selective")
    whole = replace(kept, checkpointing="none")
    less = predict(whole).before_backward - predict(kept).before_backward
    assert less == 3 * (predicted(whole) - predicted(kept)) > 0
