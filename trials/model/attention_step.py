"""Attention alone: random queries, keys and values, and the phases of one iteration."""

import torch
from torch import Tensor

from lmsweep.trials.model.compiler import ready_compiler
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.transformer.attention_functions import attention_for
from lmsweep.trials.model.transformer.flex_attention import Backend
from lmsweep.trials.spec.config import TrialConfig


class AttentionStep:
    """Forward and backward through attention without projections or autocast. Queries are (batch, [heads,] tokens,
    d_head), keys and values have `num_kv_heads` heads, all of `precision`'s type."""

    def __init__(
        self,
        config: TrialConfig,
        math_mode: MathMode,
        backend: str | Backend = "inductor",
        *,
        output_dtype: torch.dtype | None = None,
    ) -> None:
        """output_dtype: type of the output; None is that of the queries."""
        if config.compiles:
            ready_compiler(config)
        self.attend = attention_for(config, device=config.device_type, dtype=math_mode.operand_dtype, backend=backend)
        if config.compilation.whole:
            self.attend = torch.compile(
                self.attend, backend=backend, mode=config.compile_mode, dynamic=config.dynamic_shapes, fullgraph=True
            )
        self.uses_cuda_graphs = config.records_cuda_graphs
        heads = (config.num_heads,) if config.num_heads else ()
        kv_heads = (config.num_kv_heads or config.num_heads,) if config.num_heads else ()
        self.shape = (config.batch_size, *heads, config.context_length, config.head_width)
        of_keys = (config.batch_size, *kv_heads, config.context_length, config.head_width)
        self._dtype, self._device = math_mode.operand_dtype, config.device_type
        self._output_dtype = output_dtype or self._dtype
        shapes = (self.shape, of_keys, of_keys)
        self.inputs = [self._random(shape).requires_grad_(config.mode != "forward") for shape in shapes]
        self.output: Tensor | None = None
        self.gradient: Tensor | None = None

    def forward(self) -> None:
        if self.uses_cuda_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # outputs of the last iteration's graphs may be overwritten
        self.output = self.attend(*self.inputs)

    def give_gradient(self) -> None:
        """Create the random gradient of the output that backward starts from."""
        self.gradient = self._random(self.shape).to(self._output_dtype)

    def backward(self) -> None:
        assert self.output is not None and self.gradient is not None, "backward follows forward and give_gradient"
        self.output.backward(self.gradient)

    def drop(self) -> None:
        """Release the output, its graph and all gradients except that of the output. Not timed."""
        self.output = None
        for tensor in self.inputs:
            tensor.grad = None

    def _random(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, dtype=self._dtype, device=self._device)
