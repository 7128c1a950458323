"""The operators of one iteration, with what each computes and moves, as seen at PyTorch's dispatcher."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.flop_counter import flop_registry

from lmsweep.trials.analytic.flop_conventions import BACKWARD_OF_ATTENTION
from lmsweep.trials.analytic.packed_scores import least_share_of_scores
from lmsweep.trials.analytic.rates.operators import ELEMENT_WISE, PRODUCTS, Operator, Operators, Phase, Shape
from lmsweep.trials.machine.torch_private import (
    OpOverload,
    all_overloads,
    backward_node,
    latest_number,
    number_of,
    positional_names,
    returns_view,
    schema_name,
    written_places,
)
from lmsweep.trials.memory.storage_tracker import with_storage
from lmsweep.trials.prediction.without_device.fused_kernels import Seen, Storage, fused
from lmsweep.trials.prediction.without_device.moved_bytes import moved_bytes
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import CAUSAL, is_reference
from lmsweep.trials.spec.ways.attentions import ATTENTIONS
from lmsweep.trials.spec.ways.losses import COMPILED_LOSSES

_PHASES: dict[str, Phase] = {  # phase of a trace -> that of its operators
    "forward": "forward",
    "backward": "backward",
    "synchronization": "backward",
    "optimizer": "optimizer",
}

_FREE = re.compile(
    r"detach|alias|is_same_size|empty|new_empty|empty_like|empty_strided|new_empty_strided|_unsafe_view|lift_fresh|item"
    r"|_local_scalar_dense|promote_types|result_type|resize_|set_|record_stream|wait_tensor|barrier|sym_\w+|_version"
    r"|device"
)
"""Operators that launch no kernel."""

SECTOR = 32
"""Minimum number of bytes that a GPU reads at once. Elements that are nearer to each other share a sector."""
FEW_COLUMNS = 256
"""A sum over rows of at most this many columns occupies few multiprocessors: heads have so few, whole rows more."""


class OperatorLog:
    """Collects the operators that a storage tracker sees in an iteration; `begin` starts a phase."""

    def __init__(self, config: TrialConfig) -> None:
        self._attention = _Attention(config)
        self._sharing_host = config.ranks_per_node  # ranks whose updates share the host's memory
        self._phase: Phase | None = None
        self._paths: dict[int, str] = {}
        """Module -> its path."""
        self._running: list[str] = []  # paths of modules, each called by the one before
        self._made_by: dict[int, str] = {}
        """Number of a node of autograd's graph -> the path of the module that made it."""
        self._latest = ""  # path that the latest operator belongs to
        self._freed: dict[int, int] = {}
        """Number of a storage -> how many storages with this number were freed."""
        self.seen: list[Seen] = []
        """Operators of this iteration."""

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """A context in which the log records which module of the model runs."""
        self._paths = {id(module): name for name, module in model.named_modules()}

        def enter(module: nn.Module, *_: object) -> None:
            self._running.append(self._paths.get(id(module)) or (self._running[-1] if self._running else ""))

        def leave(*_: object) -> None:
            self._running.pop()

        with register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True):
            yield

    def begin(self, phase: str) -> None:
        """Start a phase. Operators of `init` and `dropped` are not collected."""
        self._phase = _PHASES.get(phase)
        self._running.clear()

    def begin_iteration(self) -> None:
        self.seen.clear()
        self._made_by.clear()

    def freed(self, storage: int) -> None:
        """Note that a storage is freed, whose number another one may get."""
        self._freed[storage] = self._freed.get(storage, 0) + 1

    def operated(self, func: OpOverload, args: Sequence[object], result: object) -> None:
        known = known_of(func) if self._phase else None
        if self._phase is None or known is None:
            return
        moved = moved_bytes(known.name, known.written, args, result)
        if moved is None:  # of a subclass of Tensor: no mode sees what a DTensor computes on this rank's part
            args, result = cast(Sequence[object], local_parts(tuple(args))), local_parts(result)
            moved = moved_bytes(known.name, known.written, args, result)
        if moved is None:
            return
        path, again = self._place()
        module, block = places_of(path)
        operator = Operator(
            name=known.name,
            shapes=moved.shapes,
            dtype=moved.dtype,
            bytes=moved.bytes,
            flops=known.flops(moved.shapes, result),
            phase=self._phase,
            module=module,
            is_again=again,
            layout=layout_of(known.name, args, result),
        )
        if known.communicates:
            collective = _collective(operator, func, args, result)
            if collective is None:
                return
            operator = collective
        elif "attention" in known.name:
            operator = self._attention.of(operator, dict(zip(positional_names(func), args, strict=False)))
        elif known.name == "lmsweep::update_on_host":
            operator = replace(operator, ranks=self._sharing_host)
        self.seen.append(Seen(operator, block, self._numbered(moved.read), self._numbered(moved.wrote)))

    def _numbered(self, moved: tuple[tuple[int, int], ...]) -> tuple[tuple[Storage, int], ...]:
        return tuple(((storage, self._freed.get(storage, 0)), size) for storage, size in moved)

    def operators(self, compiled: TrialConfig | None = None, seen: Sequence[Seen] | None = None) -> Operators:
        """Return the operators of the iteration, with equal ones combined. compiled: a configuration whose compiled
        operators are fused into the compiler's kernels. seen: operators to take instead of this iteration's."""
        seen = self.seen if seen is None else seen
        ran: Iterable[Operator] = (one.operator for one in seen)
        if compiled:
            way, compiles_loss = compiled.compilation, compiled.loss in COMPILED_LOSSES

            def is_compiled(operator: Operator) -> bool:
                if operator.module in ("loss", "optimizer"):
                    return compiles_loss and operator.module == "loss"
                return way.whole or (way.each_block and ".*" in operator.module)

            ran = fused(seen, is_compiled, across_layers=way.whole)
        return tuple(replace(one, count=count) for one, count in Counter(ran).items())

    def _place(self) -> tuple[str, bool]:
        """The path of the module that an operator belongs to, and whether a checkpoint recomputes it.

        An operator of backward belongs to the module that made its node of autograd's graph. If its node is unknown,
        it belongs to the module of the operator before.
        """
        if self._phase == "optimizer":
            return "optimizer", False
        node = backward_node()
        if self._running:
            path = self._running[-1]
            again = self._phase == "backward"  # in which only a checkpoint calls modules
        elif node is None:
            path, again = "loss", False
        else:
            path, again = self._made_by.get(number_of(node), self._latest), False
        if torch.is_grad_enabled():  # the latest node is its own, or an earlier operator's, which keeps its path
            self._made_by.setdefault(latest_number(), path)
        self._latest = path
        return path, again


def _collective(operator: Operator, func: OpOverload, args: Sequence[object], result: object) -> Operator | None:
    """Return an operator that communicates as the collective that it starts; None if it starts none."""
    from lmsweep.trials.distributed.ranks.comm_count import message_of

    message = message_of(func, args, result)
    if message is None:
        return None
    ranks = message.ranks
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    return replace(
        operator, name=message.kind, bytes=message.size, stream="communication", ranks=len(ranks), stride=stride
    )


def local_parts(given: object) -> object:
    """Return arguments or a result with this rank's part in place of each DTensor."""
    if isinstance(given, Tensor):
        return with_storage(given)
    return tuple(map(local_parts, given)) if isinstance(given, (list, tuple)) else given


def layout_of(name: str, args: Sequence[object], result: object) -> str:
    """Return `Operator.layout`, where its words are explained, of an operator with these arguments."""
    operands = [one for one in args if isinstance(one, Tensor)]
    if name in PRODUCTS:
        matrices = [one for one in operands if one.dim() > 1][:2]
        return "".join("n" if one.stride()[-1] == 1 else "t" for one in matrices)
    if not isinstance(result, Tensor) or result.numel() < 2:
        return ""
    if name == "sum" and result.numel() <= FEW_COLUMNS and result.shape[-1:] == operands[0].shape[-1:]:
        return "columns"
    return _layout_of_elements(name, operands, result) if name in ELEMENT_WISE else ""


def _layout_of_elements(name: str, operands: Sequence[Tensor], result: Tensor) -> str:
    read = [one for one in operands if one.numel() > 1]
    steps = _strides(result, result)
    fastest = steps.index(min(steps))  # the dimension along which neighbours of the result are side by side
    for one in read:
        step = _strides(one, result)[fastest]
        if step > steps[fastest] and step * one.element_size() >= SECTOR:
            return "transposed"  # they are in several sectors of this operand
    is_strided = any(_strides(one, result) != steps for one in read)
    is_cast = name != "copy_" and len({one.dtype for one in read if one.is_floating_point()}) > 1
    words = (("strided", is_strided), ("cast", is_cast))
    return "_".join(word for word, applies in words if applies)


def _strides(operand: Tensor, result: Tensor) -> tuple[int, ...]:
    """Return an operand's steps, in elements (0: broadcast), along the result's dimensions with several elements."""
    missing = result.dim() - operand.dim()
    shape, strides = (1,) * missing + tuple(operand.shape), (0,) * missing + operand.stride()
    steps = [stride if size > 1 else 0 for stride, size in zip(strides, shape, strict=True)]
    return tuple(step for step, size in zip(steps, result.shape, strict=True) if size > 1)


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of an operator from its schema."""

    name: str
    written: tuple[int, ...]
    """Places of the arguments that it writes."""
    communicates: bool
    flops: Callable[[tuple[Shape, ...], object], int]
    """Takes the shapes of its inputs, and its result. Attention's are counted where the kernel is chosen."""


@cache
def known_of(func: OpOverload) -> Known | None:
    """Return what is known of an operator; None if it launches no kernel."""
    namespace, _, name = schema_name(func).partition("::")
    communicates = namespace in ("c10d", "_c10d_functional")
    if namespace in ("prim", "prims", "profiler") or (not communicates and returns_view(func)) or _FREE.fullmatch(name):
        return None
    written = written_places(func)
    if namespace != "aten" and not communicates:
        name = f"{namespace}::{name}" if "attn" not in name else name.strip("_").replace("attn", "attention")
    return Known(name=name, written=written, communicates=communicates, flops=_flops_of(func, name))


def _flops_of(func: OpOverload, name: str) -> Callable[[tuple[Shape, ...], object], int]:
    if name in ("_grouped_mm", "_scaled_grouped_mm"):

        def grouped(shapes: tuple[Shape, ...], _: object) -> int:
            # Each row meets the weights of its group alone: (m, k) and (g, k, n) take 2mkn, a batch (g, m, k) 2gmkn.
            # Of weights (k, n), groups divide k or n, so that rows (m, k) or (g, m, k) take 2mkn.
            rows, weights = shapes[0], shapes[1]
            return 2 * prod(rows if len(weights) == 3 else rows[-2:]) * weights[-1]

        return grouped
    if name in ("mm", "bmm", "addmm", "baddbmm", "_scaled_mm"):
        count = flop_registry[all_overloads(func)]
        return lambda shapes, _: int(count(*shapes))
    # PyTorch's count of a convolution's backward takes no notice of groups.
    return _convolution if name.startswith("convolution") else lambda *_: 0


def _convolution(shapes: tuple[Shape, ...], result: object) -> int:
    """Two FLOPs per multiply-add: each element of the output meets one filter, in backward once for each gradient."""
    if isinstance(result, Tensor):  # forward: input, weight
        filter_size = prod(shapes[1][1:])
        return 2 * result.numel() * filter_size
    gradient, _, weight = shapes[:3]
    each = 2 * prod(gradient) * prod(weight[1:])
    return each * sum(one is not None for one in cast(tuple[object, ...], result)[:2])


class _Attention:
    """Which kernel of attention a GPU runs, and what it computes."""

    def __init__(self, config: TrialConfig) -> None:
        self._config, self._of_gpu = config, ""  # the GPU's kernel, if another stands in for it
        if config.device_type == "cuda" and config.attention == "flex":
            self._of_gpu = "flex_attention"
        elif config.device_type == "cuda" and not is_reference(config.attention):
            self._of_gpu = "sdpa_cudnn" if ATTENTIONS[config.attention].uses_cudnn else ""

    def of(self, operator: Operator, args: Mapping[str, object]) -> Operator:
        """Return an operator of attention as the GPU's, with the shapes of query, key and value, and its FLOPs."""
        name, shapes = operator.name, operator.shapes
        is_varlen, is_backward = name.startswith("varlen"), "backward" in name
        if is_varlen:  # all sequences in one: (tokens, heads, d_head)
            shapes = tuple((1, one[1], one[0], one[2]) if len(one) == 3 else one for one in shapes)
        shapes = shapes[:4] if is_backward else shapes[:3]  # backward: first the gradient of the output
        query, key, value = shapes[-3:]
        causal = is_varlen or any(args.get(flag) is True for flag in CAUSAL)
        share = self._share_of_scores(key[2], is_varlen=is_varlen, causal=causal)
        passes = BACKWARD_OF_ATTENTION["hardware"] if is_backward else 1
        scores = query[1] * query[2] * key[2]
        flops = query[0] * int(passes * share * 2 * scores * (query[3] + value[3]))
        kernel = self._kernel_name(name, is_masked=args.get("attn_bias") is not None)
        return replace(operator, name=kernel, shapes=shapes, flops=flops, is_causal=causal)

    def _share_of_scores(self, keys: int, *, is_varlen: bool, causal: bool) -> float:
        """Return the scores that are computed, over those of each query with each of the `keys` of the call."""
        config = self._config
        share = (1 + 1 / keys) / 2 if causal else 1.0  # of n x n scores, n (n + 1) / 2
        is_packed = config.attention in ("flex", "varlen") and (config.window or config.document_length)
        if is_packed:
            share = least_share_of_scores(config)
        if is_packed or is_varlen:  # until here, of a sequence; varlen's keys are those of the whole batch
            share /= keys / config.context_length
        return share

    def _kernel_name(self, name: str, *, is_masked: bool) -> str:
        """Return the name of the GPU's kernel. Without the device, FlashAttention stands in for cuDNN's kernel, unless
        there is a mask, which it does not take; and any fused kernel stands in for FlexAttention."""
        if "cudnn" in name and is_masked:
            kernel = "sdpa_cudnn_masked"
        elif self._of_gpu == "flex_attention" or (self._of_gpu and "flash" in name):
            kernel = self._of_gpu
        else:
            return name
        return f"{kernel}_backward" if "backward" in name else kernel


@cache
def places_of(path: str) -> tuple[str, str]:
    """Return the path of a module with layers as `*`, and the path of its layer, by number; empty outside of layers.
    Of `blocks.3.module.experts.0` these are `blocks.*.experts.*` and `blocks.3`."""
    words = re.sub(r"(^|\.)(_checkpoint_wrapped_module|_fsdp_wrapped_module|module)(?=\.|$)", "", path).strip(".")
    layer = re.match(r".*?\.\d+(?=\.|$)", words)
    return re.sub(r"\.\d+(?=\.|$)", ".*", words), layer[0] if layer else ""
