"""The tour of the code in docs/architecture.md: it names every room and verb, and its walks read downwards."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from lmsweep.orchestrator.commands.app import app
from tests.support.command import GROUP
from tests.support.product import MAY_IMPORT, ROOT, tree_of

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
STEP = re.compile(r"^\d+\. \[[^]]+\]\(\.\./([\w/.]+)\)(.*)$", flags=re.MULTILINE)
"""A line of a walk: a file, and its functions up to the first that is described otherwise."""


def test_the_tour_names_every_room_and_every_verb_and_is_read_in_six_minutes() -> None:
    rooms = [one.parent.relative_to(ROOT) for package in MAY_IMPORT for one in (ROOT / package).glob("*/__init__.py")]
    assert not [room for room in rooms if f"](../{room})" not in PAGE]
    group: Any = GROUP(app)
    assert not [verb for verb in group.commands if not re.search(rf"\b{verb}\b", PAGE.partition("┌")[0])]
    assert len(PAGE.split()) <= 1200


def walks() -> dict[str, list[tuple[Path, list[str]]]]:
    """Verb -> the files of its walk, each with the functions that the line names, from the verb to the end."""
    found = re.findall(r"^`(\w+)`:\n\n((?:\d+\. .*\n)+)", PAGE, flags=re.MULTILINE)
    return {
        verb: [(ROOT / path, re.findall(r"`(\w+)`", words.partition(":")[0])) for path, words in STEP.findall(lines)]
        for verb, lines in found
    }


def definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """The functions and classes of a module, by name, in their order."""
    return {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}


def uses(node: ast.stmt) -> set[str]:
    """The names that a function or a class reads and does not give to something of its own."""
    names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
    own = {one.id for one in names if isinstance(one.ctx, ast.Store)}
    own |= {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
    return {one.id for one in names} - own


def reach(path: Path, name: str) -> set[str]:
    """What a function uses, and what it uses of its module uses."""
    there, found, left = definitions(tree_of(path)), set(), [name]
    while left:
        new = uses(there[left.pop()]) - found
        found |= new
        left += new & there.keys()
    return found


def climbs(tree: ast.Module) -> list[str]:
    """Where a function of the module calls one that stands above it."""
    functions = {name: one for name, one in definitions(tree).items() if isinstance(one, ast.FunctionDef)}
    names = [*functions]
    return [
        f"{name} calls {above}"
        for place, name in enumerate(names)
        for above in names[:place]
        if above in uses(functions[name])
    ]


def test_four_verbs_have_walks_of_at_most_ten_lines() -> None:
    assert [*walks()] == ["plan", "run", "best", "fits"] and all(1 < len(steps) <= 10 for steps in walks().values())


@pytest.mark.parametrize("verb", walks())
def test_a_walk_begins_at_its_verb_calls_what_it_names_and_reads_downwards(verb: str) -> None:
    """That no call leads to a room above, tests/test_floors.py checks of all imports."""
    before: list[tuple[Path, str]] = []
    for path, names in walks()[verb]:
        assert path.exists() and {*names} <= definitions(tree_of(path)).keys(), f"{path} defines no {names}"
        for name in names:
            is_called = any(name in reach(*one) for one in before if one != (path, name))
            assert is_called or (not before and name == verb), (
                f"nothing on the walk before {name} of {path.name} calls it"
            )
            before.append((path, name))
    ours = {path for path, _ in walks()[verb] if path.is_relative_to(ROOT / "orchestrator")}
    assert [f"{path}: {climb}" for path in ours for climb in climbs(tree_of(path))] == []


def test_a_call_of_a_function_that_stands_above_is_found() -> None:
    assert climbs(ast.parse("def up(): ...\ndef down(): up()\n")) == ["down calls up"]
