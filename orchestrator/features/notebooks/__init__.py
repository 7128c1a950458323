"""`notebooks`: copies the Jupyter notebooks that ship with lmsweep."""

import shlex
import shutil
import sys
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

from typer import Argument

from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.installing import install_extra


def notebooks(
    folder: Annotated[str, Argument(help="The folder to copy them to. It is created if it is not there.")],
) -> None:
    """Copy the Jupyter notebooks that ship with lmsweep. They run as they are, on results that ship with it, too.

    \b
    Example:
      lmsweep notebooks notebooks
    """
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
    names = "\n".join(f"  {notebook.name}" for notebook in shipped)
    say(f"{target} has {len(shipped)} notebooks:\n{names}")
    opened = shlex.join([sys.executable, "-m", "jupyterlab", str(target)])
    say(f"To open them: {install_extra('notebooks')} && {opened}")


feature = Feature(name="notebooks", job="Share", place=0, verbs=(notebooks,))
