"""Files that hold what was printed once: text is compared letter by letter, numbers to 10 significant digits.

The last digits of a double are the machine's: instruction sets sum in different orders, and versions of SciPy compute
quantiles in different ways.
"""

import math
import os
import re
from pathlib import Path

_NUMBER = re.compile(r"(-?\d+\.\d+(?:e[+-]?\d+)?)")


def check_golden(text: str, path: Path) -> None:
    """To accept a change: UPDATE_GOLDEN=1 pytest FILE, and read the difference."""
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        if not same(text, kept):  # another machine's last digits are no change
            path.write_text(text, encoding="utf-8")
    kept = path.read_text(encoding="utf-8")
    if not same(text, kept):
        assert text == kept, path.name


def same(text: str, kept: str) -> bool:
    """Whether the texts are equal except for digits of their numbers beyond the tenth."""
    one, other = _NUMBER.split(text), _NUMBER.split(kept)
    return len(one) == len(other) and all(
        a == b or (i % 2 == 1 and math.isclose(float(a), float(b), rel_tol=1e-10))
        for i, (a, b) in enumerate(zip(one, other, strict=True))
    )
