"""The files of the product: what each imports and defines."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAY_IMPORT = {
    "trials": ("trials",),
    "analysis": ("trials", "analysis"),
    "orchestrator": ("trials", "analysis", "orchestrator"),
}
"""The packages, and those that each may import from."""
TORCH_PRIVATE = ROOT / "trials" / "machine" / "torch_private.py"


def files(*packages: str, root: Path = ROOT) -> list[Path]:
    """The modules of these packages, of all if none is named, without the `__init__` of a package itself."""
    found = (path for package in packages or MAY_IMPORT for path in (root / package).rglob("*.py"))
    return sorted(path for path in found if path.parent.parent != root or path.stem != "__init__")


def dotted(path: Path, root: Path = ROOT) -> str:
    """The name of a module, without `lmsweep.`."""
    return ".".join(path.relative_to(root).with_suffix("").parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def words_of(path: Path) -> str:
    """The docstring of a module."""
    return ast.get_docstring(tree_of(path)) or ""


def rooms(package: str, root: Path = ROOT) -> list[str]:
    """The rooms of a package as its docstring lists them, from the top down."""
    return re.findall(r"^    (\w+)  ", words_of(root / package / "__init__.py"), flags=re.MULTILINE)


@cache
def imports(path: Path) -> set[str]:
    """Every module that the file imports anywhere, by its full name; ours without `lmsweep.`."""
    return imported_by(ast.walk(tree_of(path)))


def imported_by(nodes: Iterable[ast.AST]) -> set[str]:
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return {name.removeprefix("lmsweep.") for name in found}


def touches(path: Path, *packages: str) -> set[str]:
    """What the file imports of these packages."""
    return {name for name in imports(path) if name.partition(".")[0] in packages}
