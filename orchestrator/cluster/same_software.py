"""Compares the software of two machines: all nodes of a cluster must run the same, or their results differ."""

import hashlib
import importlib.metadata
import sys
from collections.abc import Mapping
from pathlib import Path

from lmsweep.trials.spec.workloads import outside_packages

PACKAGES = ("trials", "orchestrator", "analysis")

LIBRARIES = ("torch", "triton", "ray", "numpy", "pyarrow", "nvtx", "nvidia-ml-py")
"""Libraries that take part in measuring, or transport the results."""

MOST_NAMES = 5
"""Differing files that a message names."""


def software() -> dict[str, str]:
    """Return the versions of Python and the installed libraries, and a hash of each file of this project by path.

    Suffixes of builds are left out (2.11.0 for 2.11.0+cu130): a head without a GPU may have another build.
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
    """Return what differs: `torch 2.12.0 instead of 2.13.0`, `different code in trials/timing/clock.py`."""
    libraries = [name for name in here if name in there and not name.endswith(".py")]
    words = [f"{name} {there[name]} instead of {here[name]}" for name in libraries if here[name] != there[name]]
    files = sorted(name for name in {*here, *there} if name.endswith(".py") and here.get(name) != there.get(name))
    if files:
        more = f" and {len(files) - MOST_NAMES} more files" if len(files) > MOST_NAMES else ""
        words.append(f"different code in {', '.join(files[:MOST_NAMES])}{more}")
    return words
