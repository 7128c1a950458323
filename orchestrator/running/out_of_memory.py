"""What a trial that ran out of memory had asked for and held, and what was free, in one line. Its row has the whole
text, with the allocator's advice.
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
    """`asked for 2.00 GiB, held 71.30 GiB, 1.20 GiB of 79.18 GiB were free`; the first line of an unknown message."""
    if found := _ON_GPU.search(error):
        return f"asked for {found['asked']}, held {found['held']}, {found['free']} of {found['whole']} were free"
    if found := _ON_HOST.search(error):
        return f"asked for {gib(int(found['asked']))}, which the host did not give"
    return (error.strip().splitlines() or ["no message"])[0]
