"""Prices: the dollars per hour of a device, from the option --price of the commands."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lmsweep.trials.analytic.datasheets import DEVICES
from lmsweep.trials.analytic.formulas import Number
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.suggestions import device_meant

MILLION = 1e6
HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Price:
    """Dollars per hour of a device, named by words of its full name or its accelerator type: H100, RTX 4090."""

    device: str
    dollars: float

    def is_of(self, device_name: str, accelerator_type: str | None) -> bool:
        return any(names_device(self.device, name) for name in (device_name, accelerator_type) if name)


def names_device(words: str, name: str) -> bool:
    """Return whether a device's name has these words: whole ones, of any case; RTX4090 is RTX 4090."""
    pattern = re.sub(r"(?<=[A-Za-z])(?=\d)", " ?", re.escape(words))
    return re.search(rf"(?<!\w){pattern}(?!\w)", name, re.IGNORECASE) is not None


def parse_prices(texts: Sequence[str]) -> list[Price]:
    """Return the prices in texts such as `H100=2.5` (dollars per hour). Raises RequestError for any other text."""
    prices = []
    for text in texts:
        device, _, dollars = (part.strip() for part in text.partition("="))
        if not device or not re.fullmatch(r"\d+(\.\d*)?|\.\d+", dollars):
            raise RequestError(f"--price {text}: write DEVICE=DOLLARS per hour, such as H100=2.5")
        prices.append(Price(device=device, dollars=float(dollars)))
    return prices


def hourly_dollars(
    prices: Sequence[Price], devices: Iterable[tuple[str, str | None]]
) -> dict[tuple[str, str | None], float]:
    """Return the dollars per hour of each priced device, keyed by full name and accelerator type. Raises RequestError
    if a price applies to no device, or two prices apply to one."""
    known = sorted(set(devices), key=str)
    found: dict[tuple[str, str | None], float] = {}
    for price in prices:
        meant = [device for device in known if price.is_of(*device)]
        if not meant:
            names = [*dict.fromkeys(name for name, _ in known)]
            near = "" if any(price.is_of(one.name, None) for one in DEVICES) else device_meant(price.device, names)
            raise RequestError(f"--price {price.device}: no such device here; {near}the devices are {', '.join(names)}")
        for device in meant:
            if device in found:
                raise RequestError(f"--price {price.device}: another price also applies to {device[0]}")
            found[device] = price.dollars
    return found


def dollars_per_million(seconds: Number, tokens: Number, hourly: Number) -> Number:
    return seconds / HOUR * hourly / tokens * MILLION
