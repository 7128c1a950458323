"""The forms of the field `lengths`, and what is wrong with one.

1024                         packed documents of about so many tokens, the same in every row; read as document_length
lognormal(400, 0.8, 2048)    its median, its sigma, and the longest, to which longer ones are cut
uniform(16, 512)             whole numbers from the first to the second
chats.parquet:input_ids      a file, and its column; with @DIGEST once it has been read
"""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from lmsweep.trials.lengths.length_files import counts_in, digest_of
from lmsweep.trials.spec.config import LARGEST_COUNT, TrialConfig
from lmsweep.trials.spec.errors import RequestError

_CALL = re.compile(r"(\w+) ?\((.*)\)")
_FILE = re.compile(r"(?P<path>.+?)(?::(?P<column>[^:/@]+))?(?:@(?P<digest>[0-9a-f]{12}))?")


@dataclass(frozen=True, kw_only=True)
class Distribution:
    name: str
    numbers: tuple[float, ...]

    @property
    def longest(self) -> int:
        return int(self.numbers[-1])

    @property
    def text(self) -> str:
        return f"{self.name}({', '.join(f'{number:.15g}' for number in self.numbers)})"


@dataclass(frozen=True, kw_only=True)
class LengthFile:
    path: Path
    column: str | None = None
    digest: str | None = None
    """Of the content that was read when the trial was asked for; `stream` compares it with that of the file."""

    @property
    def longest(self) -> int:
        return int(counts_in(self.path, self.column).max())

    @property
    def text(self) -> str:
        """The file with the digest of its present content, by which a change of the file is noticed."""
        return f"{self.path}{f':{self.column}' if self.column else ''}@{digest_of(self.path)}"


PARAMETERS = {"lognormal": ("median", "sigma", "max"), "uniform": ("a", "b")}
"""Distribution -> its parameters, the longest length last."""


def read_lengths(text: str) -> Distribution | LengthFile:
    """Return the distribution or the file that a text names. Raises RequestError if it is none."""
    call = _CALL.fullmatch(text.strip())
    if not call or call[1] not in PARAMETERS:
        named = _FILE.fullmatch(text.strip())
        if call or not named:
            raise RequestError(
                f"lengths: {text!r} is none of: lognormal(median, sigma, max), uniform(a, b), a file of token counts"
            )
        return LengthFile(path=Path(named["path"]), column=named["column"], digest=named["digest"])
    try:
        numbers = tuple(float(word) for word in call[2].split(","))
    except ValueError:
        numbers = ()
    names = PARAMETERS[call[1]]
    if len(numbers) != len(names):
        raise RequestError(f"lengths: {text!r} is not {call[1]}({', '.join(names)}) with numbers")
    if call[1] == "lognormal" and not 0 <= numbers[1] < math.inf:
        raise RequestError(f"lengths: {text!r} has the sigma {numbers[1]:g}: write a number from 0, such as 0.8")
    first, last = numbers[0], numbers[-1]
    if not 1 <= first <= last or first % 1 or last % 1:
        raise RequestError(f"lengths: {text!r} needs {names[0]} <= {names[-1]}, whole numbers from 1")
    if last > LARGEST_COUNT:
        raise RequestError(f"lengths: {text!r} has lengths above {LARGEST_COUNT}")
    return Distribution(name=call[1], numbers=numbers)


def with_lengths(config: TrialConfig) -> TrialConfig:
    """Return the configuration with its `lengths` read and in the one way to write them. Raises RequestError if they
    cannot be drawn, or are longer than a row or the budget of a batch."""
    if config.lengths is None or config.document_length is not None:
        return config
    read = read_lengths(config.lengths)
    longest = read.longest
    if longest > config.context_length:
        raise RequestError(
            f"lengths: the longest document of {config.lengths} has {longest} tokens, above the "
            f"{config.context_length} positions of the model; set context_length={longest}, or cut the documents as "
            "your trainer does"
        )
    if config.batching == "token_budget" and longest > (config.batch_tokens or 0):
        raise RequestError(
            f"batch_tokens is {config.batch_tokens or 'not given'}, and the longest document of {config.lengths} has "
            f"{longest} tokens; set batch_tokens to at least {longest}"
        )
    return replace(config, lengths=read.text)
