"""The software of a machine: what must be the same on all nodes of a cluster, so that they measure the same thing."""

import hashlib
import importlib.metadata
import sys
from collections.abc import Mapping
from pathlib import Path

from lmsweep.trials.spec.workloads import outside_packages

PACKAGES = ("trials", "orchestrator", "analysis")
"""The packages of this project."""

LIBRARIES = ("torch", "triton", "ray", "numpy", "pyarrow", "nvtx", "nvidia-ml-py")
"""The libraries that measure, or carry what was measured."""

MOST_NAMES = 5
"""Differing files that a message names."""


def software() -> dict[str, str]:
    """What is installed here, by name: Python, libraries, and each file of this project by its hash.

    A build's suffix is left out (torch 2.11.0 of 2.11.0+cu130): a head without a GPU may have another build, and what a
    trial ran with is in its rows. A library that is not installed is left out too, as some exist on GPU machines only.
    """
    found = {"Python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in (*LIBRARIES, *sorted(outside_packages())):
        try:
            found[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    root = Path(__file__).parents[2]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
            found[str(path.relative_to(root))] = digest
    return found


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """What differs, in words: `torch 2.12.0 instead of 2.13.0`, `other code in trials/timing/clock.py`."""
    libraries = [name for name in here if name in there and not name.endswith(".py")]
    words = [f"{name} {there[name]} instead of {here[name]}" for name in libraries if here[name] != there[name]]
    files = sorted(name for name in {*here, *there} if name.endswith(".py") and here.get(name) != there.get(name))
    if files:
        more = f" and {len(files) - MOST_NAMES} more files" if len(files) > MOST_NAMES else ""
        words.append(f"other code in {', '.join(files[:MOST_NAMES])}{more}")
    return words
