"""Reads the software of a trial: which releases its environment has instead of those that are installed.

    software: [installed, {torch: 2.12.0}, {torch: 2.13.0, triton: 3.7.1}, "torch==2.14.0", ./envs/nightly.txt]

A sweep file may come from a stranger, and a package from an index runs code once it is installed. So a requirement is
a name with an exact version, without address, path, option or marker, of a package that the user has chosen: it is
installed already, is named by --trust, or is in a file of the code folder.
"""

import importlib.metadata
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from lmsweep.orchestrator.software import INSTALLED
from lmsweep.orchestrator.sweep.located_yaml import shown
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.spec.software_pins import pinned

FILE_SUFFIX = ".txt"
"""Suffix of files with requirements."""
MOST_BYTES = 100_000
"""Size of the largest file of requirements that is read."""
MOST_REQUIREMENTS = 32
"""Maximum number of requirements of one environment. Its other packages are the installed ones."""

NOT_REPLACEABLE = {
    "lmsweep": "lmsweep measures with itself",
    "python": "the environments have the Python that runs lmsweep",
}
"""Names that cannot be a requirement, and why."""

USUAL_PACKAGES = ("torch", "triton")
"""Packages that a sweep file may name even where they are not installed, as on a cluster's head."""


def requirements_of(value: object) -> str:
    """Return the requirements that a value of the field states, or the name of a file with them. Raises ValueError."""
    if isinstance(value, dict):
        for name, version in value.items():
            if not isinstance(version, str) or not isinstance(name, str):
                raise ValueError(
                    f"{name}: {version} is not text; write the version with all its parts or in quotes, as in "
                    "{torch: 2.12.0} (2.10 without quotes is the number 2.1)"
                )
        return canonical_software(f"{name}=={version}" for name, version in value.items())
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not software; write {{torch: 2.12.0}}, {INSTALLED}, or a file's name")
    return value if value.endswith(FILE_SUFFIX) else canonical_software(value.split())


def with_files_read(trials: tuple[Trial, ...], folder: str | None, trusted: Iterable[str] = ()) -> tuple[Trial, ...]:
    """Return the trials with the requirements of files, in the code folder, in place of their names. Raises
    RequestError if a file cannot be read, and for a package that is neither installed nor trusted."""
    texts: dict[str | None, str] = {}
    for name in dict.fromkeys(trial.config.software for trial in trials):
        if name and name.endswith(FILE_SUFFIX):
            texts[name] = _of_file(name, folder or ".")
        elif name:
            _check_chosen(name, trusted)
    return tuple(
        replace(trial, config=replace(trial.config, software=texts[trial.config.software]))
        if trial.config.software in texts
        else trial
        for trial in trials
    )


def _check_chosen(software: str, trusted: Iterable[str]) -> None:
    for name in pinned(software).keys() - {*USUAL_PACKAGES, *map(canonicalize_name, trusted)}:
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise RequestError(
                f"software: {name} is not installed here, so a sweep file alone cannot have it installed; if you know "
                f"the package, add --trust {name}"
            ) from None


def canonical_software(requirements: Iterable[str]) -> str:
    """Return requirements, each `name==version`, in the one way to write them. Raises ValueError for others."""
    found: dict[str, str] = {}
    for text in requirements:
        try:
            read = Requirement(text)
            if read.url or read.marker or [one.operator for one in read.specifier] != ["=="]:
                raise InvalidRequirement
            version = Version(next(iter(read.specifier)).version)
        except (InvalidRequirement, InvalidVersion):
            raise ValueError(
                f"{text!r} is not a requirement with an exact version; write name==version, without address, path, "
                "option or marker"
            ) from None
        name = canonicalize_name(read.name)
        if name in NOT_REPLACEABLE:
            raise ValueError(f"{text!r}: {NOT_REPLACEABLE[name]}")
        if name in found:
            raise ValueError(f"{name} is given twice")
        extras = f"[{','.join(sorted(map(canonicalize_name, read.extras)))}]" if read.extras else ""
        found[name] = f"{name}{extras}=={version}"
    if not found:
        raise ValueError(f"there is no requirement; write name==version, or {INSTALLED}")
    if len(found) > MOST_REQUIREMENTS:
        raise ValueError(
            f"{len(found)} requirements are too many (at most {MOST_REQUIREMENTS}); name those that differ, the others "
            "are installed already"
        )
    return " ".join(found[name] for name in sorted(found))


def _of_file(name: str, folder: str) -> str:
    root = Path(code_folder(folder).folder).resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise RequestError(f"software: {name} leads out of the code folder {root}; copy the file there")
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise RequestError(f"software: {path} is too large for a file of requirements")
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RequestError(f"software: cannot read {path}: {reason} (--code names the folder)") from None
    found: list[str] = []
    try:
        for number, line in enumerate(text.splitlines(), start=1):
            place = f"{path}:{number}"
            requirement = line.partition("#")[0].strip()
            found += [canonical_software([requirement])] if requirement else []
        place = str(path)
        return canonical_software(found)
    except ValueError as error:
        raise RequestError(f"{place}: {error}") from None
