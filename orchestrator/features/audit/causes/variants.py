"""A step with one thing otherwise: what its operators would be with another attention, type, memory or GPU."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

from lmsweep.orchestrator.features.audit.prediction import Run
from lmsweep.orchestrator.predicting.predicted_step import predicted_step
from lmsweep.trials.analytic.datasheets import DEVICES, Device, device_named, host_link
from lmsweep.trials.analytic.rates.operators import PRODUCTS, Operator, Operators, class_of
from lmsweep.trials.analytic.rates.rate_set import Rates, rates_of

FAST_ATTENTION = {
    "_scaled_dot_product_flash_attention": "sdpa_cudnn",
    "_scaled_dot_product_flash_attention_backward": "sdpa_cudnn_backward",
}
PASSES_OVER_SCORES = {"forward": 6.0, "backward": 8.0}
"""Phase -> how often attention that is written out reads or writes its scores: scale, mask, softmax, dropout or cast,
and as operands of products."""
OTHER_FORMS = {
    "H100 SXM": ("H100 PCIe", "H100 NVL"),
    "H200 SXM": ("H200 NVL",),
    "A100 SXM 80GB": ("A100 PCIe 80GB", "A100 PCIe 40GB"),
    "A100 SXM 40GB": ("A100 PCIe 40GB",),
    "V100 SXM 32GB": ("V100 PCIe 32GB",),
    "V100 SXM 16GB": ("V100 PCIe 16GB",),
    "RTX PRO 6000 Blackwell Workstation": ("RTX PRO 6000 Blackwell Server",),
}
"""GPU -> the cards with its chip."""
WHOLE_SAVED = 34.0
"""Bytes of a token and layer that forward saves, over the width (Korthikanti et al. 2022, without scores)."""


def ratio(run: Run, change: Callable[[Operators], Operators], rates: Rates | None = None) -> float:
    """Return the seconds of the changed step over those of this one."""
    changed = predicted_step(change(run.operators), run.config, rates or run.rates)
    time, base = changed.ranks or changed.time, run.step.ranks or run.step.time
    return time.at(run.step.others.factor) / base.at(run.step.others.factor)


def with_fast_attention(operators: Operators, rates: Rates) -> Operators:
    """Return the operators with cuDNN's attention, as fast as FlashAttention 3, where the GPU has it."""
    if rates.hardware.device.chip.compute < (9, 0):
        return operators
    return tuple(replace(one, name=FAST_ATTENTION.get(one.name, one.name)) for one in operators)


def with_written_out_attention(operators: Operators) -> Operators:
    """Return the operators with attention by products and a softmax, as the math kernel and `eager` have it."""
    return tuple(part for one in operators for part in (_written_out(one) if class_of(one) == "attention" else [one]))


def _written_out(one: Operator) -> Iterator[Operator]:
    query = next((shape for shape in one.shapes if len(shape) == 4), None)
    if query is None:
        yield one
        return
    batch, heads, context, width = query
    is_backward = "backward" in one.name
    scores = batch * heads * context * context
    product = replace(
        one,
        name="bmm",
        shapes=((batch * heads, context, width), (batch * heads, width, context)),
        flops=2 * scores * width,
        bytes=2 * (scores + 2 * batch * heads * context * width),
        layout="",
    )
    for _ in range(4 if is_backward else 2):
        yield product
    passes = PASSES_OVER_SCORES["backward" if is_backward else "forward"]
    yield replace(one, name="mul", shapes=((scores,),), flops=0, bytes=round(passes * 2 * scores), layout="")


def in_dtype(dtype: str) -> Callable[[Operators], Operators]:
    """Return a change: all products of 16 bits in `float32` or `tf32`."""

    def change(operators: Operators) -> Operators:
        return tuple(
            replace(one, dtype=dtype, bytes=2 * one.bytes, name="mm" if one.name == "_scaled_mm" else one.name)
            if one.name in PRODUCTS and one.dtype in ("bfloat16", "float16", "float8_e4m3fn")
            else one
            for one in operators
        )

    return change


def experts_in_float32(operators: Operators) -> Operators:
    """Return the operators with the experts' products in float32."""
    changed = in_dtype("float32")
    return tuple(changed((one,))[0] if "experts" in one.module else one for one in operators)


def without_gradients_of_weights(operators: Operators) -> Operators:
    """Return the operators of a step that trains no more than a small share of the weights: half of the products of
    backward, no optimizer."""
    halved = (
        replace(one, count=max(1, one.count // 2)) if _is_halved(one) else one
        for one in operators
        if one.phase != "optimizer" and one.name != "reduce_scatter"
    )
    return tuple(halved)


def _is_halved(one: Operator) -> bool:
    return one.phase == "backward" and one.name in PRODUCTS and not one.is_again and one.count > 1


def computed_again(operators: Operators) -> Operators:
    """Return the operators with the blocks of forward once more in backward: full activation checkpointing."""
    again = (
        replace(one, phase="backward", is_again=True)
        for one in operators
        if one.phase == "forward" and one.count > 1 and one.stream == "compute"
    )
    return (*operators, *again)


def offloaded_seconds(run: Run) -> tuple[float, float]:
    """Return the seconds by which a step is longer if the host keeps what forward saves, or the optimizer's state."""
    config, device = run.config, run.rates.hardware.device
    weights = sum(prod(shape) for one in run.operators if one.phase == "optimizer" for shape in one.shapes[:1])
    saved = WHOLE_SAVED * config.batch_size * config.context_length * config.d_model * (config.num_layers or 1)
    moved = weights * 6 / host_link(device) + run.rates.hardware.host_seconds("lmsweep::update_on_host", 4 * weights)
    return 2 * saved / host_link(device), moved


def launch_bound_factor(run: Run) -> float:
    """Return how many times faster a step seems to be if only its launches are timed."""
    time = run.step.ranks or run.step.time
    return max(2.0, run.seconds / max(1e-6, time.launching))


def on_other_device(run: Run, name: str) -> float | None:
    """Return the seconds on another GPU over those on this one; None without a datasheet."""
    device = device_named(name)
    if device is None or (run.config.world_size > 1 and not rates_of(device).connects(min(8, run.config.world_size))):
        return _by_peak(run, device) if device else None
    return ratio(run, lambda operators: operators, rates_of(device))


def _by_peak(run: Run, device: Device) -> float:
    here = run.rates.hardware.device
    return math.sqrt(
        (here.bf16 or here.fp16) / (device.bf16 or device.fp16) * here.bytes_per_second / device.bytes_per_second
    )


def sold_alike(device: Device) -> list[str]:
    """Return the GPUs for which one is taken by mistake: other forms of its chip, the generation before and after."""
    neighbours = {"H100 SXM": ["A100 SXM 80GB", "H200 SXM"], "H200 SXM": ["H100 SXM"], "B200 SXM": ["H200 SXM"],
                  "A100 SXM 80GB": ["H100 SXM", "V100 SXM 32GB"]}  # fmt: skip
    names = {one.name for one in DEVICES}
    return [name for name in neighbours.get(device.name, []) if name in names]
