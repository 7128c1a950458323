"""The work that is measured: a model, its optimizer, a batch, and the phases of one training iteration."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import nn

from lmsweep.trials.lengths.batches import Batch, batches
from lmsweep.trials.model.adapted_layers import add_adapters, trainable
from lmsweep.trials.model.annotations import Range
from lmsweep.trials.model.compiler import compile_model, ready_compiler
from lmsweep.trials.model.float8 import convert_to_float8
from lmsweep.trials.model.host_copies import save_inputs_on_host, saved_on_host
from lmsweep.trials.model.loss_functions import loss_for
from lmsweep.trials.model.optimizer import make_optimizer, raise_explained
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.transformer.attention_functions import attention_for
from lmsweep.trials.model.transformer.document_mask import positions_in_documents
from lmsweep.trials.model.transformer.flex_attention import Backend
from lmsweep.trials.model.transformer.transformer import Transformer
from lmsweep.trials.model.transformer.varied_batches import VariedBatch, varied_batches
from lmsweep.trials.model.users.users_attention import in_type_of_queries
from lmsweep.trials.model.users.users_forward import Inputs, call_model, check_devices, inputs_of, logits_of, users_loss
from lmsweep.trials.model.users.users_model import build_users_model, give_hidden, repeated_layers, vocabulary_of
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.offloads import OFFLOADS
from lmsweep.trials.spec.words import Mode
from lmsweep.trials.timing.clock import Phase

PHASES: dict[Mode, tuple[str, ...]] = {
    "forward": ("forward",),
    "train_forward": ("forward",),
    "forward_backward": ("forward", "backward"),
    "train_step": ("forward", "backward", "optimizer"),
}
"""Mode -> the phases of one iteration, in order."""


class TrainingStep:
    """A model, optimizer and batch, built once on the device."""

    def __init__(
        self,
        config: TrialConfig,
        math_mode: MathMode,
        backend: str | Backend = "inductor",
        *,
        visits_again: Callable[[], object] = lambda: None,
    ) -> None:
        """visits_again: for predictions, called before adapters or copies of weights go through all layers again."""
        device = config.device_type
        self.config = config
        self.math_mode = math_mode
        if config.compiles:
            ready_compiler(config)
        self.repeated_layers: str | None = None
        """Path and number of the repeated layers of the user's model; None if it has none."""
        self.model, self.blocks = self._build(backend)
        if config.adapter != "none":
            visits_again()
            add_adapters(self.model, self.blocks, config, math_mode)
        self._is_ours = config.model_code is None
        self._named_inputs = Inputs() if self._is_ours else inputs_of(self.model)
        self._checks_devices = not self._is_ours  # of the parts of a user's model, after the first forward
        # All layers of lmsweep's own model share the attention of the first, which gets the masks of varied batches.
        self._first_layer: Any = self.model.blocks[0].attention if isinstance(self.model, Transformer) else None
        self.loss_function = loss_for(config)
        self._head = give_hidden(self.model, str(config.model_code)) if self.loss_function.takes_hidden else None
        if math_mode.float8_recipe:
            tokens = config.micro_batch_size * config.context_length
            convert_to_float8(self.blocks, math_mode.float8_recipe, tokens=tokens)
        compile_model(self.model, self.blocks, config, backend)
        if OFFLOADS[config.offload].saved == "block_inputs":
            if self._is_ours:
                save_inputs_on_host([self.model], "run_blocks")
            else:  # each block is a checkpoint
                save_inputs_on_host(self.blocks, "forward")
        self.uses_cuda_graphs = config.records_cuda_graphs
        if math_mode.has_copies:
            visits_again()
        self.optimizer = make_optimizer(self.model, self.blocks, config) if config.mode == "train_step" else None
        self.scaler = torch.amp.GradScaler(device, enabled=math_mode.scales_gradients)
        self._micro_batches: list[VariedBatch] = []
        self._varied: Iterator[VariedBatch] = iter(())
        if config.varies:
            self.draw_from(batches(config))
            self.advance()
        # (batch, tokens); where batches vary, `forward` sets those of each batch
        shape = (0, 0) if config.varies else (config.batch_size, config.context_length)
        vocabulary = vocabulary_of(self.model, config)
        self.inputs = torch.randint(vocabulary, shape, device=device)
        self.targets = torch.randint(vocabulary, shape, device=device)
        # Kept alive from forward to the end of the iteration, like the variables of a training loop.
        self.logits: torch.Tensor | None = None
        self.loss: torch.Tensor | None = None

    def _build(self, backend: str | Backend) -> tuple[nn.Module, list[nn.Module]]:
        config, device, formats = self.config, self.config.device_type, self.math_mode
        # Frozen weights are stored in the type of operands: autocast would cast them at each use, to the same values.
        stored = formats.parameter_dtype if config.adapter == "none" else formats.operand_dtype
        if config.model_code is not None:
            users = build_users_model(config, device=device, dtype=stored)
            found = repeated_layers(users, config.blocks)
            self.repeated_layers = str(found) if found else None
            return users, found.layers if found else []
        attend = attention_for(config, device=device, dtype=formats.operand_dtype, backend=backend)
        model = Transformer(
            config.size,
            vocab_size=config.vocab_size,
            context_length=config.context_length,
            attention=in_type_of_queries(attend) if is_reference(config.attention) else attend,
            device=device,
            dtype=stored,
            checkpointing=config.checkpointing,
            is_compiled_in=config.compiles_checkpoints,
            draws_random=config.adapter_arguments.dropout > 0 or is_reference(config.attention),
            positions=positions_in_documents(config, device),
        )
        return model, list(model.blocks)

    def draw_from(self, source: Iterator[Batch]) -> None:
        vocabulary = vocabulary_of(self.model, self.config)
        self._varied = varied_batches(self.config, source, vocabulary, self.math_mode.operand_dtype)

    def advance(self) -> tuple[Batch, ...]:
        """Bring the micro-batches of the next step onto the device, and return them; none if all steps are alike."""
        if self.config.varies:
            self._micro_batches = list(islice(self._varied, self.config.accumulate))
        return tuple(one.batch for one in self._micro_batches)

    def phases(self) -> tuple[Phase, ...]:
        """The phases of one iteration, in order: forward and backward once per micro-batch. The results have one time
        for all phases of a name, their sum."""
        phases = []
        for index in range(self.config.accumulate):
            of_batch = {
                "forward": Phase(name="forward", run=partial(self.forward, index)),
                "backward": Phase(name="backward", run=partial(self.backward, index)),
            }
            phases += [of_batch[name] for name in PHASES[self.config.mode] if name in of_batch]
        if "optimizer" in PHASES[self.config.mode]:
            phases.append(Phase(name="optimizer", run=self.optimize))
        return tuple(phases)

    def forward(self, index: int = 0) -> None:
        """Compute logits (batch, tokens, vocab_size) and scalar loss of a micro-batch."""
        if self._micro_batches:
            varied = self._micro_batches[index]
            if self._first_layer is not None:
                varied.enter(self._first_layer)
            self.inputs, self.targets = varied.inputs, varied.targets
        if self.uses_cuda_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # outputs of the last iteration's graphs may be overwritten
        with (
            torch.inference_mode(self.config.mode == "forward"),
            self.math_mode.autocasting(self.config.device_type),
            saved_on_host(self.model) if OFFLOADS[self.config.offload].saved == "all" else nullcontext(),
        ):
            inputs, targets = self.micro_batch(self.inputs, index), self.micro_batch(self.targets, index)
            with Range("forward"):
                output = call_model(self.model, self._named_inputs, inputs, targets)
            result: Any = output if self._is_ours else self._logits_in(output, inputs)
            with Range("loss"):
                if self._head is not None:  # then the result is hidden states
                    self.loss = self.loss_function.function(result, self._head, targets)
                    return
                self.logits = result
                own_loss = users_loss(self._named_inputs, output)
                self.loss = self.loss_function.function(self.logits, targets) if own_loss is None else own_loss

    def _logits_in(self, output: object, inputs: torch.Tensor) -> torch.Tensor:
        logits = logits_of(output, (inputs.shape[0], inputs.shape[1]), str(self.config.model_code))
        if self._checks_devices:
            check_devices(self.model, self.inputs.device.type, str(self.config.model_code))
            self._checks_devices = False
        return logits

    def micro_batch(self, whole: torch.Tensor, index: int) -> torch.Tensor:
        """The rows of a micro-batch: (batch, tokens) to (batch / accumulate, tokens). A varied batch is one."""
        size = self.config.micro_batch_size
        is_part = self.config.accumulate > 1 and not self._micro_batches
        return whole[index * size : (index + 1) * size] if is_part else whole

    def mean_loss(self) -> torch.Tensor:
        """This micro-batch's share in the mean loss of the batch, a scalar."""
        assert self.loss is not None, "backward follows forward"
        return self.loss / self.config.accumulate if self.config.accumulate > 1 else self.loss

    def backward(self, index: int = 0) -> None:
        """Compute the gradients of all weights, added to those of the micro-batches before."""
        if self.config.zero_grad == "before_backward" and index == 0:
            self.model.zero_grad(set_to_none=True)
        with Range("loss"):
            scaled = self.scaler.scale(self.mean_loss())
        with Range("backward"):
            scaled.backward()

    def optimize(self) -> None:
        assert self.optimizer is not None, "the mode has an optimizer"
        with Range("optimizer"):
            try:
                self.scaler.step(self.optimizer)
            except Exception as error:  # noqa: BLE001 - a user's may raise anything
                raise_explained(error, self.config, trainable(self.model))
            self.scaler.update()
            if self.config.zero_grad == "after_step":
                self.optimizer.zero_grad(set_to_none=True)

    def drop(self) -> None:
        """Release the iteration's graph and gradients, so that every iteration starts alike. Not timed."""
        self.logits = self.loss = None
        if self.optimizer is None and self.config.zero_grad == "after_step":  # else `optimize` or `backward` does
            self.model.zero_grad(set_to_none=True)


WARMUP_ITERATIONS = 3
"""Iterations before the capture, on its stream, as in PyTorch's examples: kernels are chosen, state is created."""


def capture_phases(step: TrainingStep) -> tuple[Phase, ...]:
    """Capture each phase as a CUDA graph, and return phases that replay them. The graphs share one memory pool, so what
    a phase leaves for the next, such as gradients, has the same address in each replay. Raises UnsupportedError with
    PyTorch's reason if it cannot."""
    phases = step.phases()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    pool = torch.cuda.graph_pool_handle()
    graphs = []
    try:
        with torch.cuda.stream(stream):
            for _ in range(WARMUP_ITERATIONS):
                for phase in phases:
                    phase.run()
                step.drop()
        torch.cuda.synchronize()
        for phase in phases:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                phase.run()
            graphs.append(graph)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise UnsupportedError(
            f"the step cannot be captured: {str(error).strip().partition(chr(10))[0] or type(error).__name__}"
        ) from error
    torch.cuda.synchronize()
    return tuple(Phase(name=phase.name, run=graph.replay) for phase, graph in zip(phases, graphs, strict=True))
