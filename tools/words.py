"""Finds phrases that have a native word: ``python -m tools.words`` checks all tracked files."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

TEXT = (".py", ".md", ".yaml", ".yml", ".toml", ".js", ".css", ".html", ".ipynb", "Makefile")
LEFT_OUT = (
    "tools/words.py",
    "tests/test_words.py",
    "analysis/reference/",
    "orchestrator/features/report/assets/plotly",
)

NATIVE = {
    "of which": "two sentences, or: including",
    "by what": "by category, how, or which",
    "from which(?: [a-z]+)? on": "the minimum for, or: at and above",
    "from then on": "afterwards",
    "(?:is|are) no more": "was removed",
    "manieth": "index",
    "carr(?:y|ies|ied|ying) out": "run",
    "rehears[a-z]*": "dry run",
    "dismiss[a-z]*": "shut down",
    "misfits?": "does not fit",
    "doubts": "flags",
    "gauges?": "metric, or the name of what is measured",
    "ledgers?": "record, or log",
    "members?": "rank",
    "told|tells|telling": "reported, says, or distinguishes",
    "(?:is|are|be|was|were) said": "is reported, or printed",
    "nothing is known": "offers no known",
    "one's own": "your own",
    "the very": "exactly, or the same",
    "as [a-z]+ (?:has|have) it": "name the rule",
    "anew": "again",
    "but for": "except",
    "save for": "except",
    "(?:go|goes|went|going) on": "continues, or resumes",
    "(?:stands|stood) in(?! for)": "is in",
    "ends? well": "succeeds",
    "will do": "works",
    "at hand": "available",
    "(?:hence|there|where)(?:by|in|of|upon|from)": "a sentence of its own",
}
"""Regular expression of a phrase -> what to write. A space matches any whitespace, an underscore or a hyphen."""
PUBLIC = re.compile(
    r"__members__|study\.tell|_?saved?_for_backward|save[_ -]for[_ -]backward|get_?members?\b"
    r"|of which \(\?P|of which [\d.]+ [GM]iB"
)
"""Public terms that contain one."""


class Finding(NamedTuple):
    """A phrase in a file."""

    line: int
    phrase: str
    native: str


GAP = r"(?:[\s_-]|#\s)+"
PHRASES = [(re.compile(rf"(?<![a-z])(?:{one.replace(' ', GAP)})(?![a-z])", re.I), to) for one, to in NATIVE.items()]


def findings(text: str) -> list[Finding]:
    """Return each banned phrase, also across the lines of a comment and within an identifier."""
    text = PUBLIC.sub(lambda term: "." * len(term[0]), text)
    found = [
        Finding(text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), native)
        for phrase, native in PHRASES
        for match in phrase.finditer(text)
    ]
    return sorted(found)


def sources() -> list[Path]:
    """Return the tracked text files."""
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout
    return [
        Path(one)
        for one in tracked.splitlines()
        if one.endswith(TEXT) and not one.startswith(LEFT_OUT) and Path(one).exists()
    ]


def main() -> int:
    """Print the findings as FILE:LINE. Returns the exit code."""
    found = [(file, one) for file in sources() for one in findings(file.read_text("utf-8"))]
    for file, one in found:
        print(f"{file}:{one.line}: “{one.phrase}”: {one.native}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
