"""What names and signatures of the product say: what is taken and returned, what is private, and who alone may."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.product import ROOT, TORCH_PRIVATE, dotted, files, touches, tree_of

FEWEST_NAMED = 3
"""Minimum number of elements for which a tuple in a public signature must be a NamedTuple or a dataclass."""
UNTYPED = {
    "trials.analytic.formulas.Number": "an int, a NumPy array or a pandas Series: mixed arithmetic has no common type",
    "trials.prediction.compiled.aot_graph.returned": "what an fx graph returns: nodes, None or constants",
}
"""Public functions, and names for a type, that may say `Any`: each with the object that passes through."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
    """Functions and methods without a leading underscore in their name or their class's, and `__init__`; Python and
    PyTorch give the signatures of other methods such as `__exit__` and `__torch_function__`.
    """
    for node in body:
        if isinstance(node, Function) and (not node.name.startswith("_") or node.name == "__init__"):
            yield f"{prefix}.{node.name}", node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body, f"{prefix}.{node.name}")


def is_name(node: ast.AST | None, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def says_any(annotation: ast.AST) -> bool:
    """Whether `Any` occurs other than in `dict[str, Any]`, which is an object of JSON or a set of keyword arguments."""
    if is_name(annotation, "Any"):
        return True
    if ast.unparse(annotation) == "dict[str, Any]":
        return False
    return any(says_any(child) for child in ast.iter_child_nodes(annotation))


def has_unnamed_tuple(annotation: ast.AST) -> bool:
    """Whether a `tuple` of three or more elements occurs; `tuple[X, ...]` is a sequence."""
    return any(
        isinstance(node, ast.Subscript)
        and is_name(node.value, "tuple")
        and isinstance(node.slice, ast.Tuple)
        and len(node.slice.elts) >= FEWEST_NAMED
        for node in ast.walk(annotation)
    )


def returns_text_for_an_error(returned: ast.AST | None) -> bool:
    """Whether a `str` is one of two results: what is asked for, or else the reason why not. `str | None` is one."""
    if not (isinstance(returned, ast.BinOp) and isinstance(returned.op, ast.BitOr)):
        return False
    alternatives = set(re.split(r"\s*\|\s*", re.sub(r"\[.*\]", "", ast.unparse(returned))))
    return "str" in alternatives and bool(alternatives - {"str", "None"})


def annotations_of(function: Function) -> list[ast.expr]:
    taken = function.args
    parameters = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs, *filter(None, [taken.vararg])]
    found = [*(one.annotation for one in parameters), function.returns]
    # What `**options: Any` takes is given on as keyword arguments.
    if taken.kwarg and not is_name(taken.kwarg.annotation, "Any"):
        found.append(taken.kwarg.annotation)
    return [one for one in found if one]


def vague_signatures(tree: ast.Module, prefix: str) -> list[str]:
    """Each public function whose annotations do not say what it takes or returns, and why not; likewise each name for a
    type: `Number = Any` is no way around the rule.
    """
    aliases = (one for one in tree.body if isinstance(one, ast.Assign))
    types = (ast.Name, ast.Subscript, ast.BinOp)
    asked = [
        (f"{prefix}.{ast.unparse(one.targets[0])}", [one.value]) for one in aliases if isinstance(one.value, types)
    ]
    functions = dict(public_functions(tree.body, prefix))
    asked += [(name, annotations_of(function)) for name, function in functions.items()]
    found = [f"{name}: Any" for name, given in asked if any(map(says_any, given))]
    found += [f"{name}: unnamed tuple" for name, given in asked if any(map(has_unnamed_tuple, given))]
    return found + [
        f"{name}: str for an error" for name, one in functions.items() if returns_text_for_an_error(one.returns)
    ]


def test_signatures_of_public_functions_say_what_they_take_and_return_and_every_exception_is_needed():
    found = {one for path in files() for one in vague_signatures(tree_of(path), dotted(path))}
    untyped = "trials.machine.torch_private."  # PyTorch's private objects have no public type
    assert {one for one in found if not one.startswith(untyped)} == {f"{name}: Any" for name in UNTYPED}


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("def f(x: list[Any]) -> int", "Any"),
        ("def f() -> tuple[int, int, int]", "unnamed tuple"),
        ("def f(*x: list[tuple[int, int, int]]) -> int", "unnamed tuple"),
        ("def f() -> str | int | None", "str for an error"),
    ],
)
def test_a_vague_signature_is_found(signature, why):
    source = f"{signature}: ...\nclass C:\n    {signature}: ..."
    assert vague_signatures(ast.parse(source), "m") == [f"m.f: {why}", f"m.C.f: {why}"]


MOST_NAMES = 8
"""Of the product, that a test of predictions imports."""


def test_tests_of_predictions_ask_through_few_names():
    for path in (ROOT / "tests" / "prediction").glob("test_*.py"):
        nodes = [one for one in ast.walk(tree_of(path)) if isinstance(one, ast.ImportFrom)]
        ours = [one for one in nodes if f"{one.module}.".startswith("lmsweep.")]
        assert len({(one.module, name.name) for one in ours for name in one.names}) <= MOST_NAMES, path


PUBLIC_UNDERSCORES = {"_repr_html_", "_asdict", "_replace", "_fields", "_value_"}
"""Names of Python's own named tuples and enums."""


def private_names_of_torch(tree: ast.Module) -> list[str]:
    """Each import, attribute or module name in a module that PyTorch keeps private.

    An attribute is another's if it begins with one underscore and the file neither defines nor sets it.
    """
    ours = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    ours |= {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_name(node.value, "self")
    }
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "torch":
                full = [f"{module}.{name.name}" for name in names]
            case ast.Import(names=names):
                full = [name.name for name in names if name.name.partition(".")[0] == "torch"]
            case ast.Constant(value=str(text)) if re.fullmatch(r"torch(\.\w+)+", text):
                full = [text]
            case ast.Attribute(attr=attr, value=value) if not is_name(value, "os", "sys", "functools"):
                full = [attr] if attr not in ours | PUBLIC_UNDERSCORES else []
            case _:
                continue
        found += [name for name in full if any(re.match(r"_[A-Za-z]", part) for part in name.split("."))]
    return found


def test_one_module_knows_the_private_names_of_torch():
    with_torch = [path for path in files("orchestrator") if touches(path, "torch")]
    paths = {*files("trials"), *with_torch}
    assert [path for path in paths if private_names_of_torch(tree_of(path))] == [TORCH_PRIVATE]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("XDG_CACHE_HOME", ["trials/machine/scratch.py"]),
        # The system's clock may jump. It says only when something began, and how old a file is.
        (r"\btime\.time\(", ["orchestrator/cluster/autoscaler.py", "trials/store/local_folder.py"]),
        # `record_json` writes the fields of a record, and `json_schemas` describes them.
        ("as_json|as_values", []),
    ],
    ids=["cache folder", "clock of the system", "JSON of a record"],
)
def test_what_one_module_owns_no_other_asks_for(text, places):
    asks = [path.relative_to(ROOT).as_posix() for path in files() if re.search(text, path.read_text())]
    assert sorted(asks) == places


DEFINED = re.compile(r"^ *(?:(?:async )?def|class) (_[a-zA-Z]\w*)|^ *(?:self\.)?(_[a-zA-Z]\w*)(?:: [^=\n]+)? = ", re.M)
"""A function, class, variable or attribute of a name with one underscore, where it is defined."""


def private_names(source: str) -> set[str]:
    return {name for names in DEFINED.findall(source) for name in names if name} - PUBLIC_UNDERSCORES


def test_tests_use_no_private_name_of_the_product():
    ours = [path for path in files() if not path.stem.endswith("_private")]
    private = set().union(*(private_names(path.read_text()) for path in ours))
    for path in sorted((ROOT / "tests").rglob("*.py")):
        source = path.read_text()
        used = set(re.findall(r"\.(_[a-zA-Z]\w*)\b|lmsweep[\w.]* import (_\w+)", source))
        found = {name for names in used for name in names} & private - private_names(source)
        assert not found - {"_exit"}, path
