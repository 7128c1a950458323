"""Parses YAML into plain data and remembers line numbers, so that an error can say where it is.

Scalars follow YAML 1.2: `no` and `on` are strings, only `true` and `false` are booleans, and `010` is 10.0. Merge
keys (`<<: *anchor`) are those of YAML 1.1. Tags are refused, and so is a document that grows without bound when its
aliases are expanded.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import yaml

from lmsweep.trials.spec.config import RequestError

Scalar = str | int | float | bool | None

KeyPath = tuple[str | int, ...]
"""The keys and indices that lead from the top of a document to a value."""

MAX_NODES = 50_000
MAX_DEPTH = 16
"""A few lines of aliases of aliases would otherwise fill the memory."""
MAX_PROBLEMS = 50
"""Maximum number of problems in one message."""

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)")
_FLOAT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_LONG_LIST = re.compile(r" \(one of: [^)]{300,}\)")
_LONGEST_INTEGER = 60  # int() refuses more than 4300 digits; nothing here needs even 20


@dataclass(frozen=True, kw_only=True)
class Problem:
    line: int | None
    """Counted from 1; None if the data is not from a file."""
    path: KeyPath = ()
    message: str

    def text(self, source: str) -> str:
        """Return `FILE:LINE: key path: what is wrong`, on one line."""
        place = source if self.line is None else f"{source}:{self.line}"
        return ": ".join([place, *([path_text(self.path)] if self.path else []), self.message])


@dataclass(kw_only=True)
class Document:
    data: Any = None
    problems: list[Problem] = field(default_factory=list)
    """Errors that did not stop the parser: duplicate keys, and keys that are not scalars."""
    lines: dict[KeyPath, int] = field(default_factory=dict)
    """The line of each key and of each list item."""

    def line(self, path: KeyPath) -> int:
        """Return the line of a value, or of the nearest value around it that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def path_text(path: KeyPath) -> str:
    """Return the path as `grids[0].axes.precision`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if re.fullmatch(r"[\w.-]{1,60}", step) else shown(step))
    return text


def shown(value: object) -> str:
    """Return a value as errors quote it: short, on one line, as written in YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple | dict):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value[:57] + "..." if isinstance(value, str) and len(value) > 60 else value)


def number_in(text: str) -> str | None:
    """Return the text if it would be a number without quotes; 1e400 is none, as no float is so large."""
    bare = text.strip()
    is_number = _INTEGER.fullmatch(bare) or _FLOAT.fullmatch(bare)
    return bare if is_number and isfinite(float(bare)) else None


def refusal(source: str, problems: Iterable[Problem], advice: str = "") -> RequestError:
    """Return an error with one line per problem, in the order of the file, without repetitions, and advice below."""
    # A message about keys of the same name is one line: `f.yaml:4: grids[0].axes.modle: unknown axis (and on line 9)`.
    same: dict[tuple[object, str], list[Problem]] = {}
    for problem in sorted(problems, key=lambda one: one.line or 0):
        name_or_path = problem.path[-1] if problem.path and isinstance(problem.path[-1], str) else problem.path
        same.setdefault((name_or_path, problem.message), []).append(problem)
    lines, already_listed = [], set[str]()
    for first, *others in same.values():
        line = first.text(source)
        if also := dict.fromkeys(str(one.line) for one in others if one.line not in (None, first.line)):
            line += f" (and on line{'s' * (len(also) > 1)} {', '.join(also)})"
        if words := _LONG_LIST.search(line):  # each long list of choices is printed once
            line = line.replace(words[0], "") if words[0] in already_listed else line
            already_listed.add(words[0])
        lines.append(line)
    rest = [f"{source}: and {len(lines) - MAX_PROBLEMS} more"] if len(lines) > MAX_PROBLEMS else []
    return RequestError("\n".join([*lines[:MAX_PROBLEMS], *rest, *filter(None, [advice])]))


def parse(text: str, source: str) -> Document:
    """Parse one YAML document. Raises RequestError if the text is not YAML, or uses features that are refused here."""
    try:
        return _Loader(text).read()
    except _Refused as error:
        problem = Problem(line=_line(error), message=str(error.problem))
    except yaml.MarkedYAMLError as error:
        line, words = _syntax_error(error, text.splitlines())
        problem = Problem(line=line, message=f"not valid YAML: {words}")
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        problem = Problem(line=line, message=f"not valid YAML: the character U+{code:04X} is not allowed")
    raise refusal(source, [problem])


def _line(error: yaml.MarkedYAMLError) -> int:
    mark = error.problem_mark or error.context_mark
    return mark.line + 1 if mark else 1


def _syntax_error(error: yaml.MarkedYAMLError, lines: list[str]) -> tuple[int, str]:
    """The line, and what to write there, else PyYAML's words."""
    line = _line(error)
    began = error.context_mark.line + 1 if error.context_mark else line
    said = ", ".join(part for part in (error.context, error.problem) if part)
    here, before = (lines[at - 1] if 0 < at <= len(lines) else "" for at in (line, line - 1))
    if "character '\\t' that cannot start any token" in said:
        return line, "a tab; indent lines with spaces"
    if comment := next((at for at, one in enumerate(lines[:line], start=1) if one.lstrip().startswith("//")), None):
        return comment, "a comment begins with #"
    if re.search(r"\$\{|\{\{", here):
        return line, "variables are not replaced; write the value, or give it in the command: --set FIELD=VALUE"
    if "<block end>" in said:
        return line, "the indentation does not match that of the lines above"
    if said.startswith("while scanning a quoted scalar"):
        return began, "a quote is opened and not closed"
    if said.startswith(("while parsing a flow sequence", "while parsing a flow mapping")) and "expected ',' or" in said:
        bracket = "[" if "sequence" in said else "{"
        quotes = "; a text with a comma, colon or question mark needs quotes" * said.endswith(("'?'", "':'"))
        return began, f"the bracket {bracket} is not closed, or a comma is missing after an item{quotes}"
    if said == "mapping values are not allowed here":
        if re.fullmatch(r"\s*[\w.]+ +[^:#]+", before):
            key, value = before.split(maxsplit=1)
            return line - 1, f"a colon is missing; write {key}: {value.strip()}"
        return line, f"{said}; is the indentation right?"
    return line, f"{said}; put the value in quotes" if "cannot start any token" in said else said


class _Refused(yaml.MarkedYAMLError):
    def __init__(self, message: str, mark: yaml.Mark) -> None:
        super().__init__(None, None, message, mark)


class _Loader(yaml.SafeLoader):
    """PyYAML's loader for plain data: limited depth and size, also once aliases are expanded; no tags; with lines."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._document = Document()
        self._depth = 0
        self._nodes = 0
        self._merging: list[yaml.Node] = []

    def read(self) -> Document:
        try:
            root = self.get_single_node()
        except (ValueError, OverflowError) as error:
            # PyYAML passes escapes (\U with eight digits) and the version in %YAML to chr() and int() unchecked.
            raise _Refused(f"not valid YAML: {error}", self.get_mark()) from error
        self._nodes = 0  # counted again by `_value`, which follows aliases
        if root is not None:
            self._document.lines[()] = root.start_mark.line + 1
            self._document.data = self._value(root, ())
        return self._document

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None):
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise _Refused(f"the tag {shown(tag)} is not allowed; a sweep is plain data", event.start_mark)
        self._depth += 1
        self._count(event.start_mark, self._depth)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _count(self, mark: yaml.Mark, depth: int, when: str = "") -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _Refused(f"more than {MAX_NODES} values{when}", mark)
        if depth > MAX_DEPTH:
            raise _Refused(f"nested more than {MAX_DEPTH} deep{when}", mark)

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._count(node.start_mark, len(path), " once aliases are followed")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if not isinstance(node, yaml.SequenceNode):
            return _scalar(node)
        for index, item in enumerate(node.value):
            self._document.lines[*path, index] = item.start_mark.line + 1
        return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        data = self._merged(node, path)
        given: set[str] = set()
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if _is_merge(key_node):
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(line, path, "a key must be a single word, not a list or a mapping")
                continue
            key = _text(key_node)
            if key in given:
                first = self._document.lines[*path, key]
                self._problem(line, (*path, key), f"the key is given twice, first on line {first}")
                continue
            given.add(key)
            self._document.lines[*path, key] = line
            data[key] = self._value(value_node, (*path, key))
        return data

    def _merged(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        """Return what merge keys bring in, with its lines until `_mapping` notes those here. The first mapping wins."""
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not _is_merge(key_node):
                continue
            for source in reversed(value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]):
                if not isinstance(source, yaml.MappingNode):
                    line = key_node.start_mark.line + 1
                    self._problem(line, path, "<< merges mappings; write <<: *anchor, or <<: [*one, *other]")
                    continue
                if source in self._merging:
                    raise _Refused("<< merges a mapping with itself", key_node.start_mark)
                self._merging.append(source)
                data |= self._mapping(source, path)
                self._merging.pop()
        return data

    def _problem(self, line: int, path: KeyPath, message: str) -> None:
        self._document.problems.append(Problem(line=line, path=path, message=message))


def _is_merge(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and key.style is None


def _text(node: yaml.Node) -> str:
    text: str = node.value
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _Refused("not valid Unicode: half of a surrogate pair", node.start_mark)
    return text


def _scalar(node: yaml.Node) -> Scalar:
    text = _text(node)
    if getattr(node, "style", None) is not None:  # quoted
        return text
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if not number_in(text):
        return text
    return int(text) if _INTEGER.fullmatch(text) and len(text) <= _LONGEST_INTEGER else float(text)
