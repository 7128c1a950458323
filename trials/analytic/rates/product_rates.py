"""The time of a matrix product: tiles in waves over multiprocessors, and bytes, corrected by measured products."""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import geometric_mean
from typing import Literal, NamedTuple

from lmsweep.trials.analytic.rates.hardware import Hardware
from lmsweep.trials.analytic.rates.operators import Shape
from lmsweep.trials.analytic.rates.rate_data import MeasuredOperator
from lmsweep.trials.analytic.rates.surface import Surface, logs


class Tile(NamedTuple):
    rows: int
    columns: int
    efficiency: float
    """Its FLOP/s over those of the largest tile, with all multiprocessors busy."""


TILES = (
    *(Tile(256, 128, 1.0), Tile(128, 256, 1.0), Tile(128, 128, 0.98)),
    *(Tile(64, 128, 0.95), Tile(128, 64, 0.95), Tile(64, 64, 0.92)),
)
# SPLIT_SLOWDOWN, FILL_ELEMENTS, WHOLE_WAVES, OVERLAP_POWER and START_SECONDS are of 2026-11-23, when the products of
# one H200 were first measured. Changing any one of them lowers the formula's root mean square error on 1172 products
# in bf16 by at most 1.5 %. Its median error is 4.7 % in bf16, 8.6 % in tf32 and 8.5 % in float8, before measured points
# correct it (docs/lab/2026-11-26-product-constants.md, `operator_rates --constants`).
SPLITS = (1, 2, 4, 8, 16)
"""Numbers of parts into which the inner dimension can be split (split-K); the parts are summed afterwards."""
LEAST_INNER, MOST_WAVES = 256, 3
"""A split product keeps at least this many inner elements in a part, and needs at most this many waves."""
SPLIT_SLOWDOWN = 1.05
"""Time of a split product over the time of its parts; no unit. The data hardly distinguish it from 1 or 1.2."""
FILL_ELEMENTS, FILL_ELEMENTS_OF_LANES = 146, 18
"""Filling and draining the pipeline of a tile takes as long as this many inner elements: kernels of tensor cores load
64 at a time, those of float32 lanes 8."""
WHOLE_WAVES = 0.5
"""Share of a product's time that grows in whole waves of tiles; the rest grows with the number of tiles."""
OVERLAP_POWER = 4.5
"""Exponent of the p-norm of the times of computing and moving: 1 for no overlap; all from 4 on fit the data alike."""
START_SECONDS = 3.3e-6
"""Seconds of the shortest product, beside its work and bytes."""
LAYOUT_RATES = {("tf32", "tn"): 0.64, ("float32", "tn"): 0.9}
"""Type and layout of the operands -> its rate over that of the type's other layouts; 1 if not listed."""
IN_ONE_KERNEL = (0, 9, 10)
"""Major compute capability of GPUs with one kernel for a grouped product in bf16: PyTorch's of Hopper and of
Blackwell's modules (ATen/native/cuda/GroupedBlas.cpp), and AMD's (0). Elsewhere, and in other types, it is a loop of a
product for each group, before which the host waits for the device to learn their sizes."""
# Loads of experts: rows of a group over their mean, each of equally many groups.
EVEN = (1.0,)
"""What a loss for balance aims at."""
EXPECTED = (0.15, 0.5, 1.05, 2.3)
"""An exponential distribution."""
SKEWED = (0.0, 0.02, 0.3, 3.68)
"""Deep layers with random weights: loads of Mixtral and Qwen3-MoE deviate by 0.3 to 0.5 of their mean in the first
layer, 0.9 to 1.7 in the second, 1.4 to 2.1 in those after (docs/lab/2026-11-27-experts.md)."""
WAIT_SECONDS = 25e-6
"""Time without work on the device after the host has waited for it: an assumption."""
LAYOUT_OF = {"forward": "nt", "input_gradient": "nn", "weight_gradient": "tn", "scores": "nt", "values": "nn"}
"""Form of a measured product -> its layout. Float8 has one layout, so its form names it."""

ALIGNMENT = 16
"""The fastest loads and stores need rows of all three matrices whose bytes are a multiple of this."""
ITEM_BYTES = {"bfloat16": 2, "float16": 2, "tf32": 4}
"""Type -> bytes of an element, for the types that tensor cores accept with unaligned rows."""
UNALIGNED_TIME, MOST_UNALIGNED = 3.0, 6.0
"""Expected and most time of a product with unaligned rows over that with aligned ones: an assumption where none was
measured. A step on an H200 with a vocabulary of 50257 in bf16 took as if its head's products were 5.6 times slower."""


ASSUMED = (
    f"an assumption, {UNALIGNED_TIME:g} times (1 to {MOST_UNALIGNED:g}) the time with rows that are "
    f"multiples of {ALIGNMENT} bytes, not measured"
)
Kind = Literal["one", "batch", "groups"]


class Product(NamedTuple):
    batch: int
    m: int
    n: int
    k: int
    bytes: int
    dtype: str
    layouts: tuple[str, ...]
    """Layout of the operands, or all possible layouts if it is not known: nt, nn, tn. The first letter is
    of (m, k), the last of (k, n): n as it is, t transposed in memory."""
    is_matrix: bool = True
    """Whether rows have the lengths m, n and k, other than a convolution's."""
    groups: int = 1
    """Into how many products a grouped one divides: the experts."""
    divides_inner: bool = False
    """Whether the groups divide k, as for gradients of weights, and not m."""

    def of_group(self, share: float) -> "Product":
        """Return the product of a group with `share` times the mean load. If the groups divide m, each has rows of
        (m, k) and (m, n), and weights (k, n) of its own. If they divide k, each has a part of (m, k) and (k, n), and
        gradients of weights (m, n) of its own."""
        if self.divides_inner:
            m, k = self.m, math.ceil(share * self.k / self.groups)
            of_each_group = self.m * self.n
        else:
            m, k = math.ceil(share * self.m / self.groups), self.k
            of_each_group = self.k * self.n
        of_other_groups = (self.groups - 1) * of_each_group
        bytes_per_element = self.bytes / (_elements(self.m, self.n, self.k) + of_other_groups)
        moved = round(bytes_per_element * _elements(m, self.n, k))
        return self._replace(m=m, k=k, bytes=moved, groups=1, divides_inner=False)

    def alignment(self, layout: str) -> int:
        """Return the most bytes, up to ALIGNMENT, that divide the rows of all three matrices."""
        size = ITEM_BYTES.get(self.dtype)
        if size is None or not self.is_matrix:
            return ALIGNMENT
        left_row = self.k if layout[0] == "n" else self.m
        right_row = self.n if layout[-1] == "n" else self.k
        return math.gcd(ALIGNMENT, *(size * row for row in (left_row, right_row, self.n) if row > 1))


def _elements(m: int, n: int, k: int) -> int:
    return m * k + m * n + k * n


class Took(NamedTuple):
    """Seconds, and the least and most of them where a factor is assumed."""

    seconds: float
    least: float
    most: float


def product_of(name: str, shapes: tuple[Shape, ...], *, bytes: int, dtype: str, layouts: tuple[str, ...]) -> Product:
    """Return the dimensions of a product from the shapes of its inputs, as PyTorch's operators take them."""
    matrices = [shape for shape in shapes if len(shape) >= 2][:2]
    if not matrices:  # two vectors (k,)
        return Product(1, 1, 1, shapes[0][-1], bytes, dtype, layouts)
    *batch, m, k = matrices[0]
    if len(matrices) == 1:  # a matrix by a vector
        return Product(1, m, 1, k, bytes, dtype, layouts)
    n = matrices[1][-1]
    if "grouped" in name and not batch:  # (m, k), then (groups, k, n), or (k, n) and where each group ends: (groups,)
        divides_inner = len(matrices[1]) == 2
        groups = [shape for shape in shapes if len(shape) == 1][-1][0] if divides_inner else matrices[1][0]
        return Product(1, m, n, k, bytes, dtype, layouts, groups=groups, divides_inner=divides_inner)
    return Product(math.prod(batch), m, n, k, bytes, dtype, layouts, is_matrix=not name.startswith("convolution"))


class ProductRates:
    def __init__(self, hardware: Hardware, points: Iterable[MeasuredOperator], *, group_launch: float = 0.0) -> None:
        """group_launch: the host's seconds for one product of a grouped one."""
        self._hardware, self._group_launch = hardware, group_launch
        found: dict[_Key, tuple[list[tuple[float, ...]], list[float]]] = {}
        for point in points:
            layout = LAYOUT_OF.get(point.form, point.form)
            product = product_of(point.name, point.shapes, bytes=point.bytes, dtype=point.dtype, layouts=(layout,))
            places, ratios = found.setdefault(_key(product, layout), ([], []))
            places.append(_place(product, product.groups > 1))
            ratios.append(point.seconds / self.formula(product, layout))
        # The formula holds for tensor cores and aligned rows. Other products differ from it by a factor: their ratios
        # are divided by its mean, so that far from any point the mean alone applies.
        means = {key: geometric_mean(ratios) for key, (_, ratios) in found.items()}
        self._typical = {key: means[key] for key in means if key.alignment < ALIGNMENT or key.dtype == "float32"}
        self._surfaces = {
            key: Surface(places, [ratio / self._typical.get(key, 1.0) for ratio in ratios])
            for key, (places, ratios) in found.items()
        }

    def formula(self, product: Product, layout: str, load: Sequence[float] = EXPECTED) -> float:
        """Return the seconds without the correction; of a grouped product with this load."""
        hardware = self._hardware
        rate = hardware.rate(product.dtype) * LAYOUT_RATES.get((product.dtype, layout), 1.0)
        sampled = [product.of_group(share) for share in load] if product.groups > 1 else [product]
        each_stands_for = product.batch * product.groups / len(sampled)
        fill = FILL_ELEMENTS_OF_LANES if product.dtype == "float32" else FILL_ELEMENTS
        work = _work(tuple((each_stands_for, one.m, one.n, one.k) for one in sampled), hardware.multiprocessors, fill)
        computing = work / rate
        moving = product.bytes / hardware.bandwidth
        return float((computing**OVERLAP_POWER + moving**OVERLAP_POWER) ** (1 / OVERLAP_POWER)) + START_SECONDS

    def seconds(self, product: Product) -> Took:
        """Return the seconds, the mean of the layouts; of a grouped product with the expected load and with others."""
        if product.groups > 1:
            expected, *others = (self._with_load(product, load) for load in (EXPECTED, EVEN, SKEWED))
            return Took(expected, min(expected, *others), max(expected, *others))
        return self._of_layouts(product)

    def loops(self, product: Product) -> bool:
        """Return whether a grouped product is a loop of a product for each group."""
        in_one = self._hardware.device.chip.compute[0] in IN_ONE_KERNEL
        return product.groups > 1 and not (in_one and product.dtype in ("bfloat16", "float8_e4m3fn"))

    def _with_load(self, product: Product, load: Sequence[float]) -> float:
        if not self.loops(product):
            return self._of_layouts(product, load).seconds
        groups = [product.of_group(share) for share in load if share]  # a group without rows has no product
        each = [max(self._group_launch, self._of_layouts(group).seconds) for group in groups]
        return WAIT_SECONDS + product.groups / len(load) * sum(each)

    def _of_layouts(self, product: Product, load: Sequence[float] = EXPECTED) -> Took:
        found = [self._of_layout(product, layout, load) for layout in product.layouts]
        return Took(*(sum(part) / len(found) for part in zip(*found, strict=True)))

    def _of_layout(self, product: Product, layout: str, load: Sequence[float]) -> Took:
        key = _key(product, layout)
        known = self._nearest(key)
        seconds = self.formula(product, layout, load)
        if known:
            place = _place(product, known.kind == "groups")
            seconds *= self._typical.get(known, 1.0) * self._surfaces[known].at(place)
        if key.alignment < ALIGNMENT and (known is None or known.alignment != key.alignment):
            return Took(UNALIGNED_TIME * seconds, seconds, MOST_UNALIGNED * seconds)
        return Took(seconds, seconds, seconds)

    def _nearest(self, key: "_Key") -> "_Key | None":
        """Return the measured class of products that is most like this one."""
        aligned = key._replace(alignment=ALIGNMENT)
        likes = [key, aligned, aligned._replace(layout="nt")]  # from the same class to rougher ones
        if key.kind == "groups":
            likes += [one._replace(kind="one") for one in likes]  # as the product of all rows
        return next((one for one in likes if one in self._surfaces), None)


@lru_cache(maxsize=100_000)
def _work(parts: tuple[tuple[float, int, int, int], ...], multiprocessors: int, fill: int) -> float:
    """Return the FLOPs that all multiprocessors could do while these products, each as (number, m, n, k), run in one
    kernel with the tiles and the split of k that are best for them."""
    best = math.inf
    for rows, columns, efficiency in TILES:
        tiles_and_k = [(times * math.ceil(m / rows) * math.ceil(n / columns), k) for times, m, n, k in parts]
        tiles = sum(count for count, _ in tiles_and_k)
        inner = sum(count * k for count, k in tiles_and_k) / tiles  # the mean of a tile
        for split in SPLITS:
            waves = tiles * split / multiprocessors
            if split > 1 and (inner / split < LEAST_INNER or waves > MOST_WAVES):
                break  # and so it is with more parts
            balanced_waves = WHOLE_WAVES * math.ceil(waves) + (1 - WHOLE_WAVES) * max(waves, 1.0)
            flops_of_tile = 2 * rows * columns * (inner / split + fill)
            work = balanced_waves * multiprocessors * flops_of_tile / efficiency
            best = min(best, work * (SPLIT_SLOWDOWN if split > 1 else 1.0))
    return best


class _Key(NamedTuple):
    kind: Kind
    dtype: str
    layout: str
    alignment: int


def _key(product: Product, layout: str) -> _Key:
    dtype = "bfloat16" if product.dtype == "float16" else product.dtype
    kind: Kind = "groups" if product.groups > 1 else "batch" if product.batch > 1 else "one"
    return _Key(kind, dtype, layout, product.alignment(layout))


def _place(product: Product, is_grouped: bool) -> tuple[float, ...]:
    each = product.of_group(1.0) if is_grouped else product
    return logs(product.groups if is_grouped else product.batch, each.m, each.n, each.k)
