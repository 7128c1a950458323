"""NVIDIA's driver, asked through NVML; needs no torch."""

from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

Answer = TypeVar("Answer")


def by_nvml(ask: Callable[[ModuleType], Answer], otherwise: Answer) -> Answer:
    """Return what `ask` finds, with the module pynvml; `otherwise` where there is no driver, or it does not answer."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return ask(pynvml)
    except pynvml.NVMLError:
        return otherwise


def why_no_nvml() -> str | None:
    """Return why the driver does not list its GPUs, in its words; None if it does."""
    import pynvml

    try:
        pynvml.nvmlInit()
        pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return f"NVML: {error}"
    return None
