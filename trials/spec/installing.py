"""The command that installs what is missing into the Python that runs. It names packages, never an extra of lmsweep:
lmsweep is on no index, so a stranger could register its name there."""

import re
import shlex
import sys
import tomllib
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import requires
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2] / "pyproject.toml"
"""There if lmsweep runs from a checkout, whose extras may be newer than what is installed says of them."""


def install_command(*words: str) -> str:
    """Return the command that installs these requirements, with options of pip among them, as a shell reads it."""
    pip = [sys.executable, "-m", "pip", "install"]
    # Asked of PathFinder: setuptools' own finder warns that it replaces distutils.
    if not PathFinder.find_spec("pip"):  # an environment that uv made
        pip = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*pip, *words])


@cache
def install_extra(name: str = "") -> str:
    """Return the command that installs the packages of an extra, or those that lmsweep itself needs."""
    return install_command(*(of_checkout(name) if CHECKOUT.is_file() else of_installed(name)))


def of_checkout(name: str) -> list[str]:
    project = tomllib.loads(CHECKOUT.read_text("utf-8"))["project"]
    return list(project["optional-dependencies"][name] if name else project["dependencies"])


def of_installed(name: str) -> list[str]:
    """Return the requirements of an extra from metadata such as `peft>=0.17; extra == "adapters"`."""
    parts = [one.partition(";") for one in requires("lmsweep") or ()]
    return [need.strip() for need, _, marker in parts if "".join(re.findall(r"extra == .([\w-]+)", marker)) == name]
