"""Code asks the record of a way, never for its word, so that a new way is one row."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmsweep.trials.spec.config import CONFIG_FIELDS, WORDS
from lmsweep.trials.spec.ways.adapters import ADAPTERS
from lmsweep.trials.spec.ways.checkpointings import CHECKPOINTINGS
from lmsweep.trials.spec.ways.compilations import COMPILATIONS

ROOT = Path(__file__).parent.parent.parent
PRODUCT = [path for folder in ("trials", "analysis", "orchestrator") for path in (ROOT / folder).rglob("*.py")]
RECORDED = {
    "loss": WORDS["loss"],
    "checkpointing": tuple(CHECKPOINTINGS),
    "compile": tuple(COMPILATIONS),
    "adapter": tuple(ADAPTERS),
    "capture": ("step",),
}
"""Fields, with the words whose records code asks."""


def words_asked_for(source: str) -> Iterator[str]:
    """Each comparison of a field with a word that is not its default."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr in RECORDED:
            words = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
            if words & {*RECORDED[node.left.attr]} - {CONFIG_FIELDS[node.left.attr].default}:
                yield ast.unparse(node)


def test_no_code_asks_for_the_word_of_a_way() -> None:
    assert {path: found for path in PRODUCT if (found := [*words_asked_for(path.read_text())])} == {}


@pytest.mark.parametrize(
    "source",
    ['config.compile == "block"', 'c.loss in ("liger", "eager")', 'step.config.checkpointing != "nested"'],
)
def test_a_word_that_code_asks_for_is_found(source: str) -> None:
    assert [*words_asked_for(source)]


def test_whether_a_way_is_chosen_at_all_may_be_asked() -> None:
    assert not [*words_asked_for('config.compile != "none" and config.loss != "eager"')]
