"""Which legal word was probably meant by one that is not."""

import difflib
from collections.abc import Iterable

# What people call things elsewhere, where the spelling alone would lead to another word.
_KNOWN_ELSEWHERE = {
    "gpu": "cuda",
    "float32": "fp32",
    "32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "false": "none",
    "no": "none",
    "off": "none",
    "flash": "sdpa_flash",
    "cudnn": "sdpa_cudnn",
    "math": "sdpa_math",
}


def nearest(word: object, words: Iterable[str]) -> str | None:
    """The legal word that was probably meant, if one is near."""
    legal = list(words)
    written = str(word).lower() if isinstance(word, bool) else str(word)
    known = _KNOWN_ELSEWHERE.get(written.lower())
    if known in legal:
        return known
    swapped = (name for name in legal if sorted(name) == sorted(written))  # modle is model rather than mode
    return next(swapped, None) or next(iter(difflib.get_close_matches(written.lower()[:100], legal, n=1)), None)


def choices(word: object, words: Iterable[str]) -> str:
    """`; did you mean bf16? (one of: fp32, bf16)`."""
    legal = list(words)
    near = nearest(word, legal) if isinstance(word, (str, int, float)) else None
    return (f"; did you mean {near}?" if near else "") + f" (one of: {', '.join(legal)})"
