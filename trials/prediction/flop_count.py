"""FLOPs of a step with the user's own model, counted without computing anything.

As in the closed forms for lmsweep's own model: matrix products and convolutions, two per multiply-add, attention over
all pairs of positions even with a causal mask, and nothing that is computed again.
"""

from dataclasses import replace
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from lmsweep.trials.code.importing import nothing_cached
from lmsweep.trials.code.traceback_text import CodeError
from lmsweep.trials.machine.torch_private import GROUPED_MM, TorchDispatchMode, all_overloads, unset_random_weights
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.without_device.fake_run import Fakes, unpacked_batches
from lmsweep.trials.spec.config import RequestError, StepFlops, TrialConfig, UnsupportedError


def count_flops(config: TrialConfig) -> StepFlops:
    """Count the FLOPs of the configuration's model. They are unknown if that needs values or custom kernels."""
    has_backward = config.mode in ("forward_backward", "train_step")
    mode: Any = "forward_backward" if has_backward else config.mode
    counted = replace(
        config,
        mode=mode,
        batch_size=config.micro_batch_size,
        accumulate=1,
        device="cpu",
        precision="fp32",
        attention="sdpa" if config.attention.startswith("sdpa") or config.attention == "flex" else config.attention,
        optimizer="adamw_fused",
        compile="none",
        compile_mode="default",
        dynamic_shapes=False,
        capture="none",
        checkpointing="none",
        zero_grad="after_step",
    )
    kernels = _CustomKernels()
    try:
        with nothing_cached(), unpacked_batches(config), sdpa_kernel(SDPBackend.MATH), kernels, Fakes():
            with unset_random_weights():
                step = TrainingStep(counted, MathMode())
            counts = []
            for phase in step.phases():
                with FlopCounterMode(display=False, custom_mapping=_MORE) as counter:
                    phase.run()
                counts.append(config.accumulate * counter.get_total_flops())
    except (UnsupportedError, RequestError, CodeError) as error:
        return StepFlops(reason=str(error))
    except Exception as error:  # noqa: BLE001 - whatever the user's model raises without values is the reason
        said = str(error).strip().splitlines()
        words = f"{type(error).__name__}: {said[0] if said else ''}"
        return StepFlops(reason=f"an operation cannot run without values: {words}")
    if kernels.found:
        return StepFlops(reason=f"FLOPs of the custom operators {', '.join(sorted(kernels.found))} are not declared")
    return StepFlops(forward=counts[0], backward=counts[1] if has_backward else None)


class _CustomKernels(TorchDispatchMode):
    """A context that notes operators that are not PyTorch's and have no FLOP formula."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch does not annotate it
        self.found: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace not in _NAMESPACES and all_overloads(func) not in flop_registry:
            self.found.add(str(all_overloads(func)))
        return func(*args, **(kwargs or {}))


_NAMESPACES = ("aten", "prim", "prims", "profiler", "_c10d_functional")


def _grouped_flops(a: Any, b: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    """Two per multiply-add: each row of a (rows, inner) meets one of the matrices b (groups, inner, outer); or, for the
    gradient of the matrices, a (outer, rows) meets b (rows, inner)."""
    return int(2 * a[-2] * a[-1] * b[-1])


_MORE = {all_overloads(GROUPED_MM): _grouped_flops}
"""Operators that PyTorch's counter does not know."""
