"""How much longer a step takes with other operators, with offloading to the host, or on another GPU."""

import math
from collections.abc import Callable
from math import prod

from lmsweep.orchestrator.cluster.planned_nodes import USUAL_GPUS
from lmsweep.orchestrator.features.audit.prediction import Run, with_communication
from lmsweep.orchestrator.predicting.predicted_step import predicted_step
from lmsweep.trials.analytic.datasheets import Device, host_link
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.analytic.rates.rate_set import Rates, rates_of

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
SOLD_ALIKE = {
    "H100 SXM": ("A100 SXM 80GB", "H200 SXM"),
    "H200 SXM": ("H100 SXM",),
    "B200 SXM": ("H200 SXM",),
    "A100 SXM 80GB": ("H100 SXM", "V100 SXM 32GB"),
}
"""GPU -> those of neighbouring generations that a run may have used by mistake."""
WHOLE_SAVED = 34.0
"""Bytes that forward saves of a token in a layer, over the model's width (Korthikanti et al. 2022, without scores)."""


def ratio(run: Run, change: Callable[[Operators], Operators], rates: Rates | None = None) -> float:
    """Return the seconds of the changed step over those of this one."""
    changed = predicted_step(change(run.operators), run.config, rates or run.rates)
    time, base = with_communication(changed), with_communication(run.step)
    factor = run.step.others.factor  # as in other trainers; the same for both, so that only the operators differ
    return time.at(factor) / base.at(factor)


def offloaded_seconds(run: Run) -> tuple[float, float]:
    """Return by how many seconds a step is longer if the host keeps what forward saves, and if it keeps the
    optimizer's state and updates the weights."""
    config, device = run.config, run.rates.hardware.device
    updates = [one for one in run.operators if one.phase == "optimizer"]
    elements = sum(prod(shape) for one in updates for shape in one.shapes[:1])  # the first operand is the weight
    saved = WHOLE_SAVED * config.batch_size * config.context_length * config.d_model * (config.num_layers or 1)
    # A gradient crosses the link, then a weight: one of them in 4 bytes, one in 2. The host updates float32 weights.
    crossing = elements * (4 + 2) / host_link(device)
    updating = run.rates.hardware.host_seconds("lmsweep::update_on_host", 4 * elements)
    return 2 * saved / host_link(device), crossing + updating  # what is saved goes there and back


def on_other_device(run: Run, device: Device) -> float:
    """Return the seconds on another GPU over those on this one; the geometric mean of the ratios of peaks and of
    bandwidths if its links are unknown."""
    ranks, rates = run.config.world_size, rates_of(device)
    if ranks == 1 or rates.connects(min(USUAL_GPUS, ranks)):  # only the links within a node belong to a GPU
        return ratio(run, lambda operators: operators, rates)
    here = run.rates.hardware.device
    by_peak = (here.bf16 or here.fp16) / (device.bf16 or device.fp16)
    return math.sqrt(by_peak * here.bytes_per_second / device.bytes_per_second)
