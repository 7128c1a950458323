"""The workload `precision`: what each number format does to sums, to the types of a step's tensors, and to results."""

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lmsweep.orchestrator.features.precision.reference_pass import (
    ReferencePass,
    by_part,
    make_reference,
    relative_error,
    scaled_gradients,
    underflow,
    unscaled_gradients,
)
from lmsweep.orchestrator.features.precision.tensor_dtypes import dtypes_of, emulated_dtypes, toy_dtypes, watch_outputs
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.model.compiler import check_compiled
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.attention_support import check_attention
from lmsweep.trials.results.measurement import Measurement, TensorDtype, one_number

NARROW = (torch.float16, torch.bfloat16)

PUBLISHED_ADDEND, PUBLISHED_COUNT = 0.01, 1000
"""The addend and its count in the experiment of the CS336 assignment; the exact sum is 10."""

PUBLISHED_ACTIVATION = 1e3
"""The elements in the published example of RMSNorm; their squares exceed 65504, the largest float16."""

SHORT_NAMES = {torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def measure(bench: Workbench) -> Iterator[Measurement | TensorDtype]:
    """Yield sums and norms in several formats, then the types and errors of a step in the trial's precision."""
    config, math_mode = bench.config, bench.math_mode
    check_attention(config, math_mode.operand_dtype, gradients=True)
    bench.clear()  # a model of an earlier workload would take memory
    with bench.account("measured"):
        yield from _sums(config.device_type)
        yield from _norms(config.device_type)
        yield from toy_dtypes(math_mode, config.device_type)
        if config.device_type != "cuda":
            yield from emulated_dtypes(config, math_mode)
    torch.manual_seed(0)  # the same weights and batch, whatever ran before
    step = TrainingStep(replace(config, mode="forward_backward"), math_mode)
    if config.model_code is not None:
        step.model.eval()  # without dropout, whose random choices are no rounding
    if config.compiles:
        with bench.account("compile"):
            step.forward()
            step.backward()
        check_compiled(cuda_graphs=step.uses_cuda_graphs)
        step.drop()
    with bench.account("measured"):
        yield from _errors(step, make_reference(step))


def _sums(device: str) -> Iterator[Measurement]:
    # Both narrow types have the variant that is all float32: it runs once.
    ways = dict.fromkeys(way for narrow in NARROW for way in accumulations(narrow))
    for way in ways:
        total = way.run(addend=PUBLISHED_ADDEND, count=PUBLISHED_COUNT, device=device)
        yield number("accumulation", way.name, total)


def _norms(device: str) -> Iterator[Measurement]:
    for dtype in (torch.float32, *NARROW):
        value = reciprocal_rms(PUBLISHED_ACTIVATION, dtype, device=device)
        yield number("reciprocal_rms", SHORT_NAMES[dtype], value)
    for dtype in NARROW:
        value = reciprocal_rms(PUBLISHED_ACTIVATION, dtype, upcast=True, device=device)
        yield number("reciprocal_rms", f"{SHORT_NAMES[dtype]}_cast", value)


def _errors(step: TrainingStep, exact: ReferencePass) -> Iterator[Measurement | TensorDtype]:
    """Yield the errors of the step's gradients, logits and loss against float64, and its dtypes."""
    # The outputs of a compiled model's layers are fused with their consumers and have no types.
    eager = step.config.compile == "none"
    watching: AbstractContextManager[dict[str, torch.dtype]] = watch_outputs(step.model) if eager else nullcontext({})
    with watching as outputs:  # each of these functions runs the step; its logits and loss are those of the last run
        if step.math_mode.scales_gradients:
            yield from _gradient_errors("unscaled_gradients", unscaled_gradients(step), exact)
            scale, gradients = scaled_gradients(step)
            yield number("gradients", "loss_scale", scale)
        else:
            gradients = unscaled_gradients(step)
    yield from _gradient_errors("gradients", gradients, exact)
    for part, names in by_part(gradients).items():
        mine, references = ([tensors[name] for name in names] for tensors in (gradients, exact.gradients))
        yield number(f"{part}_gradients", "relative_error", relative_error(mine, references))
    assert step.loss is not None
    if step.logits is not None:  # else the loss computes the logits itself, a part at a time
        assert exact.logits is not None, "a loss of the user's takes the same in both"
        yield number("logits", "relative_error", relative_error([step.logits], [exact.logits]))
    yield number("loss", "relative_error", relative_error([step.loss], [exact.loss]))
    yield from dtypes_of(
        step.model,
        outputs,
        step.logits,
        step.loss,
        subject="transformer" if step.config.model_code is None else "own",
        rules=step.config.device_type,  # the autocast rules of this kind of device
    )


def _gradient_errors(phase: str, gradients: Mapping[str, Tensor], exact: ReferencePass) -> Iterator[Measurement]:
    both = (gradients.values(), [exact.gradients[name] for name in gradients])
    yield number(phase, "relative_error", relative_error(*both))
    yield number(phase, "underflow", underflow(*both))


def number(phase: str, metric: str, value: float) -> Measurement:
    """A measurement of one number without a unit; null if the arithmetic overflowed."""
    known = value if math.isfinite(value) else None
    return one_number(phase, metric, "1", known, "not finite: the arithmetic overflowed")


@dataclass(frozen=True, kw_only=True)
class Accumulation:
    accumulator: torch.dtype
    addend: torch.dtype
    casts: bool = False
    """Whether addends are cast to the accumulator's type first, rather than left to PyTorch's type promotion."""

    @property
    def name(self) -> str:
        """Accumulator, addend, and `cast` if addends are cast: `fp32_fp16_cast`."""
        return "_".join([SHORT_NAMES[self.accumulator], SHORT_NAMES[self.addend], *(["cast"] if self.casts else [])])

    def run(self, *, addend: float, count: int, device: str = "cpu") -> float:
        """Add `addend` to zero `count` times, one addition after the other."""
        total = torch.zeros((), dtype=self.accumulator, device=device)
        term = torch.tensor(addend, dtype=self.addend, device=device)
        for _ in range(count):
            total += term.to(self.accumulator) if self.casts else term
        return total.item()


def accumulations(narrow: torch.dtype) -> tuple[Accumulation, ...]:
    """Return the experiment's variants: all wide, all narrow, narrow addends to a wide sum, and those cast first."""
    wide = torch.float32
    return (
        Accumulation(accumulator=wide, addend=wide),
        Accumulation(accumulator=narrow, addend=narrow),
        Accumulation(accumulator=wide, addend=narrow),
        Accumulation(accumulator=wide, addend=narrow, casts=True),
    )


def reciprocal_rms(value: float, dtype: torch.dtype, *, upcast: bool = False, device: str = "cpu") -> float:
    """1 / sqrt(mean(x²)) of equal elements, as RMSNorm computes it; `upcast`: x is float32 before it is squared."""
    x = torch.full((16,), value, dtype=dtype, device=device)
    if upcast:
        x = x.float()
    return torch.rsqrt(x.square().mean()).item()
