"""The time of an operator that computes little: its bytes, through memory or the L2 cache, by measured curves."""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.rates.hardware import Hardware, find_reference, hardware_of
from lmsweep.trials.analytic.rates.rate_data import MeasuredOperator, measured_operators
from lmsweep.trials.analytic.rates.surface import Curve

SHARE_OF_CACHE = 0.5
"""An operator's operands are taken to be in the L2 cache still if they take at most this share: an assumption."""

FAMILIES = {
    "_fused_rms_norm": "native_layer_norm",
    "_fused_rms_norm_backward": "native_layer_norm_backward",
    "_log_softmax_backward_data": "_softmax_backward_data",
    "mean": "sum",
    "contiguous": "clone",
    "cat": "clone",
    "index": "embedding",
    "index_add_": "index_add",
    "scatter_add_": "scatter_add",
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
"""Operator, or the prefix of its name -> the measured operator whose curve it takes. All others take that of `add`."""
BY_LAYOUT = {
    "strided": "add_strided",
    "transposed": "add_transposed",
    "cast": "add_cast",
    "strided_cast": "add_strided_cast",
    "columns": "sum_columns",
}
"""`Operator.layout` -> the measured operator whose curve it takes. Its time depends on the number of elements: each
needs an address or a conversion, or few columns occupy few multiprocessors."""
CAST_BYTES = 10
"""Bytes that `add_cast` moves for each element: it reads one in 16 bits and a float32, and writes a float32."""
ADDRESS_SHARE = 0.5
"""Share of an addition's time that its addresses take; the rest goes by the bytes. On an H200, 2^24 elements take 41 µs
if what is expanded is read, 53 µs with a row or column beside them, 62 µs in an addition; in 16 bits 30, 43, 52 µs, and
with a float32 beside 16 bits 72 to 80 and 105 µs."""

WIDTHS = {"float8_e4m3fn": 1, "bfloat16": 2, "float16": 2}
"""Type -> bytes of an element; other types have 4."""


class _Key(NamedTuple):
    family: str
    width: int
    """Bytes of an element."""
    is_cold: bool


class ByteRates:
    """Curves of seconds over bytes. A family that was not measured on the device takes the curve of the reference: its
    part beyond the shortest time is scaled by the bandwidths, and for BY_LAYOUT by the rates at which addresses are
    computed."""

    def __init__(self, hardware: Hardware, points: Iterable[MeasuredOperator]) -> None:
        reference = hardware_of(find_reference())
        self._cache_bytes = hardware.cache_bytes
        self._curves, self._of_reference = _curves_of(tuple(points)), _reference_curves()
        self._measured = {family for family, *_ in self._curves}
        self._families = self._measured | {family for family, *_ in self._of_reference}
        self._like: dict[_Key, tuple[Curve, float]] = {}
        self._slower = reference.bandwidth / hardware.bandwidth
        self._slower_addresses = reference.instructions / hardware.instructions

    def seconds(
        self, name: str, moved: float, *, dtype: str, layout: str = "", elements: int = 0, is_cold: bool | None = None
    ) -> float:
        """Return the seconds of an operator that moves these bytes. layout: `Operator.layout`, and `elements` its
        number of elements. is_cold: whether the operands come from memory; None: if they exceed the cache."""
        width = WIDTHS.get(dtype, 4)
        seconds = self._of_family(self._family(name), moved, width, is_cold)
        if not layout:
            return seconds
        whole = elements * _bytes_of_element(layout, width)  # more than moved, if an operand is read once for many
        share = ADDRESS_SHARE + (1 - ADDRESS_SHARE) * min(1.0, moved / whole)
        return max(seconds, share * self._of_family(BY_LAYOUT[layout], whole, width, is_cold))

    def _of_family(self, family: str, moved: float, width: int, is_cold: bool | None) -> float:
        cold = moved > SHARE_OF_CACHE * self._cache_bytes if is_cold is None else is_cold
        key = _Key(family, width, cold)
        if key not in self._like:
            self._like[key] = self._curve_like(key)
        curve, slower = self._like[key]
        return curve.least_seconds + (curve.at(moved) - curve.least_seconds) * slower

    def _curve_like(self, key: _Key) -> tuple[Curve, float]:
        """Return the measured curve that is most like an operator's, and how much slower it is here."""
        curves, slower = self._curves, 1.0
        if key.family not in self._measured:
            curves = self._of_reference
            slower = self._slower_addresses if key.family in BY_LAYOUT.values() else self._slower
        widths = sorted((1, 2, 4), key=lambda known: abs(known - key.width))
        keys = (_Key(key.family, width, is_cold) for is_cold in (key.is_cold, not key.is_cold) for width in widths)
        return next(curves[one] for one in keys if one in curves), slower

    def _family(self, name: str) -> str:
        if name in self._families:
            return name
        starts = [one for one, family in FAMILIES.items() if family in self._families and name.startswith(one)]
        return FAMILIES.get(max(starts, key=len, default=""), "add")  # `index_add_` also starts as `index`


def _bytes_of_element(layout: str, width: int) -> int:
    if "cast" in layout:
        return CAST_BYTES
    return width if layout == "columns" else 3 * width  # a sum reads one, an addition reads two and writes one


def _curves_of(points: tuple[MeasuredOperator, ...]) -> dict[_Key, Curve]:
    found: dict[_Key, list[tuple[float, float]]] = {}
    for point in points:
        key = _Key(point.name, WIDTHS.get(point.dtype, 4), point.is_cold)
        found.setdefault(key, []).append((point.bytes, point.seconds))
    return {key: Curve(of_key) for key, of_key in found.items()}


@cache
def _reference_curves() -> dict[_Key, Curve]:
    return _curves_of(as_on_reference(measured_operators()))


def as_on_reference(points: Iterable[MeasuredOperator]) -> tuple[MeasuredOperator, ...]:
    """Return the operators that move bytes, as on the reference: those measured there; of families that only other
    devices measured, theirs, with times scaled by the ratio of bandwidths."""
    reference, moving = find_reference(), [one for one in points if one.kind in ("bytes", "optimizer")]
    devices = {one.device_name: find_device(one.device_name) or reference for one in moving}
    here = {one.name for one in moving if devices[one.device_name] == reference}
    slower = {name: hardware_of(one).bandwidth / hardware_of(reference).bandwidth for name, one in devices.items()}
    return tuple(
        one._replace(seconds=one.seconds * slower[one.device_name])
        for one in moving
        if devices[one.device_name] == reference or one.name not in here
    )
