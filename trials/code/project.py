"""What the pyproject.toml files in the code folder declare: a project need not be installed to be imported."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from configparser import Error as ConfigParserError
from configparser import RawConfigParser
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from lmsweep.trials.spec.reference import Code

UNKNOWN_VERSION = "0+unknown"
"""The version of a project whose build computes it."""


@dataclass(frozen=True, kw_only=True)
class Project:
    file: Path
    name: str
    version: str = UNKNOWN_VERSION
    requires_python: str = ""
    dependencies: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """The dependencies of its extras and groups."""
    sources: dict[str, Any] = field(default_factory=dict)
    """`tool.uv.sources`: where the dependencies that no index has are."""

    def requirement(self, package: str) -> list[str]:
        """Return the arguments for an installer of a dependency, none if the project does not have it."""
        declared = _requirement_of(package, (*self.dependencies, *self.others))
        if declared is None:
            return []
        sources = {canonicalize_name(name): value for name, value in self.sources.items()}
        source = sources.get(canonicalize_name(package), {})
        if isinstance(source, dict) and isinstance(source.get("path"), str):
            return ["-e", str((self.file.parent / source["path"]).resolve())]
        if isinstance(source, dict) and isinstance(source.get("git"), str):
            return [f"{declared.name} @ git+{source['git']}"]
        return [_written(declared)]


def project_files(code: Code) -> list[Path]:
    """Return the pyproject.toml of the code folder, and those of projects in it, as deep as packages/NAME."""
    folder = Path(code.folder)
    patterns = ("pyproject.toml", "[!.]*/pyproject.toml", "[!.]*/[!.]*/pyproject.toml")
    return [file for pattern in patterns for file in sorted(folder.glob(pattern)) if file.is_file()]


def syntax_of(file: Path) -> ast.Module:
    """Return the syntax of a file. Raises SyntaxError if it is no Python, nested too deep, or no plain file."""
    if not file.is_file():
        raise SyntaxError("it is no file")  # a named pipe would never end
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except (RecursionError, MemoryError):
        raise SyntaxError("nested too deep to be read") from None
    except ValueError as error:
        raise SyntaxError(str(error)) from None


def text_of(node: ast.expr) -> str:
    """Return an expression as text, '' if it is nested too deep."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return ""


def projects(code: Code) -> list[Project]:
    """Return the projects of the code folder, itself first. A file that is no TOML declares nothing."""
    found = []
    for file in project_files(code):
        try:
            written = tomllib.loads(file.read_text("utf-8"))
        except (ValueError, OSError, RecursionError):
            continue
        poetry = _table(written, "tool", "poetry")
        said = _table(written, "project") or poetry
        groups = _table(poetry, "group")
        # Their names alone: Poetry writes versions in a syntax of its own.
        by_poetry = [[*_table(one, "dependencies")] for one in (poetry, *(_table(groups, name) for name in groups))]
        others = [said.get("optional-dependencies"), written.get("dependency-groups"), by_poetry]
        if isinstance(said.get("name"), str):
            declared = said.get("dependencies")
            found.append(
                Project(
                    file=file,
                    name=said["name"],
                    version=str(said.get("version", UNKNOWN_VERSION)),
                    requires_python=str(said.get("requires-python", "")),
                    dependencies=tuple(_listed(declared)) if isinstance(declared, list) else (),
                    others=tuple(_listed(others)),
                    sources=_table(written, "tool", "uv", "sources"),
                )
            )
    return found


def _table(written: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the table under these names, empty if there is none."""
    for name in names:
        found = written.get(name)
        written = found if isinstance(found, dict) else {}
    return written


def _written(declared: Requirement) -> str:
    """The requirement without extras and marker. Its address stays: an index may have another package of that name."""
    return f"{declared.name} @ {declared.url}" if declared.url else f"{declared.name}{declared.specifier}"


def _listed(written: object) -> Iterator[str]:
    """Yield the texts in lists, and in mappings of names to lists."""
    if isinstance(written, str):
        yield written
    elif isinstance(written, list | dict):
        for one in written.values() if isinstance(written, dict) else written:
            yield from _listed(one)


_LINES = ("requirements*.txt", "requirements/*.txt", "environment*.y*ml")
"""Files that list one package per line."""
_REQUIRED = ("install_requires", "extras_require")
"""What setup.py and setup.cfg call dependencies."""


def declared_requirement(package: str, code: Code) -> list[str]:
    """Return the arguments for an installer of a package that the projects of the code folder name, else none."""
    for project in projects(code):
        if found := project.requirement(package):
            return found
    folders = dict.fromkeys([Path(code.folder), *(file.parent for file in project_files(code))])
    declared = _requirement_of(package, (text for folder in folders for text in _older_texts(folder)))
    return [_written(declared)] if declared else []


def _requirement_of(package: str, texts: Iterable[str]) -> Requirement | None:
    for text in texts:
        with suppress(InvalidRequirement):
            declared = Requirement(text)
            if canonicalize_name(declared.name) == canonicalize_name(package):
                return declared
    return None


def _older_texts(folder: Path) -> Iterator[str]:
    """Yield what may be requirements in the files that projects have beside pyproject.toml. Runs none of them."""
    for file in (file for pattern in _LINES for file in sorted(folder.glob(pattern)) if file.is_file()):
        for line in file.read_text("utf-8", "replace").splitlines():
            # Without comment, options, and the single = of conda: `- python=3.10` is python, `--index-url x` nothing.
            yield re.split(r"\s#|^#|\s--|(?<![<>=!~])=(?!=)", line.strip().removeprefix("- "))[0].strip("'\" ")
    if (settings := folder / "setup.cfg").is_file():
        read = RawConfigParser(strict=False)
        with suppress(ConfigParserError, UnicodeDecodeError):
            read.read(settings, "utf-8")
        yield from read.get("options", _REQUIRED[0], fallback="").splitlines()
        if read.has_section(f"options.{_REQUIRED[1]}"):
            yield from (line for _, text in read.items(f"options.{_REQUIRED[1]}") for line in text.splitlines())
    if (script := folder / "setup.py").is_file():
        with suppress(SyntaxError):
            for node in ast.walk(syntax_of(script)):
                if isinstance(node, ast.keyword) and node.arg in _REQUIRED:
                    texts = (one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant))
                    yield from (text for text in texts if isinstance(text, str))


def other_python(code: Code) -> str:
    """Return words for an error in the user's code if its project asks for another version of Python, else ''."""
    here = ".".join(map(str, sys.version_info[:3]))
    for project in projects(code):
        try:
            fits = SpecifierSet(project.requires_python).contains(here, prereleases=True)
        except InvalidSpecifier:
            continue
        if not fits:
            file = project.file.relative_to(code.folder)
            return f"; {file} asks for Python {project.requires_python}, and lmsweep runs in {here}"
    return ""


class ProjectFinder(DistributionFinder):
    """Finds the metadata of the projects in the code folder, where no installed distribution has the name."""

    def __init__(self, code: Code) -> None:
        self.code = code

    def find_spec(self, *_: object) -> None:
        """Find no module."""

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterator[Distribution]:
        """Yield the project of the name that is asked for; none without a name, which asks for everything installed."""
        wanted = canonicalize_name((context and context.name) or "")
        return (_StandIn(one) for one in projects(self.code) if canonicalize_name(one.name) == wanted)


class _StandIn(Distribution):
    """A project that is not installed. It has no entry points: a folder must not register what references may call."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        message = Message()
        message["Metadata-Version"] = "2.1"
        message["Name"], message["Version"] = self.project.name, self.project.version
        for text in self.project.dependencies:
            message["Requires-Dist"] = text
        return str(message)

    def locate_file(self, path: Any) -> Path:
        return Path(self.project.file.parent, path)
