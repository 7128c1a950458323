"""Amounts: parsing `24GB` of memory and `8k` tokens, and printing `79.2 GiB` and `2 trials`."""

import re

_UNITS = {"GB": 10**9, "GIB": 2**30, "MB": 10**6, "MIB": 2**20}


def bytes_of(text: str) -> int | None:
    """Return the bytes that a text such as `24GB`, `1.5 GiB` or `800 mb` stands for, or None if it is no amount."""
    amount = re.fullmatch(r"(\d+\.?\d*|\.\d+) ?([GM]i?B)", text.strip(), re.IGNORECASE)
    return round(float(amount[1]) * _UNITS[amount[2].upper()]) if amount else None


def context_of(text: str) -> int | None:
    """Return the tokens of a context such as `8192` or `8k`, which is 8,192, or None if it is no amount."""
    amount = re.fullmatch(r"(\d+) ?(k?)", text.strip().lower().replace(",", ""))
    return int(amount[1]) * (1024 if amount[2] else 1) if amount else None


def gib(count: float) -> str:
    """Return bytes as text with three digits, such as `79.2 GiB` or `48.3 MiB`, the units of PyTorch's messages."""
    unit, size = ("MiB", 2**20) if count < 2**30 else ("GiB", 2**30)
    amount = count / size
    return f"{amount:.3g} {unit}" if amount < 999.5 else f"{amount:.0f} {unit}"


def ms(seconds: float) -> str:
    """Return milliseconds with three digits, such as `0.64`, `61.2` or `1,330`."""
    return f"{1e3 * seconds:.3g}" if seconds < 0.9995 else f"{1e3 * seconds:,.0f}"


def count_of(count: int, noun: str) -> str:
    """Return `1 trial` or `2 trials`."""
    return f"{count} {noun}{'s' * (count != 1)}"
