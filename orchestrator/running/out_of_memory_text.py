"""Shortens an out-of-memory error to one line: what was requested, held and free.

The stored row has the whole message, with the allocator's advice.
"""

import re

from lmsweep.trials.spec.quantities import gib

_AMOUNT = r"\d[\d.]* ?\w+"
_ON_GPU = re.compile(
    rf"Tried to allocate (?P<asked>{_AMOUNT})\..* total capac\w+ of (?P<whole>{_AMOUNT}) of which (?P<free>{_AMOUNT}) "
    rf"(is|are) free.* (?P<held>{_AMOUNT}) is allocated by PyTorch",
    re.DOTALL,
)
_ON_HOST = re.compile(r"can't allocate memory: you tried to allocate (?P<asked>\d+) bytes")


def in_short(error: str) -> str:
    """Return `requested 2.00 GiB with 71.30 GiB allocated; ...`, or the first line of an unknown message."""
    if found := _ON_GPU.search(error):
        return (
            f"requested {found['asked']} with {found['held']} allocated; {found['free']} of {found['whole']} were free"
        )
    if found := _ON_HOST.search(error):
        return f"requested {gib(int(found['asked']))}, which the host could not provide"
    return (error.strip().splitlines() or ["no message"])[0]
