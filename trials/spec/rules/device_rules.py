"""Which values of a field a device cannot have, for its hardware or its installed packages: known before a trial."""

from collections.abc import Callable
from typing import NamedTuple

from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.installing import install_extra
from lmsweep.trials.spec.ways.adapters import ADAPTERS
from lmsweep.trials.spec.ways.attentions import ATTENTIONS
from lmsweep.trials.spec.ways.losses import LOSSES
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from lmsweep.trials.spec.ways.precisions import PRECISIONS, NumberFormats
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS
from lmsweep.trials.spec.workloads import Workload, workload_named

CHUNKED_LOSS = "torch.nn.functional.linear_cross_entropy"
"""A function of torch, not a module; `lmsweep.trials.machine.gpu.accelerator.missing_modules` looks for it there."""


class Capabilities(NamedTuple):
    """What a device can compute."""

    name: str
    """As messages say it: `NVIDIA T4`, `device: cpu`."""
    compute: tuple[int, int] = (0, 0)
    """CUDA's compute capability; (0, 0) of a device that is not NVIDIA's."""
    bfloat16: bool = True
    """Whether it multiplies in bfloat16."""
    missing: frozenset[str] = frozenset()
    """Those of OPTIONAL_MODULES that are not installed there."""

    @property
    def instead(self) -> str:
        """What it has instead of a capability: `; NVIDIA T4 has 7.5`, or `, not device: cpu`."""
        return f"; {self.name} has {self.compute[0]}.{self.compute[1]}" if any(self.compute) else f", not {self.name}"


class DeviceRule(NamedTuple):
    """Values of one field that some devices lack."""

    field: str
    values: tuple[str, ...]
    lacks: Callable[[Capabilities], bool]
    why: Callable[[str, Capabilities], str]
    """Value and device -> the reason."""
    extra: str = ""
    """The extra whose packages the device lacks."""
    module: str = ""
    """What it needs and not every installation has."""


def _needs_tensor_cores(precision: str, formats: NumberFormats) -> DeviceRule:
    least = formats.compute_capability or (0, 0)
    cores = "float8 tensor cores" if formats.float8_recipe else "tensor cores"
    needed = f"the {cores} of an NVIDIA GPU of compute capability {least[0]}.{least[1]} or higher"
    return DeviceRule(
        field="precision",
        values=(precision,),
        lacks=lambda device: device.compute < least,
        why=lambda value, device: f"{value} needs {needed}{device.instead}",
    )


def _needs_module(field: str, value: str, module: str, package: str, extra: str = "") -> DeviceRule:
    """package: what the reason says after "needs". module: what `Capabilities.missing` names. extra: installs it."""
    why = f"{field} {value} needs {package}"
    return DeviceRule(field, (value,), lambda device: module in device.missing, lambda *_: why, extra, module)


def _needs_package(field: str, value: str, path: str, extra: str = "") -> DeviceRule:
    package = path.partition(".")[0]
    return _needs_module(field, value, package, f"the package {package.replace('_', '-')}", extra)


DEVICE_RULES: tuple[DeviceRule, ...] = (
    *(_needs_tensor_cores(name, formats) for name, formats in PRECISIONS.items() if formats.compute_capability),
    DeviceRule(
        field="precision",
        values=tuple(name for name, formats in PRECISIONS.items() if formats.operand == "bfloat16"),
        lacks=lambda device: not device.bfloat16,
        why=lambda value, device: f"{device.name} has no bfloat16 arithmetic",
    ),
    DeviceRule(
        field="attention",
        values=tuple(name for name, one in ATTENTIONS.items() if one.is_16_bit),
        lacks=lambda device: (0, 0) < device.compute < (8, 0),  # (0, 0), no NVIDIA GPU: `of_attention` decides
        why=lambda value, device: f"{value} needs compute capability 8.0 or higher{device.instead}",
    ),
    *(_needs_package("loss", name, one.function) for name, one in LOSSES.items() if one.function),
    _needs_module("loss", "chunked", CHUNKED_LOSS, "PyTorch 2.13 or later"),
    *(_needs_package("adapter", name, "peft", one.extra) for name, one in ADAPTERS.items()),
    *(_needs_package("adapter", name, "bitsandbytes", one.extra) for name, one in ADAPTERS.items() if one.stored_bits),
    *(_needs_package("optimizer", name, one.factory) for name, one in OPTIMIZERS.items() if not one.is_of_torch),
    *(_needs_package("precision", name, "torchao") for name in FLOAT8_PRECISIONS),
)
"""Every value that a device, or what is installed beside it, rules out."""
OPTIONAL_MODULES = tuple(sorted({rule.module for rule in DEVICE_RULES if rule.module}))
"""What some values need and not every installation has: modules, and CHUNKED_LOSS."""
_BY_VALUE = {
    (field, value): [rule for rule in DEVICE_RULES if rule.field == field and value in rule.values]
    for field, value in {(rule.field, value) for rule in DEVICE_RULES for value in rule.values}
}


def why_not_on(config: TrialConfig, workload: str, device: Capabilities) -> str | None:
    """Return why this device does not run this workload with this configuration; None if it may."""
    builds = builds_step(config, workload_named(workload))
    used = {
        "precision": True,
        "attention": builds or workload == "attention",
        "loss": builds or workload == "loss",
        "adapter": builds,
        "optimizer": builds and config.mode == "train_step",
    }
    fields = [field for field, is_used in used.items() if is_used]
    reasons = (why_no_value(field, getattr(config, field), device) for field in fields)
    return next((reason for reason in reasons if reason), None)


def why_no_value(field: str, value: str, device: Capabilities) -> str | None:
    """Return why a device lacks a value of a field; None if it may have it."""
    rule = next((rule for rule in _BY_VALUE.get((field, value), ()) if rule.lacks(device)), None)
    if rule is None:
        return None
    why = rule.why(value, device)
    return f"{why}; {install_extra(rule.extra)}" if rule.extra else why


def builds_step(config: TrialConfig, workload: Workload) -> bool:
    return workload.needs == "model" and config.step is None
