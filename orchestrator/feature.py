"""What a feature registers, and all that are there: the folders of `features`, and those that packages add."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from itertools import chain
from math import inf
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal, cast

from lmsweep.trials.spec.errors import RequestError
from lmsweep.trials.spec.offered import with_offered
from lmsweep.trials.spec.suggestions import choices

if TYPE_CHECKING:
    from lmsweep.trials.results.record import Record

ENTRY_POINTS = "lmsweep.features"
"""The entry point group through which an installed package adds features."""

Tracker = AbstractContextManager[Callable[[str, Sequence["Record"]], None]]
"""Its context gives a function that is called for each trial as it ends: with its name in the run, and its records."""


@dataclass(frozen=True, kw_only=True)
class Feature:
    """Loaded by every command: what is slow to import is named as MODULE:NAME, or imported inside of the verb."""

    name: str
    place: float = inf
    """Where help lists its verbs: the core's run, table, compare are at 1, 2, 3. Last by default."""
    verbs: tuple[Callable[..., None], ...] = ()
    """A verb is a function as typer takes it, with an example at the end of its docstring."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Verb, or verb and option (`plan --explain`) -> MODULE:NAME of the record that its `--format json` prints."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """Verb -> MODULE:NAME of the function that makes such a record an HTML page, for `lmsweep report FILE.json`."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """NAME -> MODULE:NAME of the function that is `lmsweep.NAME`."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Sweep -> MODULE:NAME of the function that answers its question of a store: a sentence, and further ones."""
    trackers: Mapping[str, str] = field(default_factory=dict)
    """NAME, of `run --tracker NAME` -> MODULE:NAME of what returns a `Tracker`."""
    environments: Mapping[str, str] = field(default_factory=dict)
    """Function of software.py -> MODULE:NAME of that of the feature."""
    extends: Callable[[Callable[..., None]], Callable[..., None]] = lambda verb: verb
    """Adds options to a verb, of whichever feature, by `with_option`."""


@cache
def features() -> dict[str, Feature]:
    """Return lmsweep's features and those of installed packages, by name. Raises RequestError if one is wrong."""
    folders = sorted(path.parent.name for path in Path(__file__).parent.glob("features/*/__init__.py"))
    ours = {name: import_module(f"{__package__}.features.{name}").feature for name in folders}
    return with_offered(ours, ENTRY_POINTS, Feature)


def registered(
    kind: Literal["outputs", "pages", "functions", "answers", "trackers", "environments"], core: Collection[str] = ()
) -> dict[str, str]:
    """Return what all features register of this kind. Raises RequestError for a name that the core or another has."""
    found: dict[str, str] = {}
    for feature in features().values():
        ours: Mapping[str, str] = getattr(feature, kind)
        if again := ours.keys() & {*found, *core}:
            raise RequestError(f"the feature {feature.name} adds {min(again)} to {kind}, but there is one already")
        found |= ours
    return found


@cache
def packaged_sweeps() -> dict[str, str]:
    """Return the YAML of each packaged sweep by name. A feature's file with the name of a core one adds its grids."""
    found: dict[str, str] = {}
    root = Path(__file__).parent
    for path in chain(sorted(root.glob("sweeps/*.yaml")), sorted(root.glob("features/*/*.yaml"))):
        found[path.stem] = found.get(path.stem, "") + path.read_text("utf-8")  # more items of `grids`, its last key
    return dict(sorted(found.items()))


def check_function(name: str, option: str) -> None:
    """Raise RequestError if no feature has the function that an option of another needs."""
    if name not in registered("functions"):
        raise RequestError(f"{option}: no feature that is here has the function {name}")


def with_option(
    verb: Callable[..., None], name: str, annotation: object, call: Callable[..., None], default: object = False
) -> Callable[..., None]:
    """Return the verb with one more option. call: takes its value, then all that the verb takes."""
    own = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in signature(verb).parameters.values()]
    option = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    @wraps(verb)
    def changed(**given: object) -> None:
        call(given.pop(name), **given)

    vars(changed)["__signature__"] = Signature([*own, option])
    changed.__annotations__ = verb.__annotations__ | {name: annotation}
    return changed


def tracker_named(name: str) -> Tracker:
    """Return the tracker of `run --tracker NAME`. Raises RequestError if there is none, or its library is missing."""
    known = registered("trackers")
    if name not in known:
        raise RequestError(f"--tracker {name}: there is no such tracker{choices(name, known)}")
    return cast(Tracker, resolve_name(known[name])())
