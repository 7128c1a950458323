"""The time of an operator that computes little: its bytes, through memory or the L2 cache, by measured curves."""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from lmsweep.trials.analytic.rates.hardware import Hardware, find_reference, hardware_of
from lmsweep.trials.analytic.rates.rate_data import MeasuredOperator, measured_operators
from lmsweep.trials.analytic.rates.surface import Curve

SHARE_OF_CACHE = 0.5
"""Of the cache, what an operator's operands may take to be there still."""

FAMILIES = {
    "_fused_rms_norm": "native_layer_norm",
    "_fused_rms_norm_backward": "native_layer_norm_backward",
    "_log_softmax_backward_data": "_softmax_backward_data",
    "mean": "sum",
    "contiguous": "clone",
    "cat": "clone",
    "index": "embedding",
    "silu": "gelu",
    "tanh": "gelu",
    "abs": "mul",
    "clamp": "mul",
    "max_all": "sum",
    "amax": "native_layer_norm",
    "copy_": "_to_copy",
    "_foreach_copy_": "_to_copy",
    "_foreach_": "_foreach_adamw_",
}
"""Operator, or how its name begins -> the measured one that is most like it."""
USUAL = "add"
"""The measured operator that all others are like."""


WIDTHS = {"float8_e4m3fn": 1, "bfloat16": 2, "float16": 2}
"""Type -> bytes of an element; others are as those of 4."""


class _Key(NamedTuple):
    family: str
    width: int
    """Bytes of an element."""
    is_cold: bool


class ByteRates:
    """Curves of seconds over bytes. Where none were measured, those of the reference; their part beyond the
    shortest time is scaled by the bandwidths."""

    def __init__(self, hardware: Hardware, points: Iterable[MeasuredOperator]) -> None:
        self._cache_bytes = hardware.cache_bytes
        self._curves = _curves_of(tuple(points))
        self._slower = 1.0
        if not self._curves:
            reference = find_reference()
            self._curves = _reference_curves()
            self._slower = hardware_of(reference).bandwidth / hardware.bandwidth
        self._families = {family for family, *_ in self._curves}

    def seconds(self, name: str, moved: float, *, dtype: str, is_cold: bool | None = None) -> float:
        """Return the seconds of an operator that moves these bytes; is_cold None: where they exceed the cache."""
        cold = moved > SHARE_OF_CACHE * self._cache_bytes if is_cold is None else is_cold
        family = self._family(name)
        width = WIDTHS.get(dtype, 4)
        keys = (
            _Key(one, other, hot)
            for one in (family, USUAL)
            for hot in (cold, True)
            for other in sorted((1, 2, 4), key=lambda known: abs(known - width))
        )
        curve = next(self._curves[key] for key in keys if key in self._curves)
        seconds = curve.at(moved)
        return curve.least_seconds + (seconds - curve.least_seconds) * self._slower

    def _family(self, name: str) -> str:
        if name in self._families:
            return name
        return next((family for start, family in FAMILIES.items() if name.startswith(start)), USUAL)


def _curves_of(points: tuple[MeasuredOperator, ...]) -> dict[_Key, Curve]:
    found: dict[_Key, list[tuple[float, float]]] = {}
    for point in points:
        key = _Key(point.name, WIDTHS.get(point.dtype, 4), point.is_cold)
        found.setdefault(key, []).append((point.bytes, point.seconds))
    return {key: Curve(of_key) for key, of_key in found.items()}


@cache
def _reference_curves() -> dict[_Key, Curve]:
    """Return the curves of the reference GPU."""
    return _curves_of(tuple(point for point in measured_operators() if point.kind in ("bytes", "optimizer")))
