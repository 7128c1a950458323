"""How a Python process of ours starts: with the standard library and this very code first, whatever the current folder
holds.

A research folder may have files called random.py, torch.py or trials.py. `python -m` looks for modules there before
anywhere else, and so does every Python under `PYTHONPATH=.`. What we start never looks there.

``python -P interpreter.py MODULE ARGUMENT...`` runs a module of ours. Only `sys` and `os`, which every interpreter has
imported before it runs anything, are imported before the search path is in order.
"""

import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3))
"""The folder that `lmsweep` is in: a checkout, or site-packages."""

_STANDARD_LIBRARY = os.path.dirname(os.__file__)


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours; to be started in `environment()`."""
    return [*script(__file__), module, *arguments]


def script(path: str, *arguments: str) -> list[str]:
    """The command that runs a file of ours, whose folder must not hide modules; to be started in `environment()`."""
    return [sys.executable, "-P", os.path.abspath(path), *arguments]


def environment() -> dict[str, str]:
    """This process's environment for those that it starts, and for those that they start: no entry of PYTHONPATH is
    the current folder or relative to it.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = os.pathsep.join(entry for entry in entries if not _is_here(entry))
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return ours | {"PYTHONSAFEPATH": "1"} | ({"PYTHONPATH": kept} if kept else {})


def order_search_path() -> None:
    """Has this process look for modules in the standard library first, then among ours, then in what the user names in
    PYTHONPATH, then where libraries are installed; and no longer in the current folder.
    """
    of_the_library = [entry for entry in sys.path if _is_standard(entry)]
    first = sys.path.index(of_the_library[0])
    named = [entry for entry in sys.path[:first] if entry != ROOT and not _is_here(entry)]
    installed = [entry for entry in sys.path[first:] if not _is_standard(entry)]
    # Where we are installed too, nothing is to come before what the user names.
    ours = [] if ROOT in installed and os.path.basename(ROOT).endswith("-packages") else [ROOT]
    sys.path[:] = [*of_the_library, *ours, *named, *(entry for entry in installed if entry not in ours)]


def _is_here(entry: str) -> bool:
    if not os.path.isabs(entry):
        return True
    try:
        return os.path.samefile(entry, os.curdir)
    except OSError:  # one of the two does not exist
        return False


def _is_standard(entry: str) -> bool:
    name = os.path.basename(entry)
    return entry == _STANDARD_LIBRARY or name == "lib-dynload" or (name.startswith("python3") and name.endswith(".zip"))


if __name__ == "__main__":
    order_search_path()
    import runpy

    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
