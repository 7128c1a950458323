"""How our Python processes start: the standard library and lmsweep come first, whatever is in the current folder.

A research folder may contain files called random.py, torch.py or trials.py. `python -m`, and every Python with
`PYTHONPATH=.`, looks for modules there first. The processes that we start never look there.

`python -P interpreter.py MODULE ARGUMENT...` runs a module of lmsweep. Before the search path is in order it imports
only `sys` and `os`, which every interpreter has already imported.
"""

import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3))
"""The folder that contains `lmsweep`: a checkout, or site-packages."""

MADE_BY_US = "lmsweep-software.txt"
"""Name of a file at the top of each environment that lmsweep made for a trial's software."""

_STANDARD_LIBRARY = os.path.dirname(os.__file__)


def command(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command that runs a module of lmsweep. Start it with `env=environment()`."""
    return script(__file__, module, *arguments, python=python)


def script(path: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command that runs a file of lmsweep, without its folder on the path, in `environment()`."""
    return [python, "-P", os.path.abspath(path), *arguments]


def environment() -> dict[str, str]:
    """Return this process's environment without PYTHONPATH entries that are relative or the current folder.

    Nor with warnings that are errors: a warning of a library would end a process that no user's code runs in.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = os.pathsep.join(entry for entry in entries if not _is_here(entry))
    left_out = {"PYTHONPATH", *(["PYTHONWARNINGS"] if "error" in os.environ.get("PYTHONWARNINGS", "") else [])}
    ours = {name: value for name, value in os.environ.items() if name not in left_out}
    return ours | {"PYTHONSAFEPATH": "1"} | ({"PYTHONPATH": kept} if kept else {})


def order_search_path() -> None:
    """Order sys.path: standard library, lmsweep, packages made for the trial, PYTHONPATH, site-packages."""
    of_the_library = [entry for entry in sys.path if _is_standard(entry)]
    first = sys.path.index(of_the_library[0])
    of_pythonpath = [entry for entry in sys.path[:first] if entry != ROOT and not _is_here(entry)]
    installed = [entry for entry in sys.path[first:] if not _is_standard(entry)]
    # If lmsweep is in site-packages itself, that stays where it is, in `rest`: PYTHONPATH precedes all of it.
    is_installed = ROOT in installed and os.path.basename(ROOT).endswith("-packages")
    ours = [] if is_installed else [ROOT]
    has_made = os.path.exists(os.path.join(sys.prefix, MADE_BY_US))
    made = [entry for entry in installed if entry.startswith(sys.prefix + os.sep)] if has_made else []
    rest = [entry for entry in installed if entry not in (*ours, *made)]
    sys.path[:] = [*of_the_library, *ours, *made, *of_pythonpath, *rest]


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
