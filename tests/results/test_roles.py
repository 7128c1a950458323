"""What each field of a configuration means, and that it is written once."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmsweep.trials.isolation.precompile import graphs_of
from lmsweep.trials.results.roles import AXES, FIELDS, JOB, MODEL, Reader, Role, fields_with
from lmsweep.trials.spec.config import ARGUMENTS, COMBINATION_FIELDS, CONFIG_FIELDS, TrialConfig
from tests.support.whole_steps import small

ROOT = Path(__file__).parent.parent.parent
WRITERS = (
    "orchestrator/features/accept/parts.py",
    "analysis/tables",
    "analysis/presets",
    "analysis/metrics",
    "orchestrator/features/report",
    "orchestrator/features/beside",
    "orchestrator/features/limits",
    "orchestrator/features/best/answer_text.py",
    "orchestrator/features/best/transfer.py",
)
"""They choose which columns a table shows or an answer reads."""
SOURCES = ("trials/results/roles.py", "trials/spec/rules", "trials/spec/config.py", "trials/spec/reference.py")
"""They say it."""
FEWEST = 5
"""Fields that make a tuple a list of what fields mean."""


def lists_of_fields(tree: ast.Module) -> Iterator[ast.expr]:
    """The tuples, lists and sets that hold names of fields and nothing but names, and mappings from fields to such."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set) and all(map(is_field, named := without_stars(node.elts))):
            names = named
        elif isinstance(node, ast.Dict) and all(is_name_of_fields(value) for value in node.values):
            names = [key for key in node.keys if key is not None and is_field(key)]
        else:
            continue
        if len(names) >= FEWEST:
            yield node


def is_field(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in CONFIG_FIELDS


def is_name_of_fields(node: ast.expr) -> bool:
    return is_field(node) or (isinstance(node, ast.Tuple) and all(map(is_field, without_stars(node.elts))))


def without_stars(nodes: list[ast.expr]) -> list[ast.expr]:
    return [one for one in nodes if not isinstance(one, ast.Starred)]


def kept_by_hand(root: Path) -> list[str]:
    packages = [root / name for name in ("trials", "orchestrator", "analysis")]
    paths = [path for package in packages for path in sorted(package.rglob("*.py"))]
    return [
        f"{where}:{node.lineno}"
        for path in paths
        if not (where := str(path.relative_to(root))).startswith((*WRITERS, *SOURCES))
        for node in lists_of_fields(ast.parse(path.read_text()))
    ]


def test_each_field_has_one_role() -> None:
    assert set(FIELDS) == set(CONFIG_FIELDS)
    assert {name for name in FIELDS if FIELDS[name].of} == set(fields_with(Role.ARGUMENT))
    assert {*ARGUMENTS.values()} <= set(fields_with(Role.ARGUMENT))
    assert not set(JOB) & set(AXES) and set(MODEL) <= set(JOB)


def test_what_an_identifier_hashes_is_what_is_neither_a_name_nor_the_protocol() -> None:
    others = {"mode", *fields_with(Role.LABEL, Role.PROTOCOL, Role.LIMIT)}
    assert set(COMBINATION_FIELDS) == set(CONFIG_FIELDS) - others


def test_no_other_list_of_fields_is_kept_by_hand() -> None:
    assert kept_by_hand(ROOT) == []


def test_a_list_of_fields_is_found(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "one.py").write_text('WAYS = ("precision", "compile", "attention", "loss", "tp", *MORE)\n')
    assert kept_by_hand(tmp_path) == ["trials/one.py:1"]


NO_GRAPH = [name for name in FIELDS if FIELDS[name].reader != Reader.GRAPH]
"""A micro-batch of `accumulate` is another shape all the same; `model` is a name, and a limit is kept."""


@pytest.mark.parametrize("name", [name for name in NO_GRAPH if name not in ("model", "accumulate", "timeout_seconds")])
def test_trials_that_differ_in_what_no_graph_depends_on_share_one(name: str) -> None:
    plain = small(compile="block", world_size=4, batch_size=4, timeout_seconds=9)
    others = {"ddp": "naive", "collective": "broadcast", "gather": "bf16", "profiler": "nsys", "capture": "step"}
    others |= {"zero_grad": "before_backward", "optimizer": "sgd", "reshard": "2", "cold_l2": True}
    value = others.get(name, '{"a":1}' if name.endswith("_args") else 2)
    assert len(graphs_of([plain, TrialConfig(**vars(plain) | {name: value})])) == 1
