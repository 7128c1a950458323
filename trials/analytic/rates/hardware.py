"""What a GPU can do at best: the rates that operators' times are made of, and where each comes from."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Literal

from lmsweep.trials.analytic.datasheets import Device, device_named, find_device, host_link
from lmsweep.trials.analytic.rates.rate_data import fastest_products, public_products

Level = Literal["measured", "public", "fp32", "datasheet"]
"""Products measured on this chip; published for this kind of GPU; of float32, by its datasheet; a datasheet alone."""

CHIP = {"H100 SXM": "H200 SXM", "GH200 96GB": "H200 SXM", "GH200 144GB": "H200 SXM"}
"""Device -> a measured one with the same chip and clocks, and other memory, whose products and attention it takes."""

REFERENCE = "H200 SXM"
"""The device whose measured efficiencies are taken for GPUs without their own."""
SHARE_OF_PEAK = {"bfloat16": 0.79, "tf32": 0.76, "float32": 0.76, "float8_e4m3fn": 0.7}
"""Share of a datasheet's rate that the largest tiles reach on the reference, and where no product was published."""
SHARE_OF_FEW_LANES = 0.95
"""As SHARE_OF_PEAK, in float32 with 64 lanes, which have as much to load operands with as 128: 64 reach 0.90 and 0.98
of the datasheet (V100, A100), 128 reach 0.51 to 0.78 (fastest_products.csv)."""
OVER_SHARE = {"MI300X": 0.58, "MI325X": 0.68, "MI355X": 0.79}
"""Rate of tensor cores over that by SHARE_OF_PEAK, of chips with a few published products in bf16. MI300X: the median
of 493 and 546 TFLOP/s in shapes of Llama (ROCm/TransformerEngine issue 73), and 668 after a search over shapes and
kernels (MAMF in ml-engineering by Stas Bekman). The others by that search: 785 (1000 W) and 1565 TFLOP/s."""
PUBLISHED_CHIP = {"A100 SXM 40GB": ("A100 SXM 80GB", 1.0, 1.0)} | dict.fromkeys(
    ("A100 PCIe 40GB", "A100 PCIe 80GB"), ("A100 SXM 80GB", 0.88, 0.92)
)
"""Device -> one with the same chip and published products, and the rate of its own over theirs: of tensor cores, in
float32. A card may use less power than a module, so its clocks are lower, of tensor cores most: 220 of 263 TFLOP/s (40
GB, 250 W, artifact of "Fire-Flyer AI-HPC", SC24) and 252.9 of 271.2 (MAMF in ml-engineering), their geometric mean; in
float32 17.56 of 19.18 (40 GB, 250 W, fastest_products.csv)."""
TILES_OVER_FASTEST = {"float8_e4m3fn": 0.97}
"""Type -> rate of the largest tiles over that of the fastest product, of the reference; of other types 0.99."""
TILES_OVER_PRODUCTS = 1.1
"""Rate of the largest tiles over the median of the published products, of the reference."""
SHARE_OF_BANDWIDTH = 0.87
"""Share of a datasheet's bandwidth that a large copy reaches: 4.02 to 4.2 of 4.8 TB/s on an H200."""
SHARES_OF_BANDWIDTH = {"H100 SXM": 0.945}
"""Device -> its own share in place of SHARE_OF_BANDWIDTH, measured by updates of AdamW (`h100-devices`)."""

ATTENTION_SCALE: dict[tuple[int, int] | str, float] = {
    (8, 0): 1 / 1.85,
    (10, 0): 1.6,
    (10, 3): 1.6,
    "MI300X": 0.78,
    "MI325X": 0.78,
}
"""Compute capability or device -> rate of PyTorch's fused attention over that on an H200, from published rates:
FlashAttention 2 gained 1.85 from A100 to H100, though the tensor cores' peaks gained 3.2; on an MI300X it reaches 223
to 232 TFLOP/s forward and backward (ROCm/flash-attention issue 142). A card of PUBLISHED_CHIP has its share of it."""
ATTENTION_OF_PRODUCTS: dict[tuple[int, int] | str, float] = {
    **dict.fromkeys(((8, 6), (8, 9), (12, 0), (12, 1)), 0.84),
    "H20": 0.6,
}
"""Compute capability or device -> rate of FlashAttention 2 in long contexts over that of the card's own products, so
that at 2048 positions an RTX 4090 reaches what was published (apache/tvm, tl_doc/flash_perf.md; an RTX A5000 does at
8192). Forward without a mask it is 0.59 on an H20 (flash-attention issue 1310)."""
REFERENCE_ATTENTION = 254e12
"""FLOP/s of FlashAttention 2 on the reference, forward and backward, causal, heads of 128, long contexts: by KERNELS,
from which the shares of forward, backward and other heads are taken."""
SHARE_OF_HOST_LINK = 0.85
"""Share of the host link's bandwidth that copies of pinned memory reach."""
COPY_SECONDS = 25e-6
"""Fixed cost of a copy to pinned memory: the host waits for the copy before it launches more."""
UPDATE_BYTES_PER_SECOND = 100e9
"""Host memory that an update of AdamW on the CPU reads and writes a second."""
UPDATE_PASSES = 7
"""AdamW reads the weight, the gradient and two states, and writes all of them except the gradient."""
_LANES: dict[tuple[int, int], int] = {(7, 0): 64, (7, 5): 64, (8, 0): 64}
"""Compute capability -> float32 lanes of a multiprocessor, by the architectures' whitepapers; others have 128."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The rates of one kind of GPU."""

    device: Device
    multiprocessors: int
    cache_bytes: float
    bandwidth: float
    """B/s of a large copy."""
    products: Mapping[str, float]
    """Type -> FLOP/s of a large matrix product."""
    attention: float
    """Rate of fused attention in 16 bits over that of the reference."""
    sources: Mapping[str, str]
    """products, float32, attention, bytes -> where the rate comes from, in words for a user."""

    @property
    def instructions(self) -> float:
        """Multiprocessors times clock, up to a factor that all devices share: float32 FLOP/s over lanes."""
        return self.device.fp32 / _LANES.get(self.device.chip.compute, 128)

    def rate(self, dtype: str) -> float:
        return self.products.get(dtype) or self.products["float32"]

    def host_seconds(self, name: str, size: float) -> float:
        """Return the seconds of one of HOST_OPERATORS with these bytes, during which the device waits."""
        if name.endswith("update_on_host"):
            return UPDATE_PASSES * size / UPDATE_BYTES_PER_SECOND
        return COPY_SECONDS + size / (SHARE_OF_HOST_LINK * host_link(self.device))


@cache
def hardware_of(device: Device) -> Hardware:
    """Return the rates of a device: published ones where there are any, else shares of its datasheet."""
    rates, sources = _products(device)
    attention, of_attention = _attention(device, rates["bfloat16"])
    return Hardware(
        device=device,
        multiprocessors=device.chip.multiprocessors,
        cache_bytes=device.chip.cache_mib * 2**20,
        bandwidth=SHARES_OF_BANDWIDTH.get(device.name, SHARE_OF_BANDWIDTH) * device.bytes_per_second,
        products=rates,
        attention=attention,
        sources=sources | {"attention": of_attention, "bytes": f"the datasheet's bandwidth of {device.name}"},
    )


def _products(device: Device) -> tuple[dict[str, float], dict[str, str]]:
    """Return `Hardware.products`, and of `Hardware.sources` those of products and of float32."""
    chip, share_of_chip, in_float32 = PUBLISHED_CHIP.get(device.name, (device.name, 1.0, 1.0))
    # The reference and devices with its chip take no published rates: measured products correct those by datasheet.
    of_chip = {} if device.name in (REFERENCE, *CHIP) else _published(chip)
    published: dict[str, float] = {}
    sources = {
        "bfloat16": f"the datasheet of {device.name}" + " and a few published products" * (device.name in OVER_SHARE)
    }
    for dtype, (rate, source) in of_chip.items():
        share = in_float32 if dtype == "float32" else share_of_chip
        published[dtype] = share * rate
        sources[dtype] = f"{share:.0%} of the " * (share < 1) + f"published products of {chip} ({source})"
    rates: dict[str, float] = {}
    peaks = {"bfloat16": device.bf16 or device.fp16, "tf32": device.tf32, "float32": device.fp32}
    for dtype, peak in (peaks | {"float8_e4m3fn": device.fp8}).items():
        if peak:
            rates[dtype] = published.get(dtype) or _share_of_peak(device, dtype, published.get("bfloat16")) * peak
    rates["float16"] = rates["bfloat16"] * (device.fp16 / device.bf16 if device.bf16 else 1.0)
    of_peak = f"{rates['float32'] / device.fp32:.0%} of float32 on the datasheet of {device.name}, not measured"
    return rates, {"products": sources["bfloat16"], "float32": sources.get("float32", of_peak)}


def _share_of_peak(device: Device, dtype: str, in_bf16: float | None) -> float:
    """Return the share of the datasheet's rate that products reach in a type. in_bf16: published rate in bfloat16."""
    if dtype == "float32":
        return SHARE_OF_FEW_LANES if device.chip.compute in _LANES else SHARE_OF_PEAK[dtype]
    if in_bf16 and device.bf16:  # other types run on the same tensor cores at the same clocks
        over_bf16 = 1.0 if dtype == "tf32" else SHARE_OF_PEAK[dtype] / SHARE_OF_PEAK["bfloat16"]
        return in_bf16 / device.bf16 * over_bf16
    return SHARE_OF_PEAK[dtype] * OVER_SHARE.get(device.name, 1.0)


def _attention(device: Device, products: float) -> tuple[float, str]:
    """Return `Hardware.attention` and its source. products: FLOP/s in 16 bits. The tables have a device's name where
    its compute capability does not decide: for AMD's, which have none, and for an H20, whose products are slower."""
    name, capability, reference = device.name, device.chip.compute, find_reference()
    if share := ATTENTION_OF_PRODUCTS.get(name, ATTENTION_OF_PRODUCTS.get(capability)):
        source = f"{share:.0%} of the rate of its products, as FlashAttention 2 was published"
        return share * products / REFERENCE_ATTENTION, source
    scale = 1.0 if name in (REFERENCE, *CHIP) else ATTENTION_SCALE.get(name, ATTENTION_SCALE.get(capability))
    if scale:
        _, share_of_chip, _ = PUBLISHED_CHIP.get(name, (name, 1.0, 1.0))
        return scale * share_of_chip, f"published rates of FlashAttention, from {reference.name}"
    of_peak = SHARE_OF_PEAK["bfloat16"] * (reference.bf16 or 1.0)
    return products / of_peak, f"the ratio of products, from {reference.name}"


@cache
def find_reference() -> Device:
    found = device_named(REFERENCE)
    assert found is not None, "the table has it"
    return found


@cache
def _published(name: str) -> dict[str, tuple[float, str]]:
    """Return type -> FLOP/s of the largest tiles of the device with this name, and the source: the median of each
    source, of the fastest source, as others had less power or lower clocks."""
    rates: dict[tuple[str, str], list[float]] = {}
    for row in public_products():
        if _is(name, row.device_name) and row.m >= 4096:  # smaller products do not fill the GPU with such tiles
            rate = TILES_OVER_PRODUCTS * 2 * row.m * row.n * row.k / row.seconds
            rates.setdefault((row.dtype, "AIConfigurator"), []).append(rate)
    for one in fastest_products():
        if _is(name, one.device_name):
            dtype = "bfloat16" if one.dtype == "float16" else one.dtype
            rate = TILES_OVER_FASTEST.get(dtype, 0.99) * one.teraflops * 1e12
            rates.setdefault((dtype, one.source), []).append(rate)
    found: dict[str, tuple[float, str]] = {}
    for (dtype, source), of_source in rates.items():
        found[dtype] = max(found.get(dtype, (0.0, "")), (median(of_source), source))
    return found


def _is(name: str, full_name: str) -> bool:
    met = find_device(full_name)
    return met is not None and met.name == name
