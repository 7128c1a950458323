"""Suggestions for misspelt words: "did you mean ...?"."""

import csv
import difflib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

MOST_LISTED = 20
"""Maximum number of legal words that a message lists if one of them is a likely correction."""


@cache
def _known_elsewhere() -> dict[str, list[str]]:
    """Return our word -> the names that other software uses, where the spelling alone would suggest a wrong word or
    none. To add a name, add it to its row of known_elsewhere.csv."""
    with (Path(__file__).parent / "known_elsewhere.csv").open(newline="", encoding="utf-8") as file:
        return {row["ours"]: row["elsewhere"].split() for row in csv.DictReader(file)}


def known_elsewhere(word: object, words: Iterable[str]) -> str | None:
    """Return our word, among `words`, for what other software calls `word`, or None if there is none."""
    legal = list(words)
    said = str(word).lower()
    return next((ours for ours, names in _known_elsewhere().items() if ours in legal and said in names), None)


def nearest(word: object, words: Iterable[str]) -> str | None:
    """Return the one of `words` that was probably meant, or None if none is similar."""
    legal = list(words)
    written = str(word).lower() if isinstance(word, bool) else str(word)
    if known := known_elsewhere(written, legal):
        return known
    swapped = (name for name in legal if sorted(name) == sorted(written))  # modle means model, not mode
    short = written.lower()[:100]  # difflib takes long for a long text
    return next(swapped, None) or next(iter(difflib.get_close_matches(short, legal, n=1)), None)


def did_you_mean(word: object, words: Iterable[str]) -> str:
    """Return `; did you mean bf16?`, or nothing if no word is similar."""
    return f"; did you mean {near}?" if (near := nearest(word, words)) else ""


def device_meant(text: str, names: Iterable[str]) -> str:
    """Return `did you mean H100? `, of a name or one of its words, or nothing if none is similar."""
    meant = {word.lower(): word for name in names for word in (name, *name.split())}
    near = nearest(text.lower(), meant)
    return f"did you mean {meant[near]}? " if near else ""


def choices(word: object, words: Iterable[str]) -> str:
    """Return `; did you mean bf16? (one of: fp32, bf16)`, without the list if it is long and one word is near."""
    legal = list(words)
    near = did_you_mean(word, legal) if isinstance(word, (str, int, float)) else ""
    return near if near and len(legal) > MOST_LISTED else f"{near} (one of: {', '.join(legal)})"
