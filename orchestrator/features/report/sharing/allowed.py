"""What may be shared of each column: the list is of what is allowed, because nobody can list what is private.

An error keeps the file name, the line, the type, and the words that lmsweep's own source has. Arguments keep numbers
and short words. Any other text gets a pseudonym: `private-1`, `private-2`, ... Equal texts get equal pseudonyms, so
that results that differ stay apart.
"""

import contextlib
import getpass
import json
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lmsweep.orchestrator.features.report.sharing.shared_words import own_words, plain_words
from lmsweep.trials.spec.config import ARGUMENTS
from lmsweep.trials.spec.reference import REFERENCES

EMPTIED = ("host_name", "gpu_uuid", "artifact")
"""Columns that are emptied. An artifact is a file beside the results that may hold anything."""

_PATH = re.compile(
    r"(?<![\w.:/~])(?:~|/|[A-Za-z]:\\)"  # the home folder, the root or a drive; not inside of a word or a URL
    r"[\w.@+ &'#%()-]*(?:[/\\][\w.@+ &'#%()-]+)*"  # folders
    r"[/\\](?=[\w.@+&'#%(-])"  # the last separator, before a name
)
"""The folders of an absolute path: all of it but its last name. Not of a URL."""
_HOME = re.compile(r"(?:/home/|/Users/|\\Users\\)([\w.@+-]+)")
"""A home folder; the group is the name of its user."""

_PLACE = re.compile(
    r"(?:(?:[A-Za-z]:)?[^:]*[/\\])?"  # a drive and folders
    r"(?P<file>[^/\\:]+\.(?:py|ipynb|cu|cuh|cpp|cc|c|h|yaml|yml|json)):(?P<line>\d+)(?:: (?P<rest>.*))?"
)
"""`FOLDER/model.py:12: what went wrong`, as lmsweep places the error of a user's file."""
_FRAME = re.compile(r'^ *File "(?:[^"\n]*[/\\])?(?P<file>[^"/\\\n]+)", line (?P<line>\d+)', re.MULTILINE)
_TYPE = re.compile(r"(?P<module>(?:\w+\.)*)(?P<type>[^\W\d]\w*)(?=: |:?$)")
"""The type that begins the last line of a traceback: `MyError: words`, or alone."""
_TRACEBACK = "Traceback (most recent call last)"

# The shapes of what is no free text. Each length is far above what lmsweep, or a careful user, writes there.
_REFERENCE = re.compile(r"(?:hf:)?[\w.-]+(?:/[\w.-]+)*(?::[\w.]+)?")
_SHORT_WORD = re.compile(r"[A-Za-z][A-Za-z_]{0,23}")
_KEY = re.compile(r"[A-Za-z_][\w.]{0,39}")
_PIN = re.compile(r"[\w\[\],.-]+==[\w.+]+")
_NAME = re.compile(r"[\w .+-]{1,80}")
_HEX = re.compile(r"[0-9a-f]{1,64}")


def shared_error(text: str) -> str:
    """Return the place and the type, `model.py:12: MyError`, or the place and lmsweep's own words.

    a line                                      becomes
    /home/ada/model.py:12: width 7              model.py:12: width 7, and words that are not lmsweep's become GAP
    a traceback alone, MyError at net.py:3      net.py:3: MyError
    /home/ada/model.py:12: MyError: width 7,
      and a traceback below it                  model.py:12: MyError, or the raised type if the line names none
    /home/ada/model.py:12: width 7, and a
      traceback of what lmsweep raised          model.py:12: width 7
    """
    lines = text.strip().splitlines() or [""]
    placed = _PLACE.fullmatch(lines[0])
    said = (placed["rest"] or "") if placed else lines[0]
    if _TRACEBACK not in text:
        return _placed(placed, _words(said))
    frames, raised = [*_FRAME.finditer(text)], _TYPE.match(lines[-1])
    place = placed or (frames[-1] if frames else None)
    if said.startswith("Traceback"):  # a traceback alone
        return _placed(place, raised["type"] if raised else "error")
    if raised and raised["module"].startswith("lmsweep."):
        return _placed(place, _words(said))
    kind = _TYPE.match(said) or raised
    return _placed(place, kind["type"] if kind else "error")


def _placed(place: re.Match[str] | None, words: str) -> str:
    return f"{place['file']}:{place['line']}: {words}".rstrip(": ") if place else words


def _words(said: str) -> str:
    """Return the words of a line that are lmsweep's own, or the one word that is a type of the user's."""
    return said if re.fullmatch(r"[^\W\d]\w*", said) else own_words(said)


def private_words(tables: Iterable[pa.Table]) -> set[str]:
    """Return the names of machines and people that the tables and this process know."""
    found = set()
    for table in tables:
        if "host_name" in table.column_names:
            names = [name for name in pc.unique(table["host_name"]).to_pylist() if name]
            found |= {*names, *(name.partition(".")[0] for name in names)}
        for name in table.column_names:
            for text in _texts(table[name]):
                found |= set(_HOME.findall(text))
    with contextlib.suppress(KeyError, OSError):  # a container may run under a number without a name
        found |= {getpass.getuser(), os.path.basename(os.path.expanduser("~"))}
    # Words of one or two letters stand in many texts, and the last two names on many machines: they give nobody away.
    return {word for word in found if len(word) > 2 and word not in ("root", "localhost")}


def scrub_text(text: str, words: set[str]) -> str:
    """Return the text without these words and without the folders of absolute paths; the last name stays."""
    text = _PATH.sub("", text)
    for word in sorted(words, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", "private", text)
    return text


class Allowed:
    """Replaces what is not allowed, in every table of a store alike."""

    def __init__(self, words: set[str]) -> None:
        self._words = words
        self._pseudonyms: dict[str, str] = {}
        by_shape = dict.fromkeys(("trial_id", "measurement_id", "environment_id", "attempt_id"), _HEX)
        by_shape |= dict.fromkeys(("code_digest", "code_revision", "lmsweep_commit"), _HEX)
        by_shape |= dict.fromkeys((*REFERENCES, "workload"), _REFERENCE)
        by_shape |= dict.fromkeys(("sweep", "phase", "metric"), _NAME)
        self._of_column: dict[str, Callable[[str], str]] = {
            name: lambda text, shape=shape: self._shaped(scrub_text(text, words), shape)  # type: ignore[misc]
            for name, shape in by_shape.items()
        }
        self._of_column |= dict.fromkeys(ARGUMENTS.values(), self._arguments)
        self._of_column |= {
            "error": shared_error,
            "reason": own_words,
            "line": shared_error,
            "question": self._question,
            "software": lambda text: " ".join(self._shaped(one, _PIN) for one in text.split()),
        }

    def table(self, table: pa.Table) -> pa.Table:
        """Return the table with what may be shared of it."""
        for position, name in enumerate(table.column_names):
            column = table[name]
            if name in EMPTIED:
                table = table.set_column(position, table.schema.field(name), pa.nulls(len(table), column.type))
            elif changed := {text: new for text in _texts(column) if (new := self.text(name, text)) != text}:
                values = [_replaced(value, changed) for value in column.to_pylist()]
                table = table.set_column(position, table.schema.field(name), pa.array(values, column.type))
        return table

    def text(self, column: str, text: str) -> str:
        return scrub_text(self._of_column.get(column, str)(text), self._words)

    def _shaped(self, text: str, shape: re.Pattern[str]) -> str:
        """Return the text, or a pseudonym if it has another shape."""
        return text if shape.fullmatch(text) else self._hidden(text)

    def _hidden(self, text: str) -> str:
        return self._pseudonyms.setdefault(text, f"private-{len(self._pseudonyms) + 1}")

    def _arguments(self, text: str) -> str:
        return self._json(text, lambda value: self._values(value, lambda one: self._shaped(one, _SHORT_WORD)))

    def _question(self, text: str) -> str:
        """Return a sweep's question with what readers may see: plain words and names in Python, and in the fields other
        than `ask` also names of columns."""

        def plain(one: str) -> str:
            return plain_words(scrub_text(one, self._words))

        def of_asked(asked: dict[str, Any]) -> Any:
            ask = asked.pop("ask", "")
            named = self._values(asked, lambda one: one if _KEY.fullmatch(one) else plain(one))
            return {"ask": plain(str(ask)), **named}

        return self._json(text, of_asked)

    def _json(self, text: str, changed: Callable[[Any], Any]) -> str:
        """Return JSON with its value changed, or a pseudonym if it is no JSON or has another type."""
        try:
            return json.dumps(changed(json.loads(text)), separators=(",", ":"), ensure_ascii=False)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return self._hidden(text)

    def _values(self, value: Any, of_text: Callable[[str], str]) -> Any:
        """Return a value of JSON with `of_text` applied to its texts, and keys that have the shape of a name."""
        if isinstance(value, dict):
            return {self._shaped(key, _KEY): self._values(one, of_text) for key, one in value.items()}
        if isinstance(value, list):
            return [self._values(one, of_text) for one in value]
        return of_text(value) if isinstance(value, str) else value


def _texts(column: pa.ChunkedArray) -> list[str]:
    kind = column.type
    if pa.types.is_list(kind):
        column, kind = pc.list_flatten(column), kind.value_type
    return [text for text in pc.unique(column).to_pylist() if text] if pa.types.is_string(kind) else []


def _replaced(value: object, changed: dict[str, str]) -> object:
    if isinstance(value, list):
        return [changed.get(text, text) for text in value]
    return changed.get(value, value) if isinstance(value, str) else value
