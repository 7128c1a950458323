"""Which words of a text may be shared: those of lmsweep itself, plain words, and names in Python, but no host's."""

import re
from functools import cache
from pathlib import Path

from lmsweep import trials

GAP = "[...]"
"""Replaces words that are not shared."""

LIBRARIES = """torch torchao torchtitan torchvision numpy triton transformers datasets accelerate peft bitsandbytes
    deepspeed flash_attn xformers liger_kernel transformer_engine jax"""
"""What a dotted name of public code begins with."""
DOMAINS = """com org net edu gov mil info biz app cloud dev tech online site xyz arpa example invalid test ai io co
    de uk us eu ch cn fr in jp ru lan lab local localhost localdomain domain home corp internal intranet private cluster
    svc"""
"""What names of hosts end with, and names in Python hardly ever."""
MACHINES = "node host server login gpu rack hpc head worker"
"""Words of names of hosts that are words of lmsweep, too."""

_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
# The limits keep out what may be private: numbers with three dots, as IP addresses have; numbers as long as that of a
# card; long words with digits, as keys and hashes are.
_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{1,9}){0,2}(?:e[+-]?\d{1,3})?%?")
_PLAIN = re.compile(rf"[^\W\d_]{{0,30}}(?:['-][^\W\d_]{{1,30}})*|\w{{1,12}}|{_NUMBER.pattern}")
"""A word of any language, a short name such as H100 or bf16, a number, or nothing."""
_AROUND = "()[]{}<>\"'`,.;:?!%=+*|&"
_DOTTED = re.compile(r"[A-Za-z_]\w{0,39}(?:\.[A-Za-z_]\w{0,39}){1,4}", re.ASCII)
_MODULE = re.compile(r"[a-z_]+")
_CLASS = re.compile(r"[A-Z]+[a-z]\w*", re.ASCII)


@cache
def own_vocabulary() -> frozenset[str]:
    """Return every word of lmsweep's own source, in lower case."""
    package = Path(str(trials.__file__)).parent
    sources = [path for folder in (package, package.parent / "orchestrator") for path in folder.rglob("*.py")]
    found = {word.lower() for path in sources for word in _WORD.findall(path.read_text("utf-8"))}
    return frozenset(found | {part for word in found for part in word.split(".")})


def own_words(text: str) -> str:
    """Return the first line, with GAP in place of words that lmsweep's own source does not have. Numbers stay."""
    kept: list[str] = []
    for token in (text.splitlines() or [""])[0].split(" "):
        core = token.strip(_AROUND)
        is_own = own_vocabulary().issuperset(core.lower().split("-"))
        allowed = not core or is_own or _NUMBER.fullmatch(core)
        if allowed or kept[-1:] != [GAP]:  # one for words in succession
            kept.append(token if allowed else GAP)
    return " ".join(kept)


def plain_words(text: str) -> str:
    """Return the plain words of any language, numbers and names in Python, with GAP in place of each other word."""
    return " ".join(word if _is_plain(word.strip(_AROUND)) else GAP for word in text.split(" "))


def _is_plain(word: str) -> bool:
    """Return whether a word is plain, or a name in Python that may be called: `torch.compile(model)`."""
    called, _, argument = word.removesuffix("'s").strip(_AROUND).partition("(")  # of `torch.compile(model`
    return all(_PLAIN.fullmatch(part) or is_python_name(part) for part in (called, argument))


def is_python_name(word: str) -> bool:
    """Return whether a dotted word is surely a name in Python: `torch.nn.Linear`, `mine.Model` or `adamw.step`.

    A host's name has the same form. So it begins with a known library, or has a class in a module whose name has no
    digits, or is of two words of lmsweep's own; and it does not end as a host's name does.
    """
    if not _DOTTED.fullmatch(word):
        return False
    first, *others = word.split(".")
    if others[-1].lower() in DOMAINS.split():
        return False
    if first in LIBRARIES.split():  # also if it ends in two letters, as torch.mm does
        return True
    if len(others[-1]) == 2:  # the domain of a country
        return False
    has_class = _MODULE.fullmatch(first) is not None and any(_CLASS.fullmatch(one) for one in others)
    own = own_vocabulary().difference(DOMAINS.split(), MACHINES.split())
    return has_class or (len(others) == 1 and own.issuperset(word.lower().split(".")))
