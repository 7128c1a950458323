"""What a compiled block saves for backward, predicted and measured on this CPU, beside the figures of the course.

    python benchmarks/residuals.py --context 2048 --batch 4      # about 8 GB; the course prints 3651.31 MiB
    python benchmarks/residuals.py --context 256 --batch 1

The course (CS336, assignment 2 of 2026) compiles a block of width 2560 with 16 heads in float32, batch 4, context 2048,
and adds up what saved_tensors_hooks sees, without parameters: 3651.31 MiB for one block, 14605.25 for four, 160.00 for
four in two checkpointed groups.
"""

import argparse
import math

import torch

from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.compiled.graph_memory import graph_memory
from lmsweep.trials.prediction.compiled.trial_graph import graph_config, traced_graph
from lmsweep.trials.spec.config import TrialConfig

MIB = 2**20


def block_config(
    *, context: int, batch: int, width: int = 2560, layers: int = 1, checkpointing: str = "none"
) -> TrialConfig:
    """Return the configuration of blocks like the course's, which have a width of 2560."""
    return TrialConfig(
        d_model=width,
        d_ff=4 * width,
        num_layers=layers,
        num_heads=16,
        vocab_size=2,
        context_length=context,
        batch_size=batch,
        compile="block",
        mode="forward_backward",
        checkpointing=checkpointing,
    )


def predicted(config: TrialConfig) -> float:
    """Return the bytes that one compiled block saves, parameters left out: its input, the rotary tables, the rest."""
    memory = graph_memory(traced_graph(graph_config(config)), block=1)
    given = 4 * config.batch_size * config.context_length * config.d_model
    tables = 2 * 4 * config.context_length * config.head_width // 2
    return given + tables + sum(math.prod(one.shape) * one.dtype.itemsize for one in memory.saved)


def measured(config: TrialConfig) -> int:
    """Return the bytes that forward through the blocks saves, parameters left out, each as often as it is saved."""
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


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--context", type=int, default=2048)
    options.add_argument("--batch", type=int, default=4)
    options.add_argument("--four", action="store_true", help="also four blocks, which hold four times as much")
    chosen = options.parse_args()
    shape = {"context": chosen.context, "batch": chosen.batch}
    one = predicted(block_config(**shape))
    kept = 4 * chosen.batch * chosen.context * 2560
    print(
        f"predicted MiB: one block {one / MIB:.2f}, four {4 * one / MIB:.2f}, checkpointed by two {2 * kept / MIB:.2f}"
    )
    print(f"measured MiB: one block {measured(block_config(**shape)) / MIB:.2f}", flush=True)
    grouped = measured(block_config(**shape, layers=4, checkpointing="2"))
    print(f"measured MiB: checkpointed by two {grouped / MIB:.2f}", flush=True)
    if chosen.four:
        print(f"measured MiB: four blocks {measured(block_config(**shape, layers=4)) / MIB:.2f}")


if __name__ == "__main__":
    main()
