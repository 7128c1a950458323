"""What features add to ours: modules in their folders; and packages: records that entry points name."""

import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeVar

from lmsweep.trials.spec.errors import RequestError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Named(Protocol):
    @property
    def name(self) -> str: ...


Kind = TypeVar("Kind", bound=Named)


def feature_modules(name: str) -> Iterator[ModuleType]:
    """Yield the module of this name of each of lmsweep's features that has one. The core imports no feature by name."""
    for path in sorted(Path(__file__).parents[2].glob(f"orchestrator/features/*/{name}.py")):
        yield import_module(f"lmsweep.orchestrator.features.{path.parent.name}.{name}")


def with_offered(ours: Mapping[str, Kind], group: str, kind: type[Kind]) -> dict[str, Kind]:
    """Return our records and those that the entry points of the group name. Raises RequestError if one is wrong."""
    found = dict(ours)
    if not _is_offered(group):
        return found
    from importlib.metadata import entry_points

    for offered in sorted(entry_points(group=group), key=lambda one: one.name):
        record = _load(offered, kind)
        if record.name in found:
            noun = kind.__name__.lower()
            raise RequestError(f"{_describe(offered, kind)} adds a {noun} {record.name}, but there is one already")
        found[record.name] = record
    return found


def _is_offered(group: str) -> bool:
    """Whether a package names the group. `entry_points` would answer too, but takes a sixth of `lmsweep --help`."""
    files = (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt"))
    return any(group.encode() in file.read_bytes() for file in files if os.access(file, os.R_OK))


def _load(offered: "EntryPoint", kind: type[Kind]) -> Kind:
    try:
        record = offered.load()
    except Exception as error:
        why = str(error) if isinstance(error, RequestError) else f"{type(error).__name__}: {error}"
        raise RequestError(f"{_describe(offered, kind)} cannot be loaded ({why}); repair or uninstall it") from error
    if not isinstance(record, kind):
        raise RequestError(f"{_describe(offered, kind)} is a {type(record).__name__}; it must be a {kind.__name__}")
    return record


def _describe(offered: "EntryPoint", kind: type[Named]) -> str:
    package = f" of the package {offered.dist.name}" if offered.dist else ""
    return f"the {kind.__name__.lower()} {offered.value}{package}"
