"""Copies the Jupyter notebooks that ship with lmsweep."""

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from lmsweep.trials.spec.config import RequestError


def copy_notebooks(folder: str) -> list[str]:
    """Return the names of the copies. Raises RequestError if one is there already, and then copies none."""
    target = Path(folder).expanduser()
    with as_file(files("lmsweep.analysis") / "notebooks") as source:
        shipped = sorted(source.glob("*.ipynb"))
        for notebook in shipped:
            if (target / notebook.name).exists():
                raise RequestError(f"{target / notebook.name} exists already; nothing was copied")
        try:
            target.mkdir(parents=True, exist_ok=True)
            for notebook in shipped:
                shutil.copyfile(notebook, target / notebook.name)
        except OSError as error:
            raise RequestError(f"{target}: cannot be written ({error.strerror})") from error
    return [notebook.name for notebook in shipped]
