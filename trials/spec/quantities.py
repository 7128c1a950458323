"""Amounts of memory as people write them."""

import re

_UNITS = {"GB": 10**9, "GIB": 2**30, "MB": 10**6, "MIB": 2**20}


def bytes_of(text: str) -> int | None:
    """24GB, 1.5 GiB, 800 mb: bytes. None where it is no such amount."""
    amount = re.fullmatch(r"(\d+\.?\d*|\.\d+) ?([GM]i?B)", text.strip(), re.IGNORECASE)
    return round(float(amount[1]) * _UNITS[amount[2].upper()]) if amount else None


def gib(count: float) -> str:
    """79.2 GiB: three digits, in the unit of CUDA's own tools, of PyTorch's messages and of our tables."""
    amount = count / 2**30
    return f"{amount:.3g} GiB" if amount < 1000 else f"{amount:.0f} GiB"
